"""The inferences of one version by protocol: how many, how many failed and how long they took, lately and in all.

`usage.Traffic` has the sums that protocols report; these are the numbers of the console's page of a model. Lately is in
spans of ten seconds. Times are counted in steps, so that spans and protocols can be added up, and quantiles are right
to one step. A span that has ended holds 8 bytes for each step, of which a protocol's times have about twenty.
"""

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from handler.lifecycle.traffic.series import step_of, time_of

SPAN: Final = 10
"""Seconds of a span."""
SPANS: Final = 60
MERGED_BITS: Final = 2
"""So many fine steps' bits become one step here: times in it differ by 1/8 at most, and a span holds few of them."""


class AnswerCount(NamedTuple):
    """Inferences of one protocol. `times`: successes by step."""

    failures: int
    times: Mapping[int, int]


class LapseCount(NamedTuple):
    """One span, as a page shows it. `ago`: how many spans before the present one."""

    ago: int
    protocols: Mapping[str, AnswerCount]


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


class PackedAnswers(NamedTuple):
    """The same of a span that has ended. `times`: steps and counts in turns."""

    failures: int
    times: "array[int]"

    def counted(self) -> AnswerCount:
        return AnswerCount(self.failures, dict(zip(self.times[::2], self.times[1::2], strict=True)))


def _packed(answers: Answers) -> PackedAnswers:
    return PackedAnswers(answers.failures, array("I", [number for pair in answers.times.items() for number in pair]))


class Recent:
    """The caller holds a lock. `clock`: seconds that never go back."""

    __slots__ = ("_before", "_clock", "_index", "_now", "_ring")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._index = -1
        self._now: dict[str, Answers] = {}
        # Empty until the first span has ended: most models of a repository have no inference.
        self._ring: list[tuple[int, Mapping[str, PackedAnswers]] | None] = []
        self._before: dict[str, Answers] = {}

    def record(self, ns: int, protocol: str = "", *, success: bool) -> None:
        """Counts one inference, which took `ns` nanoseconds in all."""
        index = int(self._clock()) // SPAN
        if self._index != index:
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
            packed = {name: _packed(answers) for name, answers in self._now.items()}
            self._ring[self._index % SPANS] = self._index, packed
            for name, answers in self._now.items():
                self._before.setdefault(name, Answers()).add(answers)
        self._index, self._now = index, {}

    def spans(self) -> list[LapseCount]:
        """Returns the spans with inferences, the oldest first, the present one included."""
        index = int(self._clock()) // SPAN
        ended: list[tuple[int, Mapping[str, Answers | PackedAnswers]]] = [each for each in self._ring if each]
        found = sorted([*ended, (self._index, self._now)], key=lambda each: each[0])
        return [
            LapseCount(index - then, {name: answers.counted() for name, answers in protocols.items()})
            for then, protocols in found
            if index - then < SPANS and protocols
        ]

    def totals(self) -> Mapping[str, AnswerCount]:
        """Returns all inferences since the process first listed the version, by protocol."""
        names = sorted({*self._before, *self._now})
        return {
            name: merged([each[name].counted() for each in (self._before, self._now) if name in each]) for name in names
        }


def merged(counts: Iterable[AnswerCount]) -> AnswerCount:
    """Returns the sum of several protocols' or spans' inferences."""
    failures, times = 0, Counter[int]()
    for each in counts:
        failures += each.failures
        times.update(each.times)
    return AnswerCount(failures, times)


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
