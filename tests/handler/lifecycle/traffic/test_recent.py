"""The tests record inferences under a clock of their own."""

import random
import tracemalloc
from collections.abc import Mapping

import pytest

from handler.lifecycle.traffic.recent import SHARES, SPAN, SPANS, AnswerCount, Recent, merged, quantiles


class Clock:
    """A clock that stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_spans_are_ten_seconds_and_old_ones_are_dropped() -> None:
    """Each has its own successes and failures by protocol; the sums over all time keep both."""
    clock = Clock()
    recent = Recent(clock)
    assert (recent.spans(), dict(recent.totals())) == ([], {})
    recent.record(1_000_000, "v2", success=True)
    recent.record(1_000_000, "v1", success=False)
    clock.now += SPAN
    recent.record(9_000_000, "v2", success=True)
    assert [(ago, {name: found[:2] for name, found in lapse.protocols.items()}) for ago, lapse in recent.spans()] == [
        (1, {"v2": (1, 0), "v1": (0, 1)}), (0, {"v2": (1, 0)})]  # fmt: skip
    assert [lapse.total[:2] for _, lapse in recent.spans()] == [(1, 1), (1, 0)]
    clock.now += SPAN * (SPANS - 1)
    assert [ago for ago, _ in recent.spans()] == [SPANS - 1]
    recent.record(9_000_000, "grpc", success=True)
    clock.now += SPAN * 10_000
    assert recent.spans() == []
    assert seen(recent.totals()) == {"v2": (0, 2), "v1": (1, 0), "grpc": (0, 1)}
    assert seen({"": merged(recent.totals().values())}) == {"": (1, 3)}


def seen(protocols: Mapping[str, AnswerCount]) -> dict[str, tuple[int, int]]:
    """Returns failures and successes by protocol."""
    return {name: (count.failures, sum(count.times.values())) for name, count in protocols.items()}


def test_a_busy_version_takes_little_memory() -> None:
    """Ten minutes of four protocols, whose times differ by a factor of a thousand, are less than 200 kB."""
    clock, numbers = Clock(), random.Random(7)  # noqa: S311 - the same ones in each run
    tracemalloc.start()
    try:
        before, recent = tracemalloc.get_traced_memory()[0], Recent(clock)
        for _ in range(SPANS + 1):
            clock.now += SPAN
            for number in range(400):
                recent.record(int(10 ** numbers.uniform(5, 8)), f"p{number % 4}", success=True)
        assert tracemalloc.get_traced_memory()[0] - before < 200_000
    finally:
        tracemalloc.stop()
    assert sum(lapse.total.successes for _, lapse in recent.spans()) == 400 * SPANS
    assert all(len(found.times) == len(SHARES) for _, lapse in recent.spans() for found in lapse.protocols.values())


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_right_to_an_eighth(share: float) -> None:
    """The control is the sorted list itself."""
    recent, numbers = Recent(Clock()), random.Random(7)  # noqa: S311 - the same ones in each run
    taken = sorted(int(numbers.lognormvariate(14, 2)) for _ in range(5000))
    for ns in taken:
        recent.record(ns, "v2", success=True)
    (found,) = quantiles(recent.totals()["v2"].times, share)
    assert found == pytest.approx(taken[int(share * len(taken))] / 1e6, rel=1 / 8)
    assert quantiles({}, share) == ()
