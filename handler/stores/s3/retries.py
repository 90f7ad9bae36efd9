"""How often something is tried and after which pauses, and how a fetch can end."""

import random
from typing import Final

from handler.stores.s3.answers import Broken, Refused

TRIES: Final = 6
"""In a row without a single byte."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0


class Replaced(Exception):
    """The object is another one than was listed, or than the one that was begun."""


class Failed(Exception):
    """Refused, or tried often enough. `path` of the file, `reason` of the last try."""

    def __init__(self, path: str, reason: Broken | Refused) -> None:
        super().__init__(path)
        self.path = path
        self.reason = reason


class Damaged(Exception):
    """Twice another content than the store's checksum says. `path` of the file."""

    def __init__(self, path: str, algorithm: str) -> None:
        super().__init__(path)
        self.path = path
        self.algorithm = algorithm


class OutOfTime(Exception):
    """The deadline has passed."""


class Stopped(Exception):
    """Another stream has failed, or goes on alone."""


class Tries:
    """Counts what fails in a row. Pauses double, with full jitter: many instances that start do not come in step."""

    def __init__(self, most: int = TRIES) -> None:
        self._most = most
        self._failed = 0

    def pause(self, *, moved: bool = False) -> float | None:
        """Seconds until the next one, None if there shall be none. `moved`: this one brought something."""
        self._failed = 1 if moved else self._failed + 1
        if self._failed >= self._most:
            return None
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failed - 1))
        return random.uniform(0, longest)  # noqa: S311 - jitter is no secret
