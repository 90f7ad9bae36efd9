"""Decides when a load that failed may be tried again, and what the log says of it."""

import time
from typing import Final

from core.errors import ServerBusy, ServingError, copied

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries of a load that fails: doubling, so that a broken model costs its callers little."""
MOST_DOUBLINGS: Final = 10


class Backoff:
    """`failure`: the last one, None after a success."""

    __slots__ = ("_count", "_until", "failure")

    def __init__(self) -> None:
        self.failure: ServingError | None = None
        self._count = 0
        self._until = 0.0

    def check(self) -> None:
        """Raises the last failure again within the pause after it. A lack of memory causes no pause."""
        failure, wait = self.failure, self.left
        if failure is not None and wait > 0 and not isinstance(failure, ServerBusy):
            raise copied(failure, wait)

    def fail(self, error: ServingError) -> float:
        """Returns the seconds until the next try. A lack of memory is not the model's fault and counts for nothing."""
        self.failure = copied(error)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._count)
        self._until = time.monotonic() + pause
        if not isinstance(error, ServerBusy):
            self._count = min(self._count + 1, MOST_DOUBLINGS)
        return pause

    @property
    def left(self) -> float:
        """Seconds until the next try; not positive if it may be tried now."""
        return 0.0 if self.failure is None else self._until - time.monotonic()


def reason(error: ServingError) -> str:
    """Returns the end of a log line: the failure's message, unless the log has it."""
    return "" if error.is_logged else f": {error.message}"


def named(error: ServingError, name: str, number: int) -> str:
    """Returns the text of a load's failure, which names the model once."""
    if error.message.startswith(f"model {name!r} "):
        return error.message
    return f"model {name!r} version {number} cannot be loaded: {error.message}"
