"""How far one load is: bytes of its files first, then its runtime; and until when it may go on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import StillLoading

MB: Final = 1_000_000
PAUSE: Final = 1.0
"""Seconds after which a load that ran out of time can be requested again. Fetched bytes are kept."""


class Progress:
    """One thread loads, and any other may read. `total`, `done`: bytes. `deadline`: of the whole load.

    `fetched`: bytes that this load has fetched; `done` counts those that an earlier one has left, too. `waits_for`:
    what holds the load up, in words for the repository index; empty while nothing does. `before_ns`: what the runtimes
    of other models took, which this load waited for.
    """

    __slots__ = (
        *("_begun", "_ended", "_lock", "_slice", "before_ns"),
        *("deadline", "done", "fetched", "total", "waits_for"),
    )

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self._slice = deadline if deadline is NEVER else deadline.slice()
        self.total = 0
        self.done = 0
        self.fetched = 0
        self.waits_for = ""
        self.before_ns = 0
        self._begun = 0
        self._ended = 0
        self._lock = threading.Lock()

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
