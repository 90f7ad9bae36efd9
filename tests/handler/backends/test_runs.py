"""handler.backends.runs: another thread may end work before it, during it and after it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import TimedOut
from handler.backends.runs import CURRENT, Run, beside, check, limited, stoppable


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The run of the test's thread, which gets its own run and its own options back afterwards."""
    made = Run()
    monkeypatch.setattr(CURRENT, "run", made)
    monkeypatch.setattr(CURRENT, "options", None)
    return made


def late() -> TimedOut:
    """Returns why a run is ended."""
    return TimedOut("late")


def options() -> Any:
    """Returns options like ONNX Runtime's."""
    return SimpleNamespace(terminate=False)


def test_a_run_that_was_ended_does_not_begin(run: Run) -> None:
    """The rule holds for a graph and for code."""
    run.end(late)
    run.end(AssertionError)
    called: list[Any] = []
    for work in (lambda: stoppable(called.append, options), check):
        with pytest.raises(TimedOut):
            work()
    assert called == []


def test_a_graph_that_is_ended_raises_why(run: Run) -> None:
    """The runtime's own error is not shown, and the next run does not get the ended one's options."""
    used: list[Any] = []

    def graph(given: Any) -> None:
        used.append(given)
        if len(used) == 1:
            run.end(late)
            assert given.terminate
            raise RuntimeError("terminated")

    with pytest.raises(TimedOut):
        stoppable(graph, options)
    CURRENT.run = Run()
    for _ in range(2):
        stoppable(graph, options)
    assert used[0] is not used[1]
    assert used[1] is used[2]
    CURRENT.run.end(late)
    assert not used[2].terminate


def test_a_failure_of_its_own_is_raised_as_it_is(run: Run) -> None:
    """The rule includes work that nothing would end."""
    for CURRENT.run in (run, None):
        with pytest.raises(KeyError):
            stoppable(lambda _: {}["k"], options)


def test_code_beside_a_loop_is_left_at_its_end(run: Run) -> None:
    """The wait ends; the code continues, and its result is dropped."""
    gate = threading.Event()
    threading.Timer(0.05, lambda: run.end(late)).start()
    with pytest.raises(TimedOut):
        beside(lambda: gate.wait(30))
    gate.set()
    CURRENT.run = None
    assert beside(lambda: 5) == 5
    with pytest.raises(KeyError):
        beside(lambda: {}["k"])


def test_limited_work_raises_its_own_failures_and_what_is_late() -> None:
    """Its run ends at the limit, so that it stops at its next step."""
    ended = threading.Event()

    def slow() -> None:
        try:
            while True:
                check()
        finally:
            ended.set()

    with pytest.raises(TimedOut):
        limited(slow, 0.05, late)
    assert ended.wait(30)
    done: list[int] = []
    for seconds in (None, 30.0):
        limited(lambda: done.append(1), seconds, late)
        with pytest.raises(KeyError):
            limited(lambda: {}["k"], seconds, late)
    assert done == [1, 1]
