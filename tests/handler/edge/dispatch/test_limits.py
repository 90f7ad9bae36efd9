"""handler.edge.dispatch.limits: a thread that ends what takes too long in another one."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from core.errors import TimedOut
from handler.backends.runs import CURRENT, LARGE, stoppable
from handler.edge.dispatch.limits import Hurried, Watchdog

CALLS = 2000


@pytest.fixture(autouse=True)
def thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's thread, which gets its own options back: the next test in it may run a real graph."""
    monkeypatch.setattr(CURRENT, "options", None)


def endless(options: Any) -> None:
    """Stands for a runtime, which looks at its options."""
    while not options.terminate:
        time.sleep(0.001)
    raise RuntimeError("terminated")


def options() -> Any:
    """Returns options like ONNX Runtime's."""
    return SimpleNamespace(terminate=False)


def test_work_that_is_no_longer_quick_is_ended() -> None:
    """The next quick work of the thread is not ended, and neither is work after a pause."""
    with closing(Watchdog()) as watchdog:
        for _ in range(2):
            with pytest.raises(Hurried):
                watchdog.hurry(lambda: stoppable(endless, options))
            assert [watchdog.hurry(lambda: stoppable(lambda _: (7,), options)) for _ in range(CALLS)] == [(7,)] * CALLS
            time.sleep(0.2)  # its thread falls asleep


def test_quick_work_that_makes_much_is_ended() -> None:
    """Writing it would keep the event loop for longer than the inference has taken."""
    with closing(Watchdog()) as watchdog:
        for half, is_large in ((LARGE // 2, False), (LARGE // 2 + 1, True), (1, False)):
            outputs = [np.zeros(half), np.zeros(half)]
            with pytest.raises(Hurried) if is_large else nullcontext():
                assert watchdog.hurry(lambda made=outputs: stoppable(lambda _: made, options)) is outputs
        outputs = [np.zeros(LARGE + 1)]
        made = watchdog.guard(lambda: stoppable(lambda _: outputs, options), lambda: math.inf, Hurried)
        assert made is outputs


def test_work_ends_when_it_is_due() -> None:
    """The due time may become known only later."""
    begun = time.monotonic()
    answers = iter([float("inf"), float("inf"), begun])
    with closing(Watchdog()) as watchdog, pytest.raises(TimedOut, match="late"):
        watchdog.guard(lambda: stoppable(endless, options), lambda: next(answers, begun), lambda: TimedOut("late"))


def test_a_late_look_does_not_end_the_next_work() -> None:
    """The watchdog finds work overdue, and gets its turn again when the thread does other work."""
    looks, proceeds = threading.Event(), threading.Event()

    def due() -> float:
        looks.set()
        proceeds.wait(10)
        return -math.inf

    def work(options: Any) -> bool:
        proceeds.set()
        time.sleep(0.2)
        return bool(options.terminate)

    with closing(Watchdog()) as watchdog:
        assert watchdog.guard(lambda: stoppable(lambda _: looks.wait(10), options), due, Hurried)
        assert not watchdog.guard(lambda: stoppable(work, options), lambda: math.inf, Hurried)


def test_a_closed_watchdog_has_no_thread() -> None:
    """Also if it is closed while its thread looks at work that has just ended."""
    for seconds in (0.0, 0.01, 0.2):
        watchdog = Watchdog()
        watchdog.hurry(lambda: None)
        time.sleep(seconds)
        thread = watchdog._thread
        watchdog.close()
        assert thread is not None
        thread.join(10)
        assert not thread.is_alive()
