"""handler.lifecycle.single_flight: work on one model at a time."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from core.deadline import NEVER, Deadline, within
from core.errors import Fault, ModelUnavailable
from handler.edge.peers.own import finished
from handler.lifecycle.single_flight import Background, Here, Load, Pending, SingleFlight, settled
from handler.stores.progress import Progress


def test_a_flight_says_how_far_it_is() -> None:
    """A refusal names the look-up, the fetch or the runtime, with the fault and the pause of a load under way."""
    load = Load("m")
    assert load.unfinished().message == "model 'm' is being looked up: try again"
    progress = Progress()
    load.version = SimpleNamespace(progress=progress)  # type: ignore[assignment] # all that is asked of it
    progress.total = 300 * 10**6
    progress.add(120 * 10**6)
    assert load.unfinished().message == "model 'm' is 120 of 300 MB loaded: try again"
    assert load.load_ns == 0
    with progress.in_runtime():
        said = load.unfinished()
    assert said.message == "model 'm' has been loading in its runtime for 0 s: try again"
    assert (said.fault, said.retry_after) == (Fault.UNAVAILABLE, 1)
    assert load.load_ns == progress.load_ns > 0


def test_of_one_model_one_flight_is_under_way_and_the_others_come_in_turn() -> None:
    """A failure reaches only the requests that wait for it, and equal keys share one load."""
    done: list[str] = []
    gate = threading.Event()

    def work(name: str) -> Any:
        def run(_: Load) -> str:
            assert gate.wait(60)
            done.append(name)
            if name == "b":
                raise ValueError(name)
            return name

        return run

    with ThreadPoolExecutor(4) as executor:
        single = SingleFlight(executor)
        joined = [single.join(key, "m", work(key)) for key in "abcab"]
        assert joined[3:] == joined[:2]
        assert not single.run_if_idle("m", gate.set)
        assert single.join("d", "n", lambda _: "another model's").future.result(10) == "another model's"
        assert done == []
        gate.set()
        assert [joined[0].future.result(10), joined[2].future.result(10)] == ["a", "c"]
        assert isinstance(joined[1].future.exception(10), ValueError)
        assert done == ["a", "b", "c"]
        assert single.join("a", "m", work("a")) is not joined[0]


def test_who_needs_a_new_look_joins_none_that_has_begun() -> None:
    """It could have looked before a push. Those that wait for their turn will look later."""
    begun, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def work(name: str) -> Any:
        def run(_: Load) -> None:
            begun.set()
            assert gate.wait(60)
            done.append(name)

        return run

    with ThreadPoolExecutor(1) as executor:
        single = SingleFlight(executor)
        first = single.join("a", "m", work("first"), anew=True)
        assert begun.wait(60)
        second = single.join("a", "m", work("second"), anew=True)
        assert single.join("a", "m", work("third"), anew=True) is second
        assert single.join("a", "m", work("fourth")) is second
        gate.set()
        second.future.result(10)
        assert (first.future.done(), done) == (True, ["first", "second"])
        single.join("a", "m", work("fifth")).future.result(10)
        assert done == ["first", "second", "fifth"]


def test_what_is_done_at_once_has_its_turn_as_well() -> None:
    """Work that comes meanwhile waits, and is done even if the first fails."""
    with ThreadPoolExecutor(1) as executor:
        single = SingleFlight(executor)
        joined: list[Load] = []

        def work() -> None:
            joined.append(single.join("a", "m", lambda _: "later"))
            assert executor.submit(joined[0].future.done).result(10) is False
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            single.run_if_idle("m", work)
        assert joined[0].future.result(10) == "later"
        assert single.run_if_idle("m", int)


def test_who_waits_for_its_turn_when_the_server_ends_does_not_wait_for_ever() -> None:
    """Requests behind a running load, and behind one that never began, are cancelled."""
    executor = ThreadPoolExecutor(1)
    single = SingleFlight(executor)
    gate = threading.Event()
    first, second = (single.join(key, "m", lambda _: gate.wait(60)) for key in "ab")
    third, fourth = (single.join(key, "n", lambda _: None) for key in "cd")
    executor.shutdown(wait=False, cancel_futures=True)
    assert third.future.cancelled()
    assert fourth.future.cancelled()
    gate.set()
    assert first.future.result(10)
    with pytest.raises(CancelledError):
        second.future.result(10)
    with pytest.raises(RuntimeError):
        single.join("e", "o", int)


def test_a_flight_that_is_cancelled_as_it_is_submitted_ends() -> None:
    """The server may end at that moment."""

    class Ending(ThreadPoolExecutor):
        def submit(self, *_: Any) -> Any:
            future: Future[None] = Future()
            future.cancel()
            return future

    with Ending(1) as executor:
        load = SingleFlight(executor).join("a", "m", int)
    assert load.future.cancelled()


def test_who_waits_for_its_turn_is_told_how_far_the_one_ahead_is() -> None:
    """A waiting load reports the progress of the load ahead, then its own, and counts both."""
    progress, gate, own = Progress(), threading.Event(), threading.Event()
    progress.total = 300 * 10**6
    progress.add(120 * 10**6)

    def loads(load: Load) -> None:
        load.version = SimpleNamespace(progress=progress)  # type: ignore[assignment] # all that is asked of it
        own.set()
        assert gate.wait(60)
        with progress.in_runtime():
            pass

    with ThreadPoolExecutor(1) as executor:
        single = SingleFlight(executor)
        single.join("a", "m", loads)
        behind = [single.join(key, "m", lambda load: load.unfinished().message) for key in "bc"]
        assert own.wait(10)
        assert [load.unfinished().message for load in behind] == ["model 'm' is 120 of 300 MB loaded: try again"] * 2
        gate.set()
        assert [load.future.result(10) for load in behind] == ["model 'm' is being looked up: try again"] * 2
        assert behind[0].load_ns == progress.load_ns > 0
        assert behind[1].load_ns == 0


def test_a_server_answers_with_the_load_that_the_request_waits_for() -> None:
    """`run` raises Pending with the load of the key, and with whether its result is the operation's."""
    with ThreadPoolExecutor(1) as executor:
        single, gate = SingleFlight(executor), threading.Event()
        loads = []
        for final in (True, False):
            with pytest.raises(Pending) as pending:
                single.run("a", "m", lambda _: gate.wait(60), Background(), final=final)
            assert pending.value.final is final
            loads.append(pending.value.load)
        assert loads[0] is loads[1]
        gate.set()
        assert pending.value.future.result(10) is True


