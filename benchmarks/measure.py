"""Interleaved rounds, medians, and the table of figures, controls and bars."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its control. `ratio`: the rounds' median of ours / control. `bar`: the largest good ratio."""

    name: str
    ours: float
    control: float
    unit: str
    ratio: float
    bar: float | None = None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "ok" if self.ratio <= self.bar else "MISSED"


def seconds(call: Callable[[], object], times: int) -> float:
    """Returns the median of `times` calls, each timed by itself: one stray interrupt moves a mean, but not a median."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def interleaved(subjects: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns each subject's value in every round. They take turns, so a slow minute of the machine hits them all."""
    values: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds):
        # Every other round runs backwards, so the subject after a heavy one is not always the same.
        for name in list(subjects) if number % 2 == 0 else list(subjects)[::-1]:
            values[name].append(subjects[name]())
    return values


def row(name: str, ours: Sequence[float], control: Sequence[float], unit: str, bar: float | None = None) -> Row:
    """Compares values of the same rounds."""
    ratio = statistics.median(one / other for one, other in zip(ours, control, strict=True))
    return Row(name, statistics.median(ours), statistics.median(control), unit, ratio, bar)


def fastest(name: str, ours: Sequence[float], control: Sequence[float], unit: str, bar: float | None = None) -> Row:
    """Compares the fastest rounds of either side, for machines whose other users disturb most rounds."""
    return Row(name, min(ours), min(control), unit, min(ours) / min(control), bar)


def table(title: str, rows: Sequence[Row]) -> str:
    lines = [f"\n{title}", f"{'':52} {'ours':>9} {'control':>9} {'':9} {'ratio':>6} {'bar':>6}"]
    for each in rows:
        bar = "" if each.bar is None else f"{each.bar:.2f}"
        figures = f"{each.ours:9.3f} {each.control:9.3f} {each.unit:9} {each.ratio:6.2f} {bar:>6}"
        lines.append(f"{each.name:52} {figures} {each.verdict}".rstrip())
    return "\n".join(lines)
