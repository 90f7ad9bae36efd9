"""handler.lifecycle.traffic.series: counts over time, with a clock that the test turns."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics import Span
from handler.lifecycle.traffic.series import Monitor, step_of, time_of

START = 86_400 * 100
SIZES = [86_400] * 30 + [3_600] * 24 + [60] * 60 + [1] * 60


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = START + 0.5

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """One that stands still."""
    return Clock()


def filled(monitor: Monitor) -> dict[int, Span]:
    """The spans with inferences, by their place."""
    return {index: span for index, span in enumerate(monitor.series().spans) if span.inferences}


def test_an_inference_counts_once_its_second_has_ended(clock: Clock) -> None:
    """The times of the last second come with it, in ascending order."""
    monitor = Monitor(clock)
    for ns, success in ((3_000, True), (5, False), (40, True), (40, True)):
        monitor.record(ns, success=success)
    assert not filled(monitor)
    assert [span.seconds for span in monitor.series().spans] == SIZES
    clock.now += 1
    assert filled(monitor) == {173: Span(1, 4, 1, 3_085, 3_000)}
    assert [(step_of(ns), count) for ns, count in monitor.series().times] == [
        (step_of(5), 1), (step_of(40), 2), (step_of(3_000), 1),
    ]  # fmt: skip
    clock.now += 1
    assert filled(monitor) == {172: Span(1, 4, 1, 3_085, 3_000)}
    assert monitor.series().times == ()


@pytest.mark.parametrize(("later", "places"), [
    (1, {29, 53, 113, 173}), (60, {29, 53, 113, 114}), (61, {29, 53, 112}), (3_601, {29, 52}), (86_401, {28}),
    (30 * 86_400, {0}), (30 * 86_400 + 1, set()), (400 * 86_400, set()),
])  # fmt: skip
def test_a_second_is_a_part_of_longer_spans(clock: Clock, later: int, places: set[int]) -> None:
    """It moves down in each list, whether or not anything happened since."""
    clock.now -= 1  # the last second of a day
    monitor = Monitor(clock)
    monitor.record(7, success=True)
    clock.now += later
    found = filled(monitor)
    assert found.keys() == places
    assert all((span.inferences, span.ns) == (1, 7) for span in found.values())


def test_spans_add_up_over_pauses_of_any_length(clock: Clock) -> None:
    """A place is used again by another span, and starts at nothing."""
    monitor = Monitor(clock)
    for _ in range(300):
        monitor.record(10, success=False)
        clock.now += 0.5
    spans = monitor.series().spans
    assert sum(span.inferences for span in spans[-60:]) == 120
    assert [span.inferences for span in spans[54:114] if span.inferences] == [119, 120]
    clock.now += 86_400 * 40
    monitor.record(1, success=True)
    clock.now += 1
    assert filled(monitor) == {173: Span(1, 1, 0, 1, 1)}


def test_no_inference_of_any_thread_is_lost(clock: Clock) -> None:
    """Threads record at once."""
    monitor = Monitor(clock)

    def record() -> None:
        for number in range(2_000):
            monitor.record(number, success=number % 2 == 0)

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += 1
    (span,) = filled(monitor).values()
    assert span == Span(1, 16_000, 8_000, 8 * sum(range(2_000)), 1_999)
    assert sum(count for _, count in monitor.series().times) == 16_000


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_a_step_is_a_bounded_part_of_its_times(one: int, other: int) -> None:
    """Greater times are in no lower step, and there are few steps."""
    assert abs(time_of(step_of(one)) - one) <= one / 32
    assert step_of(one) < 61 * 64
    assert (step_of(one) <= step_of(other)) if one <= other else (step_of(one) >= step_of(other))
