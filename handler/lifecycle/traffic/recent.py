"""The inferences of one version by protocol: how many, how many failed and how long they took, lately and in all.

`usage.Traffic` has the sums that protocols report; these are the numbers of the console's page of a model. Lately is in
spans of ten seconds. Times are counted in steps, so that spans and protocols can be added up, and quantiles are right
to one step. A span that has ended holds 8 bytes for each step, of which a protocol's times have about twenty.
"""

import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from core.records import NamedTuple
from handler.lifecycle.traffic.series import step_of, time_of

SPAN: Final = 10
"""Seconds of a span."""
SPANS: Final = 60
SHARES: Final = (0.5, 0.95, 0.99)
"""Of the successes, whose longest time is a figure of each span."""
MERGED_BITS: Final = 2
"""So many fine steps' bits become one step here: times in it differ by 1/8 at most, and a span holds few of them."""


class AnswerCount(NamedTuple):
    """Inferences of one protocol. `times`: successes by step."""

    failures: int
    times: Mapping[int, int]


class Figures(NamedTuple):
    """What a span's inferences were like. `times`: milliseconds, one for each of SHARES; none without a success."""

    successes: int
    failures: int
    times: tuple[float, ...]


class Answers:
    """What one protocol was answered in one span that goes on, or in all spans that have ended."""

    __slots__ = ("failures", "times")

    def __init__(self) -> None:
        self.failures = 0
        self.times: dict[int, int] = {}

    def add(self, other: "Answers") -> None:
        self.failures += other.failures
        for step, count in other.times.items():
            self.times[step] = self.times.get(step, 0) + count

    def counted(self) -> AnswerCount:
        return AnswerCount(self.failures, dict(self.times))


class Lapse:
    """One span, as it was when it was made. `index`: the clock divided by SPAN.

    Its figures are calculated when they are first asked for: a page shows the same spans again and again.
    """

    __slots__ = ("_figures", "_packed", "index")

    def __init__(self, index: int, answers: Mapping[str, Answers]) -> None:
        self.index = index
        self._packed = {
            name: (each.failures, array("I", [number for pair in each.times.items() for number in pair]))
            for name, each in answers.items()
        }
        self._figures: tuple[Figures, Mapping[str, Figures]] | None = None

    @property
    def total(self) -> Figures:
        """The figures of all protocols together."""
        return self._calculated()[0]

    @property
    def protocols(self) -> Mapping[str, Figures]:
        """The figures of each protocol that has asked."""
        return self._calculated()[1]

    def _calculated(self) -> tuple[Figures, Mapping[str, Figures]]:
        if self._figures is None:
            counts = {
                name: AnswerCount(failures, dict(zip(times[::2], times[1::2], strict=True)))
                for name, (failures, times) in self._packed.items()
            }
            total = next(iter(counts.values())) if len(counts) == 1 else merged(counts.values())
            self._figures = figures(total), {name: figures(count) for name, count in counts.items()}
        return self._figures


class Recent:
    """The caller holds a lock. `clock`: seconds that never go back."""

    __slots__ = ("_before", "_clock", "_index", "_now", "_ring")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._index = -1
        self._now: dict[str, Answers] = {}
        # Empty until the first span has ended: most models of a repository have no inference.
        self._ring: list[Lapse | None] = []
        self._before: dict[str, Answers] = {}

    def record(self, ns: int, protocol: str = "", *, success: bool, at: float | None = None) -> None:
        """Counts one inference, which took `ns` nanoseconds in all. `at`: the clock when it ended; now by default."""
        index = int(self._clock() if at is None else at) // SPAN
        if self._index < index:
            self._turn(index)
        answers = self._now.get(protocol)
        if answers is None:
            answers = self._now[protocol] = Answers()
        if success:
            step = step_of(ns) >> MERGED_BITS
            answers.times[step] = answers.times.get(step, 0) + 1
        else:
            answers.failures += 1

    def _turn(self, index: int) -> None:
        """Puts the span that has ended away."""
        if self._now:
            self._ring = self._ring or [None] * SPANS
            self._ring[self._index % SPANS] = Lapse(self._index, self._now)
            for name, answers in self._now.items():
                self._before.setdefault(name, Answers()).add(answers)
        self._index, self._now = index, {}

    def spans(self) -> list[tuple[int, Lapse]]:
        """Returns the spans with inferences, the oldest first, the present one included.

        Before each stands how many spans it is before the present one.
        """
        index = int(self._clock()) // SPAN
        found = [each for each in self._ring if each is not None]
        found.sort(key=lambda each: each.index)
        if self._now:
            found.append(Lapse(self._index, self._now))
        return [(index - each.index, each) for each in found if index - each.index < SPANS]

    def totals(self) -> Mapping[str, AnswerCount]:
        """Returns all inferences since the process first listed the version, by protocol."""
        names = sorted({*self._before, *self._now}, key=lambda name: (not name, name))  # clients' protocols first
        return {
            name: merged([each[name].counted() for each in (self._before, self._now) if name in each]) for name in names
        }


def merged(counts: Iterable[AnswerCount]) -> AnswerCount:
    """Returns the sum of several protocols' or spans' inferences."""
    failures, times = 0, dict[int, int]()
    for each in counts:
        failures += each.failures
        for step, count in each.times.items():
            times[step] = times.get(step, 0) + count
    return AnswerCount(failures, times)


def figures(count: AnswerCount) -> Figures:
    return Figures(sum(count.times.values()), count.failures, quantiles(count.times, *SHARES))


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
