"""handler.stores.progress: how far a load is, and until when it may go on."""

import threading
from types import SimpleNamespace

import pytest

from core.deadline import NEVER, Deadline
from handler.stores.progress import PAUSE, Progress, unless_done


def test_a_load_that_is_begun_again_is_timed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in the runtime is that of the latest try, while that try goes on as well as after it."""
    now = iter([10, 30, 50, 60, 70])
    monkeypatch.setattr("handler.stores.progress.time", SimpleNamespace(perf_counter_ns=lambda: next(now)))
    progress = Progress()
    with progress.in_runtime():
        pass
    assert progress.load_ns == 20
    with progress.in_runtime():
        assert progress.load_ns == 10
    assert progress.load_ns == 20


def test_a_load_that_fails_in_the_runtime_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's part ends with an error as it ends without one."""
    now = iter([10, 30])
    monkeypatch.setattr("handler.stores.progress.time", SimpleNamespace(perf_counter_ns=lambda: next(now)))
    progress = Progress()
    assert progress.load_ns == 0
    with pytest.raises(ZeroDivisionError), progress.in_runtime():
        raise ZeroDivisionError
    assert progress.load_ns == 20


@pytest.mark.parametrize(("total", "done", "text"), [
    (0, 0, "model 'm' is being looked up: try again"),
    (300 * 10**6, 120 * 10**6, "model 'm' is 120 of 300 MB loaded: try again"),
    (1, 0, "model 'm' is 0 of 1 MB loaded: try again"),
])  # fmt: skip
def test_a_request_that_waits_no_longer_reads_how_far_the_load_is(total: int, done: int, text: str) -> None:
    """The refusal has the bytes in MB, the total rounded up, and a pause."""
    progress = Progress()
    progress.total = total
    progress.add(done)
    for refusal in (progress.unfinished("m"), progress.out_of_time("m")):
        assert (refusal.message, refusal.retry_after) == (text, PAUSE)


def test_a_request_reads_that_its_model_is_in_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the runtime has begun, its seconds are what the refusal has."""
    now = iter([0, 12_000_000_000, 99])
    progress = Progress()
    progress.total = 10**6
    monkeypatch.setattr("handler.stores.progress.time", SimpleNamespace(perf_counter_ns=lambda: next(now) + 1))
    with progress.in_runtime():
        refusal = progress.unfinished("m")
    assert refusal.message == "model 'm' has been loading in its runtime for 12 s: try again"
    assert refusal.retry_after == 1


def test_a_request_reads_what_its_load_waits_for() -> None:
    """What holds the load up is what the refusal has, before and in the runtime."""
    progress = Progress()
    progress.waits_for = "the loads of other models"
    text = "model 'm' waits for the loads of other models: try again"
    assert progress.unfinished("m").message == text
    with progress.in_runtime():
        assert progress.unfinished("m").message == text


def test_a_turn_ends_once() -> None:
    """A load that gives way ends all its turns, except those that it keeps or that have ended."""
    ended: list[str] = []
    progress = Progress()
    first, second, third = (progress.turn(lambda name=name: ended.append(name)) for name in "abc")  # type: ignore[misc]
    first.end()
    assert second.keep()
    progress.give_way()
    progress.give_way()
    assert ended == ["a", "c"]
    assert not any(turn.keep() for turn in (first, second, third))


def test_what_takes_too_long_is_reported_by_another_thread() -> None:
    """A block that ends in time is not, and leaves no thread."""
    late, calls = threading.Event(), []
    with unless_done(0.0, late.set):
        assert late.wait(60)
    with unless_done(3600.0, lambda: calls.append(None)):
        timer = next(each for each in threading.enumerate() if isinstance(each, threading.Timer))
    assert (timer.is_alive(), calls) == (False, [])


def test_a_store_that_does_not_answer_in_time_is_still_loading() -> None:
    """The refusal names the repository, and the pause after which to try again."""
    refusal = Progress().unanswered()
    assert (refusal.message, refusal.retry_after) == ("the repository has not answered in time: try again", PAUSE)


def test_the_time_that_is_left_is_that_of_the_slice_in_which_the_load_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later look at the clock does not begin another slice."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("core.deadline.time", SimpleNamespace(monotonic=lambda: clock.now))
    progress = Progress(Deadline(102.0, beside=1.0))
    assert progress.left == 0.5
    clock.now += 0.75
    assert progress.left == -0.25
    assert progress.deadline.left == 1.25
    assert Progress().left == NEVER.left == float("inf")
