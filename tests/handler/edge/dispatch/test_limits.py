"""handler.edge.dispatch.limits: a thread that ends what takes too long in another one."""

from __future__ import annotations

import time
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import TimedOut
from handler.backends.runs import CURRENT, stoppable
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
            assert [watchdog.hurry(lambda: stoppable(lambda _: 7, options)) for _ in range(CALLS)] == [7] * CALLS
            time.sleep(0.2)  # its thread falls asleep


def test_work_ends_when_it_is_due() -> None:
    """The due time may become known only later."""
    begun = time.monotonic()
    answers = iter([float("inf"), float("inf"), begun])
    with closing(Watchdog()) as watchdog, pytest.raises(TimedOut, match="late"):
        watchdog.guard(lambda: stoppable(endless, options), lambda: next(answers, begun), lambda: TimedOut("late"))
