"""How far one load is: bytes of its files first, then its runtime; until when it may go on; what others wait for."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import StillLoading

MB: Final = 1_000_000
PAUSE: Final = 1.0
"""Seconds after which a load that ran out of time can be requested again. Fetched bytes are kept."""
OTHERS: Final = "the loads of other models"


class Turn:
    """A load's part in what only some loads can have at the same time. Any thread may end it; it ends once."""

    __slots__ = ("_ends",)

    def __init__(self, end: Callable[[], None]) -> None:
        self._ends = [end]

    def end(self) -> None:
        """Lets another load have its turn."""
        if (end := self._taken()) is not None:
            end()

    def keep(self) -> bool:
        """Returns False if the turn has ended; otherwise its owner ends it, and `end` does nothing any more."""
        return self._taken() is not None

    def _taken(self) -> Callable[[], None] | None:
        try:
            return self._ends.pop()
        except IndexError:  # another thread was earlier
            return None


@contextmanager
def unless_done(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Calls `call` in another thread if the block takes that many seconds. The thread has ended when the block has."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Progress:
    """One thread loads, and any other may read. `total`, `done`: bytes. `deadline`: of the whole load.

    `fetched`: bytes that this load has fetched; `done` counts those that an earlier one has left, too. `waits_for`:
    what holds the load up, in words for the repository index; empty while nothing does. `before_ns`: what the runtimes
    of other models took, which this load waited for. `turns`: what other loads wait for.
    """

    __slots__ = (
        *("_begun", "_ended", "_lock", "_slice", "before_ns"),
        *("deadline", "done", "fetched", "total", "turns", "waits_for"),
    )

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self._slice = deadline if deadline is NEVER else deadline.slice()
        self.total = 0
        self.done = 0
        self.fetched = 0
        self.waits_for = ""
        self.turns: list[Turn] = []
        self.before_ns = 0
        self._begun = 0
        self._ended = 0
        self._lock = threading.Lock()

    def turn(self, end: Callable[[], None]) -> Turn:
        """Returns a turn of this load, which has just begun."""
        turn = Turn(end)
        self.turns.append(turn)
        return turn

    def give_way(self) -> None:
        """Lets the loads of other models go on, while this one goes on as well."""
        for turn in self.turns:
            turn.end()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count
            self.fetched += max(0, count)

    @property
    def left(self) -> float:
        """Seconds until a look or a fetch has to stop, infinite without a deadline; negative after it."""
        return self._slice.left

    @contextmanager
    def in_runtime(self) -> Iterator[None]:
        """Measures the runtime's part of the load."""
        self._begun, self._ended = time.perf_counter_ns(), 0
        try:
            yield
        finally:
            self._ended = time.perf_counter_ns()

    @property
    def load_ns(self) -> int:
        """Nanoseconds that the runtime took, or has taken so far."""
        return self.before_ns + ((self._ended or time.perf_counter_ns()) - self._begun if self._begun else 0)

    def unfinished(self, model: str) -> StillLoading:
        """Returns the refusal of a request that can wait no longer."""
        if self.waits_for:
            return StillLoading(f"model {model!r} waits for {self.waits_for}: try again", retry_after=PAUSE)
        if self._begun:
            seconds = self.load_ns / 1e9
            text = f"model {model!r} has been loading in its runtime for {seconds:.0f} s: try again"
            return StillLoading(text, retry_after=1)
        return self.out_of_time(model)

    def out_of_time(self, model: str) -> StillLoading:
        """Returns the error of a fetch that has to stop here. The next call continues from here."""
        if not self.total:
            return StillLoading(f"model {model!r} is being looked up: try again", retry_after=PAUSE)
        far = f"{self.done // MB} of {-(-self.total // MB)} MB loaded"
        return StillLoading(f"model {model!r} is {far}: try again", retry_after=PAUSE)

    def unanswered(self) -> StillLoading:
        """Returns the error of a store that cannot be listed or read in time."""
        return StillLoading("the repository has not answered in time: try again", retry_after=PAUSE)