class Large:
    """Data that shows whether it is still in memory."""


@pytest.mark.parametrize("wait", [lambda call: settled(call, NEVER), finished])
def test_a_failed_load_keeps_neither_its_data_nor_the_requests_that_waited(wait: Callable[[Any], Any]) -> None:
    """No collector is needed for it. Each request gets a copy of the load's error."""
    seen: list[weakref.ref[Large]] = []

    def holding(large: Large, call: Callable[[], Any]) -> Any:
        seen.append(weakref.ref(large))
        return call()

    def fail() -> None:
        raise ModelUnavailable("gone", retry_after=3)

    def ask(single: SingleFlight) -> tuple[str, float | None]:
        try:
            run = partial(single.run, "a", "m", lambda _: holding(Large(), fail), Background(), final=True)
            holding(Large(), partial(wait, run))
        except ModelUnavailable as error:
            return error.message, error.retry_after
        raise AssertionError

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as executor:
            refusals = [ask(SingleFlight(executor)) for _ in range(2)]
        assert [ref() for ref in seen] == [None] * 4
    finally:
        gc.enable()
    assert refusals == [("gone", 3)] * 2


class Waiting(Background):
    """Notes the waits that it counts."""

    def __init__(self, deadline: Deadline = NEVER) -> None:
        super().__init__(deadline)
        self.waits: list[tuple[int, Load]] = []

    def waited(self, ns: int, load: Load) -> None:
        self.waits.append((ns, load))


def test_without_threads_the_work_is_done_at_once_and_counted_as_a_wait() -> None:
    """The work gets a load with the request's deadline, and its end counts even if it fails."""
    here, context, began = Here(), Waiting(within(60)), time.perf_counter_ns()
    assert here.run("a", "m", lambda load: load.deadline, context, final=False) is context.deadline

    def fail(_: Load) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        here.run("a", "m", fail, context, final=True)
    assert [load.deadline for _, load in context.waits] == [context.deadline] * 2
    assert 0 <= sum(ns for ns, _ in context.waits) <= time.perf_counter_ns() - began


def test_without_threads_nothing_is_ever_under_way() -> None:
    """What may be done at once is done."""
    done: list[str] = []
    assert Here().run_if_idle("m", lambda: done.append("m"))
    assert done == ["m"]


def test_work_that_no_request_waits_for_counts_nothing() -> None:
    """Its context takes every report and keeps none."""
    context = Background(within(60))
    before = dict(vars(context))
    context.waited(1, None)
    context.answered(None, 1, 2)
    context.streamed(None, 1, 2, success=True)
    context.failed(None)
    assert vars(context) == before
    assert Background().deadline is NEVER
