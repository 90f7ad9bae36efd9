"""How far a load is, and until when it or a look at the repository may go on."""

import threading
import time
from typing import Final

from core.errors import StillLoading

MB: Final = 1_000_000
PAUSE: Final = 1.0
"""Seconds after which a load that ran out of time may be asked for again: what is there is kept."""


class Progress:
    """`total` and `done`: bytes, for anybody to read at any time. `deadline`: of time.monotonic(), None for no end."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self.total = 0
        self.done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count

    @property
    def left(self) -> float:
        """Seconds until the deadline, infinite without one; negative after it."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def out_of_time(self, model: str) -> StillLoading:
        """What a load raises that must stop here and goes on with the next call."""
        if not self.total:
            return StillLoading(f"model {model!r} is being looked up: try again", retry_after=PAUSE)
        far = f"{self.done // MB} of {-(-self.total // MB)} MB loaded"
        return StillLoading(f"model {model!r} is {far}: try again", retry_after=PAUSE)

    def unanswered(self) -> StillLoading:
        """What a store raises that cannot be listed or read in time."""
        return StillLoading("the repository has not answered in time: try again", retry_after=PAUSE)
