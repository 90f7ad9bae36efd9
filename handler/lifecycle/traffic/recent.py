"""The inferences of one version lately: how many, how many failed and how long they took, in spans of ten seconds.

`usage.Traffic` has the sums that protocols report; these are the numbers of the console's page of a model. Times are
counted in steps, so that spans can be added up, and quantiles are right to one step.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from handler.lifecycle.traffic.series import step_of, time_of

SPAN: Final = 10
"""Seconds of a span."""
SPANS: Final = 60
MERGED_BITS: Final = 2
"""So many fine steps' bits become one step here: times in it differ by 1/8 at most, and a span holds few of them."""


class Lapse:
    """What happened in one span. `index`: the clock divided by SPAN. `times`: successes by step."""

    __slots__ = ("failures", "index", "times")

    def __init__(self, index: int) -> None:
        self.index = index
        self.failures = 0
        self.times: dict[int, int] = {}


class LapseCount(NamedTuple):
    """One span, as a page shows it. `ago`: how many spans before the present one."""

    ago: int
    failures: int
    times: Mapping[int, int]


class Recent:
    """The caller holds a lock. `clock`: seconds that never go back."""

    __slots__ = ("_before", "_clock", "_now", "_ring")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = Lapse(-1)
        self._ring: list[Lapse | None] = []  # until the first inference: most models of a repository have none
        self._before: dict[int, int] = {}

    def record(self, ns: int, *, success: bool) -> None:
        """Counts one inference, which took `ns` nanoseconds in all."""
        now, index = self._now, int(self._clock()) // SPAN
        if now.index != index:
            now = self._turned(index)
        if success:
            step = step_of(ns) >> MERGED_BITS
            now.times[step] = now.times.get(step, 0) + 1
        else:
            now.failures += 1

    def _turned(self, index: int) -> Lapse:
        for step, count in self._now.times.items():
            self._before[step] = self._before.get(step, 0) + count
        self._ring = self._ring or [None] * SPANS
        now = self._now = self._ring[index % SPANS] = Lapse(index)
        return now

    def spans(self) -> list[LapseCount]:
        """Returns the spans with inferences, the oldest first, the present one included."""
        index = int(self._clock()) // SPAN
        found = [each for each in self._ring if each is not None and index - each.index < SPANS]
        found.sort(key=lambda each: each.index)
        return [LapseCount(index - each.index, each.failures, dict(each.times)) for each in found]

    def times(self) -> Mapping[int, int]:
        """Returns all successes since the process first listed the version, by step."""
        return Counter(self._before) + Counter(self._now.times)


def quantiles(times: Mapping[int, int], *shares: float) -> tuple[float, ...]:
    """Returns the times in milliseconds below which these shares of the successes lie; none without a success.

    >>> quantiles({1: 98, 2: 2}, 0.5, 0.99) == (6e-6, 10e-6)
    True
    """
    total, found, upto = sum(times.values()), [], 0
    if not total:
        return ()
    wanted = iter(sorted(shares))
    share = next(wanted, None)
    for step, count in sorted(times.items()):
        upto += count
        while share is not None and upto >= share * total:
            found.append(time_of((step << MERGED_BITS) + (1 << MERGED_BITS >> 1)) / 1e6)
            share = next(wanted, None)
    return tuple(found)
