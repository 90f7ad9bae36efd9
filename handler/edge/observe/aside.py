"""Work that a function's answer waits for, but not for long: nothing runs after the answer.

A receiver's own limits are for each address and each piece that it sends. They add up, and do not know when the
function's time ends.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from handler.backends.runs import limited

T = TypeVar("T")


class Aside:
    """One piece of work at a time. `seconds`: the most that its caller waits."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._busy = threading.Lock()

    def run(self, work: Callable[[], T], until: float) -> T:
        """Returns the work's result. Raises TimeoutError if it takes too long, or if earlier work still goes on.

        It raises RuntimeError if no thread can start. `until`: on time.monotonic(), when the answer has to leave.
        """
        if not self._busy.acquire(blocking=False):
            raise TimeoutError("earlier ones are still being sent")

        has_begun = False

        def done() -> T:
            nonlocal has_begun
            has_begun = True
            try:
                return work()
            finally:
                self._busy.release()

        try:
            return limited(done, left(until, self._seconds), _late)
        except RuntimeError:
            if not has_begun:  # the thread did not start: the process has too many
                self._busy.release()
            raise


def left(until: float, most: float) -> float:
    """Returns how many seconds a thread may wait, `most` or fewer."""
    return max(0.0, min(most, until - time.monotonic()))


def _late() -> TimeoutError:
    return TimeoutError("it took too long")
