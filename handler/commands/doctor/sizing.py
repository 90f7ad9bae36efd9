"""What measured loads mean: the memory to give a function, and where the time of its cold start will go."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from handler.commands.doctor.findings import Finding, error, warning
from handler.commands.doctor.function import MEMORY, FunctionFacts
from handler.settings import Settings
from handler.settings.platform import MB_PER_VCPU, USABLE

MIB: Final = 2**20
STEP: Final = 64
"""Recommended megabytes are a multiple of it."""
INIT_SECONDS: Final = 10.0
"""Seconds that Lambda gives to an import (AWS, "Lambda execution environment")."""
STEPS: Final = ("runtime", "fetch", "load")
"""The steps of a load: to import the runtime, to fetch the files, to load the model."""
TMP: Final = 1.1
"""Files in /tmp, and what their journals take beside them."""


def recommend(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Returns megabytes of memory: `least` for the largest model alone, `all` with every model in memory.

    `vcpus`: the part of a CPU that Lambda gives with `least`.
    """
    loads = list(measured.get("models", {}).values())
    imported = measured.get("init", {}).get("bytes")
    if not imported or not loads:
        return {}
    base = imported + max(each["runtime_bytes"] for each in loads)
    least = _megabytes(base + max(each["peak"] for each in loads))
    costs = sum(each["cost"] for each in loads if not each["pipeline"])
    every = _megabytes(base + costs + max(each["peak"] - each["cost"] for each in loads))
    return {"base": base // MIB, "least": least, "all": max(least, every), "vcpus": round(least / MB_PER_VCPU, 2)}


def _megabytes(size: int) -> int:
    """Returns the memory whose usable part holds `size` bytes."""
    return max(MEMORY[0], -(-int(size / USABLE / MIB) // STEP) * STEP)


def cold_start(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the seconds of a first request for the slowest model on this machine, by step, and their sum, `total`.

    `at_least`: seconds with the least memory, whose part of a CPU does the same work. Lambda's may be faster or slower.
    """
    loads = measured.get("models", {})
    init = measured.get("init", {}).get("seconds")
    if init is None or not loads:
        return {}
    name, slowest = max(loads.items(), key=lambda each: sum(each[1][step] for step in STEPS))
    steps = {"init": init, **{step: slowest[step] for step in STEPS}}
    total, part = sum(steps.values()), measured["memory"]["vcpus"] if measured.get("memory") else 1.0
    seconds = {**steps, "total": total, "at_least": (total - steps["fetch"]) / min(1.0, part) + steps["fetch"]}
    return {"model": name, **{step: round(value, 3) for step, value in seconds.items()}}


def of_settings(settings: Settings, measured: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields limits that the measured models do not fit into."""
    loads, limit = measured.get("models", {}), settings.memory_limit
    names = [
        name
        for name, load in loads.items()
        if ("*" in settings.preload or name.rpartition("/")[0] in settings.preload) and not load["pipeline"]
    ]
    advice = measured.get("memory") or {}
    if limit is None or not names or not advice:
        return
    need = advice["base"] * MIB + sum(loads[name]["cost"] for name in names)
    if need > limit:
        what = f"the models of DRAGOMAN_PRELOAD need {need // MIB} MB in memory; the limit is {limit // MIB} MB"
        cure = f"set DRAGOMAN_MEMORY_LIMIT={_megabytes(need)}MiB, or preload fewer"
        yield error("preload-memory", "DRAGOMAN_MEMORY_LIMIT", what, cure)


def of_function(facts: FunctionFacts, measured: Mapping[str, Any], size: int, where: str) -> Iterator[Finding]:
    """Yields limits of the function that the measured models do not fit into. `size`: bytes of the largest version."""
    place, advice, start = f"{where}: {facts.name}", measured.get("memory") or {}, measured.get("cold_start") or {}
    if advice and facts.memory is not None and facts.memory < advice["least"]:
        what = f"MemorySize is {facts.memory} MB, and the largest model needs {advice['least']} MB"
        yield error(
            "function-memory", place, what, f"set it to {advice['least']} ({advice['all']} for all models at once)"
        )
    if start and facts.timeout is not None and start["total"] > facts.timeout:
        what = (
            f"Timeout is {facts.timeout} s, and a first request for {start['model']} takes {start['total']:.1f} s here"
        )
        yield warning("function-timeout", place, what, "raise it, or load the model before requests (Initialization)")
    if facts.storage is not None and size * TMP > facts.storage * MIB:
        what = f"EphemeralStorage is {facts.storage} MB, and the largest model's files take {size // MIB} MB"
        yield error("function-storage", place, what, f"set it to at least {int(size * TMP / MIB) + 1}")
    if start and start["init"] > INIT_SECONDS:
        what = f"importing the function takes {start['init']:.1f} s here; Lambda begins anew after {INIT_SECONDS:.0f}"
        yield warning("function-init", place, what, "give it more memory: its CPU grows in proportion")
