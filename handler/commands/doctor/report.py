"""What doctor prints: text on one screen for people, or one JSON object for programs."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from handler.commands.doctor.findings import SEVERITIES, Finding, Visit
from handler.commands.meter import human

MOST: Final = 10
"""Findings that the text shows: with their cures and the measurements they fill a screen."""
SLOWEST: Final = 4
"""Models whose measurements the text shows."""


def as_json(visit: Visit) -> str:
    """Returns findings, what was examined and skipped, and measurements: seconds, bytes, and megabytes of memory."""
    return json.dumps(
        {
            "findings": [each._asdict() for each in visit.sorted],
            "counts": _counts(visit),
            "examined": visit.examined,
            "skipped": visit.skipped,
            **visit.measured,
        },
        indent=2,
        ensure_ascii=False,
    )


def as_text(visit: Visit) -> str:
    return "\n".join(_lines(visit))


def _lines(visit: Visit) -> Iterator[str]:
    yield f"examined: {', '.join(visit.examined) or 'nothing'}"
    yield from (f"skipped: {each}" for each in visit.skipped)
    for each in visit.sorted[:MOST]:
        yield from _finding(each)
    if len(visit.sorted) > MOST:
        yield f"... and {len(visit.sorted) - MOST} more: dragoman doctor --json"
    yield from _measured(visit.measured)
    yield _summary(visit)


def _finding(found: Finding) -> Iterator[str]:
    yield f"{found.severity.upper():7} {found.where}: {found.what}"
    yield f"        cure: {found.cure}"


def _measured(measured: dict[str, Any]) -> Iterator[str]:
    loads = measured.get("models") or {}
    largest = sorted(loads.items(), key=lambda each: each[1]["peak"], reverse=True)
    for name, load in largest[:SLOWEST]:
        yield f"loaded {name}: {load['load']:.2f} s, {human(load['cost'])} in memory, {human(load['peak'])} at its peak"
    if len(largest) > SLOWEST:
        yield f"... and {len(largest) - SLOWEST} smaller ones"
    if advice := measured.get("memory"):
        yield (
            f"memory of a function: {advice['least']} MB for the largest model alone ({advice['vcpus']} vCPU), "
            f"{advice['all']} MB for all at once"
        )
        if absent := measured["unmeasured"]:
            more = f" and {len(absent) - SLOWEST} more" if len(absent) > SLOWEST else ""
            yield f"        without {', '.join(absent[:SLOWEST])}{more}: what did not load here has no size"
    if advice and (start := measured.get("cold_start")):
        steps = ", ".join(f"{step} {start[step]:.2f} s" for step in ("init", "runtime", "fetch", "load"))
        yield f"cold start with {start['model']} on this machine: {start['total']:.2f} s ({steps})"
        part = f"{advice['vcpus']} vCPU, as a function with {advice['least']} MB has"
        yield f"        on {part}: {start['at_least']:.1f} s"


def _counts(visit: Visit) -> dict[str, int]:
    counts = Counter(each.severity for each in visit.sorted)
    return {severity: counts[severity] for severity in SEVERITIES}


def _summary(visit: Visit) -> str:
    found = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in _counts(visit).items() if count]
    return ", ".join(found) or "nothing is wrong"
