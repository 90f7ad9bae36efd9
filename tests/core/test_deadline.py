"""core.deadline: the point in time at which a request stops waiting."""

import math
import threading
from types import SimpleNamespace

import pytest

from core.deadline import LONGEST_WAIT, NEVER, SLICE_SECONDS, Deadline, answerable, within

NOW = 50.0


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock."""
    monkeypatch.setattr("core.deadline.time", SimpleNamespace(monotonic=lambda: NOW))


@pytest.mark.parametrize(("seconds", "left"), [(29, 28), (4, 3), (2, 1.5), (0, 0)])
def test_an_answer_needs_a_second_or_a_quarter_of_the_time(seconds: float, left: float) -> None:
    """The margin is whichever is less."""
    assert answerable(seconds) == left


def test_a_deadline_begins_now() -> None:
    """`within` counts from the present moment, and is not Lambda's init phase unless that is said."""
    assert within(3) == Deadline(NOW + 3)
    assert within(3, init=True) == Deadline(NOW + 3, init=True)


@pytest.mark.parametrize(("seconds", "is_never"), [(LONGEST_WAIT, False), (LONGEST_WAIT + 1, True), (3.6e11, True)])
def test_a_deadline_after_a_year_never_comes(seconds: float, is_never: bool) -> None:  # noqa: FBT001 - a column
    """A lock cannot wait for each that gRPC can state."""
    assert within(seconds).is_never is is_never
    assert is_never or seconds <= threading.TIMEOUT_MAX


@pytest.mark.parametrize(("at", "left"), [(NOW + 2, 2), (NOW, 0), (NOW - 2, -2), (math.inf, math.inf)])
def test_the_time_that_is_left_is_negative_after_the_deadline(at: float, left: float) -> None:
    """Without an end it is infinite."""
    assert Deadline(at).left == left


@pytest.mark.parametrize(("deadline", "is_never"), [(NEVER, True), (Deadline(NOW), False), (Deadline(init=True), True)])
def test_a_deadline_without_a_time_never_comes(deadline: Deadline, is_never: bool) -> None:  # noqa: FBT001 - a column
    """Only its time decides that."""
    assert deadline.is_never is is_never


@pytest.mark.parametrize(("at", "seconds"), [(NOW + 2, 2), (NOW + 9, 5), (NOW - 1, -1), (math.inf, 5)])
def test_a_wait_ends_at_the_deadline_at_the_latest(at: float, seconds: float) -> None:
    """A wait of 5 seconds is cut to what is left."""
    assert Deadline(at).earlier(5) == seconds


@pytest.mark.parametrize(
    ("process", "client", "at", "left"),
    [(60, 2, 2, 60), (2, 60, 2, 2), (2, 2, 2, 2), (60, math.inf, 60, 60), (math.inf, 2, 2, 2)],
)
def test_a_clients_deadline_ends_the_request_and_not_the_process(
    process: float, client: float, at: float, left: float
) -> None:
    """Where nothing ends the process, the earlier deadline is the only one."""
    earlier = Deadline(NOW + process, beside=0.5).with_client(Deadline(NOW + client))
    assert (earlier.left, earlier.process_left) == (at, left)
    assert NEVER.with_client(NEVER) is NEVER


@pytest.mark.parametrize("deadline", [NEVER, Deadline(NOW + 60), Deadline(beside=1.0)])
def test_a_slice_is_the_whole_where_nothing_else_answers_or_nothing_ends(deadline: Deadline) -> None:
    """A look or a fetch then has all the time of its request."""
    assert deadline.slice() is deadline


@pytest.mark.parametrize(("seconds", "part"), [(60, SLICE_SECONDS), (4, 1), (2, 0.5), (0, 0), (-4, -1)])
def test_a_slice_beside_a_loaded_version_is_a_quarter_or_a_second(seconds: float, part: float) -> None:
    """The other members of the deadline stay."""
    deadline = Deadline(NOW + seconds, init=True, beside=0.5)
    assert deadline.slice() == deadline._replace(at=NOW + part)
