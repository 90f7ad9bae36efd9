"""The time limits of work that is not done in the pool: quick work in an event loop, and all work on Lambda."""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from core.errors import TimedOut
from core.operations import ModelSpec
from core.records import NamedTuple
from handler.backends.runs import CURRENT, Run

T = TypeVar("T")
LOOK_SECONDS: Final = 0.05
LOOP_SECONDS: Final = 0.05
"""Work in the event loop that takes longer is ended at the next look, and done again in a thread.

Work with large outputs is done again in a thread, too: the writing of an answer cannot be ended."""


class Hurried(Exception):
    """Ends work in the event loop that is not as short, or whose outputs are not as small, as always."""


def late(spec: ModelSpec, version: str, default: float | None) -> TimedOut:
    """Returns the refusal at the time limit. `default`: DRAGOMAN_TIMEOUT, which the model's own limit replaces."""
    where = "DRAGOMAN_TIMEOUT" if spec.timeout is None else "timeout in its model-settings.json"
    return TimedOut(
        f"model {spec.name!r} version {version} did not answer within {spec.timeout or default or 0:g} s, "
        f"the time limit of an inference ({where})"
    )


class _Guarded(NamedTuple):
    """`due`: when the run has to end, on time.monotonic(); infinity as long as that is not known."""

    run: Run
    due: Callable[[], float]
    late: Callable[[], Exception]


class Watchdog:
    """A thread that looks at one other thread twenty times a second, as long as that has anything to do."""

    def __init__(self) -> None:
        self._guarded: _Guarded | None = None
        self._until = 0.0
        self._hurried = _Guarded(Run(Hurried), lambda: self._until, Hurried)
        self._turn = 0
        self._closed = False
        self._sleeps = True
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None

    def hurry(self, call: Callable[[], T]) -> T:
        """Returns the result of quick work. Raises Hurried if it takes long, or makes much, and can be ended."""
        # A look that comes late may end the next call's work, which is only done again. `guard` would fail it.
        guarded = self._hurried
        if guarded.run.ended:
            guarded = self._hurried = guarded._replace(run=Run(Hurried))
        self._until = time.monotonic() + LOOP_SECONDS
        return self._guard(call, guarded)

    def guard(self, call: Callable[[], T], due: Callable[[], float], late: Callable[[], Exception]) -> T:
        """Returns the result of `call`, or lets it raise what `late` returns. `due`: see _Guarded."""
        return self._guard(call, _Guarded(Run(), due, late))

    def _guard(self, call: Callable[[], T], guarded: _Guarded) -> T:
        self._turn += 1
        self._guarded = guarded
        if self._sleeps:
            self._wake()
        CURRENT.run = guarded.run
        try:
            return call()
        finally:
            CURRENT.run = self._guarded = None

    def close(self) -> None:
        self._closed = True
        self._awake.set()

    def _wake(self) -> None:
        self._sleeps = False
        self._awake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="dragoman-watchdog", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        while True:
            self._awake.wait()
            if self._closed:
                return
            turn = -1
            while turn != self._turn or self._guarded is not None:
                turn = self._turn
                time.sleep(LOOK_SECONDS)
                guarded = self._guarded
                if guarded is not None and time.monotonic() > guarded.due():
                    guarded.run.end(guarded.late)
            self._awake.clear()
            self._sleeps = True
            if self._turn != turn or self._closed:  # `close`, or work that has begun since, saw this thread awake
                self._wake()
