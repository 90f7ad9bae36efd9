"""What was measured: times in buckets of 1 %, and the figures of one concurrency."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from core.records import NamedTuple

WIDTH: Final = math.log(1.01)
MOST_REASONS: Final = 8
LONGEST: Final = 200
OTHER: Final = "other reasons"


class TimeTally:
    """Times and failures of one thread, which others read when it has ended."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.count = 0
        self.most = math.nan
        self.failures: Counter[str] = Counter()

    def add(self, seconds: float) -> None:
        self.buckets[round(math.log(max(seconds, 1e-9)) / WIDTH)] += 1
        self.count += 1
        self.most = max(seconds, self.most) if self.count > 1 else seconds

    def fail(self, text: str) -> None:
        """Counts a failure, by at most so many reasons."""
        text = text[:LONGEST]
        self.failures[text if text in self.failures or len(self.failures) < MOST_REASONS else OTHER] += 1

    def join(self, other: "TimeTally") -> None:
        """Adds what another one has counted."""
        self.buckets.update(other.buckets)
        self.count += other.count
        self.failures.update(other.failures)
        self.most = other.most if math.isnan(self.most) else max(self.most, other.most) if other.count else self.most

    def quantile(self, part: float) -> float:
        """Returns the time that this part of the requests stays within, to 1 %; NaN without any."""
        left = math.ceil(self.count * part)
        for bucket, count in sorted(self.buckets.items()):
            left -= count
            if left <= 0:
                return math.exp(bucket * WIDTH)
        return math.nan


class Level(NamedTuple):
    """The figures of one concurrency; times in seconds, NaN without an answer. `rate`: answers a second."""

    concurrency: int
    seconds: float
    requests: int
    errors: int
    rate: float
    p50: float
    p90: float
    p99: float
    most: float
    failures: Mapping[str, int]

    @classmethod
    def of(cls, concurrency: int, seconds: float, tally: TimeTally) -> "Level":
        p50, p90, p99 = (min(tally.quantile(part), tally.most) for part in (0.5, 0.9, 0.99))
        rate, errors, most = tally.count / seconds, sum(tally.failures.values()), tally.most
        return cls(concurrency, seconds, tally.count, errors, rate, p50, p90, p99, most, tally.failures)

    def members(self) -> dict[str, Any]:
        """Returns the figures for JSON: null for NaN."""
        found = self._asdict() | {"failures": dict(self.failures)}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()
        }
