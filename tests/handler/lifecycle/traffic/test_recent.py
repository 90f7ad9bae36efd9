"""The tests record inferences under a clock of their own."""

import random

import pytest

from handler.lifecycle.traffic.recent import SPAN, SPANS, Recent, quantiles


class Clock:
    """A clock that stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_spans_are_ten_seconds_and_old_ones_are_dropped() -> None:
    """Each has its own successes and failures; the sum over all time keeps the successes."""
    clock = Clock()
    recent = Recent(clock)
    assert (recent.spans(), dict(recent.times())) == ([], {})
    recent.record(1_000_000, success=True)
    recent.record(1_000_000, success=False)
    clock.now += SPAN
    recent.record(9_000_000, success=True)
    assert [(span.ago, span.failures, sum(span.times.values())) for span in recent.spans()] == [(1, 1, 1), (0, 0, 1)]
    clock.now += SPAN * (SPANS - 1)
    assert [span.ago for span in recent.spans()] == [SPANS - 1]
    recent.record(9_000_000, success=True)
    clock.now += SPAN * 10_000
    assert recent.spans() == []
    assert sum(recent.times().values()) == 3


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_right_to_an_eighth(share: float) -> None:
    """The control is the sorted list itself."""
    recent, numbers = Recent(Clock()), random.Random(7)  # noqa: S311 - the same ones in each run
    taken = sorted(int(numbers.lognormvariate(14, 2)) for _ in range(5000))
    for ns in taken:
        recent.record(ns, success=True)
    (found,) = quantiles(recent.times(), share)
    assert found == pytest.approx(taken[int(share * len(taken))] / 1e6, rel=1 / 8)
    assert quantiles({}, share) == ()
