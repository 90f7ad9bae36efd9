"""The progress of a load, and the deadline of a load or of a look at the repository."""

import threading
import time
from typing import Final

from core.errors import StillLoading

MB: Final = 1_000_000
PAUSE: Final = 1.0
"""Seconds after which a client may ask again for a load that ran out of time: what has arrived is kept."""


class Progress:
    """`total` and `done`: bytes; any thread may read them. `deadline`: on time.monotonic(), None for no end."""

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
        """Returns the seconds until the deadline: infinite without one, negative after it."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def out_of_time(self, model: str) -> StillLoading:
        """Returns the error of a load that stops at its deadline. The next call goes on with it."""
        if not self.total:
            return StillLoading(f"model {model!r} is being looked up: try again", retry_after=PAUSE)
        far = f"{self.done // MB} of {-(-self.total // MB)} MB loaded"
        return StillLoading(f"model {model!r} is {far}: try again", retry_after=PAUSE)

    def unanswered(self) -> StillLoading:
        """Returns the error of a store that did not answer before the deadline."""
        return StillLoading("the repository has not answered in time: try again", retry_after=PAUSE)
