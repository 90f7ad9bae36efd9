"""What the platform grants this process: CPUs, memory, and which platform it is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

MB_PER_VCPU: Final = 1769
"""The MB of memory for which Lambda allots one vCPU (AWS documentation, "Configure Lambda function memory")."""

USABLE: Final = 0.9
"""The part of the memory that models may use. The rest is for requests, and for loads that need more than expected."""

INFERENCE_SECONDS: Final = 60.0
"""The time limit of an inference on a server. Proxies wait as long for an answer (nginx and AWS's load balancers)."""

LEVELS: Final = {
    "TRACE": "DEBUG", "DEBUG": "DEBUG", "INFO": "INFO", "WARN": "WARNING", "ERROR": "ERROR", "FATAL": "ERROR",
}  # fmt: skip
"""Lambda's levels of a log, and ours."""


MANAGED: Final = "lambda-managed-instances"
"""The type of initialization on Managed Instances, where the CPUs do not follow from memory: 2 to 8 GiB have one."""


def cpus(environ: Mapping[str, str]) -> float:
    memory = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if memory.isdecimal() and environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") != MANAGED:
        return int(memory) / MB_PER_VCPU
    available = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return min(available, *(cgroup_cpus(level / "cpu.max") for level in cgroups()))


def cgroups(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Returns the folders of this process's cgroup (v2) and of those around it: each may set a limit.

    A container sees its own as the root; a service of systemd is below it.
    """
    try:
        lines = membership.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    own = next((line[3:] for line in lines if line.startswith("0::/")), "/")
    level = root.joinpath(*(part for part in own.split("/") if part not in ("", "..")))
    return [level, *(each for each in level.parents if each.is_relative_to(root))]


def cgroup_cpus(quota_file: Path) -> float:
    """Returns a container's CPU quota (cgroup v2: "quota period" or "max period"), infinity without one."""
    try:
        quota, _, period = quota_file.read_text().partition(" ")
        return int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")


def usable_memory(environ: Mapping[str, str]) -> int | None:
    memory = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if memory.isdecimal():
        return int(int(memory) * 2**20 * USABLE)
    found = (cgroup_memory(level / "memory.max") for level in cgroups())
    return min((limit for limit in found if limit is not None), default=None)


def cgroup_memory(limit_file: Path) -> int | None:
    """Returns the usable bytes of a container's memory (cgroup v2: bytes or "max"), None without a limit."""
    try:
        return int(int(limit_file.read_text()) * USABLE)
    except (OSError, ValueError):
        return None


def observed(values: dict[str, Any], environ: Mapping[str, str], *, has_level: bool) -> None:
    """Fills in the platform's values for log and metrics, unless settings have them. `has_level`: they have the level.

    Lambda's own variables (AWS documentation, "Configuring advanced logging controls") are its operator's.
    """
    on_lambda = name(environ) == "lambda"
    if not values["log_format"]:
        is_json = on_lambda and environ.get("AWS_LAMBDA_LOG_FORMAT", "").upper() == "JSON"
        values["log_format"] = "json" if is_json else "text"
    level = LEVELS.get(environ.get("AWS_LAMBDA_LOG_LEVEL", "").upper()) if on_lambda else None
    if level is not None and not has_level:
        values["log_level"] = level
    values["traces"] = values["traces"] or ("otlp" if environ.get("OTEL_TRACES_EXPORTER") == "otlp" else "off")
    values["metrics"] = values["metrics"] or (("off",) if on_lambda else ("triton",))


def name(environ: Mapping[str, str]) -> str:
    return "lambda" if "AWS_LAMBDA_FUNCTION_NAME" in environ else "server"
