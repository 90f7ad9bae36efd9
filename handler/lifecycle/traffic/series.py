"""All inferences of this process: how many, how many failed, how long they took, by second, minute, hour and day.

THE place where they are counted over all models; `usage.Traffic` has the counts of each version. It keeps 178 numbers
of each kind, and the times of two seconds in at most 2,000 steps, whatever comes. Nothing runs beside the requests: the
first one of a second puts the second before away.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from core.statistics import Series, Span

UNITS: Final = ((86_400, 30), (3_600, 24), (60, 60))
"""Seconds of a span and the number of past ones, beside the SECONDS."""
SECONDS: Final = 60
STEP_BITS: Final = 6
"""A step holds times that differ by 1/32 at most."""


class Tally:
    """The counts of one span. `index`: the clock divided by the span. `times`: how many inferences took each step."""

    __slots__ = ("count", "failures", "index", "most", "ns", "times")

    def __init__(self, index: int) -> None:
        self.index = index
        self.count = 0
        self.failures = 0
        self.ns = 0
        self.most = 0
        self.times: dict[int, int] = {}

    def add(self, other: "Tally") -> None:
        """Adds another's counts, without its times."""
        self.count += other.count
        self.failures += other.failures
        self.ns += other.ns
        self.most = max(self.most, other.most)


class Monitor:
    """Counts from any thread. `clock`: seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._now = Tally(int(clock()))
        self._last = Tally(-1)
        # Each span has its place by its index, so that a pause of any length costs nothing.
        self._seconds = [Tally(-1)] * (SECONDS + 1)
        self._rings = [(size, [Tally(-1) for _ in range(count + 1)]) for size, count in UNITS]

    def record(self, ns: int, *, success: bool, at: float | None = None) -> None:
        """Counts one inference, which took `ns` nanoseconds in all. `at`: the clock when it ended; now by default."""
        step, second = step_of(ns), int(self._clock() if at is None else at)
        with self._lock:
            now = self._now
            if now.index < second:
                now = self._turned(second)
            now.count += 1
            now.ns += ns
            now.most = max(now.most, ns)
            now.times[step] = now.times.get(step, 0) + 1
            if not success:
                now.failures += 1

    def series(self) -> Series:
        """Returns the spans that have ended."""
        with self._lock:
            second = self._turned(int(self._clock())).index
            spans = [
                _span(ring[index % len(ring)], index, size)
                for size, ring in self._rings
                for index in range(second // size - len(ring) + 1, second // size)
            ]
            seconds = self._seconds
            spans += [_span(seconds[index % len(seconds)], index, 1) for index in range(second - SECONDS, second)]
            times = sorted(self._last.times.items()) if self._last.index == second - 1 else []
        return Series(tuple(spans), tuple((time_of(step), count) for step, count in times))

    def _turned(self, second: int) -> Tally:
        """Returns the tally of a second, or of a later one that has begun. The caller holds the lock."""
        ended = self._now
        if ended.index >= second:
            return ended
        for size, ring in self._rings:
            index = ended.index // size
            if ring[index % len(ring)].index != index:
                ring[index % len(ring)] = Tally(index)
            ring[index % len(ring)].add(ended)
        self._last.times = {}
        self._last = self._seconds[ended.index % len(self._seconds)] = ended
        self._now = Tally(second)
        return self._now


def _span(tally: Tally, index: int, seconds: int) -> Span:
    if tally.index != index:
        return Span(seconds)
    return Span(seconds, tally.count, tally.failures, tally.ns, tally.most)


def step_of(ns: int) -> int:
    """Returns the number of the step of a time. Greater times have greater numbers."""
    shift = ns.bit_length() - STEP_BITS
    return ns if shift <= 0 else shift << STEP_BITS | ns >> shift


def time_of(step: int) -> int:
    """Returns the nanoseconds in the middle of a step."""
    shift, leading = step >> STEP_BITS, step & ((1 << STEP_BITS) - 1)
    return (2 * leading + 1 << shift) >> 1


PROCESS: Final = Monitor()
"""The only instance: series are those of the process."""
