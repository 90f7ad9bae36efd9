"""The number of attempts, the pauses between them, and the ways in which a fetch can fail."""

import logging
import random
from collections.abc import Callable
from time import sleep
from typing import Final, TypeVar

from handler.stores.progress import Progress
from handler.stores.transfer.answers import Broken, StoreRefused

log = logging.getLogger(__name__)
T = TypeVar("T")
TRIES: Final = 6
"""Attempts in a row without a single byte."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0


class Replaced(Exception):
    """The object is not the listed one any more, or not the one that the fetch began with."""


class Failed(Exception):
    """The store refused, or every attempt failed. `path`: of the file. `reason`: of the last attempt."""

    def __init__(self, path: str, reason: Broken | StoreRefused) -> None:
        super().__init__(path)
        self.path = path
        self.reason = reason


class Damaged(Exception):
    """The file failed its checksum twice. `path`: of the file. `algorithm`: of the checksum."""

    def __init__(self, path: str, algorithm: str) -> None:
        super().__init__(path)
        self.path = path
        self.algorithm = algorithm


class Tampered(Exception):
    """The file does not have the digest that it must have. `path`: of the file. `final`: the store sent it rightly."""

    def __init__(self, path: str, *, final: bool) -> None:
        super().__init__(path)
        self.path = path
        self.final = final


class OutOfTime(Exception):
    """The deadline has passed."""


class StreamStopped(Exception):
    """The stream ends: another one has failed, or does its work."""


class Tries:
    """Counts failures in a row. Pauses double, with full jitter, so that many instances do not retry in step."""

    def __init__(self, most: int = TRIES) -> None:
        self._most = most
        self._failed = 0

    def pause(self, *, moved: bool = False, crowded: bool = False) -> float | None:
        """Returns the seconds until the next attempt, None after the last. `moved`: this attempt brought bytes.

        `crowded`: the store wants fewer requests, for which it is asked a few seconds longer.
        """
        self._failed = 1 if moved else self._failed + 1
        if self._failed >= (TRIES if crowded else self._most):
            return None
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failed - 1))
        return random.uniform(0, longest)  # noqa: S311 - jitter is not a secret


def tried(ask: Callable[[], T], progress: Progress, uri: str, most: int) -> T:
    """Calls `ask` until it succeeds. Raises Failed for a refusal or after `most` failures, OutOfTime.

    `uri`: names the store in log lines.
    """
    tries = Tries(most)
    while progress.left > 0:
        try:
            return ask()
        except (Broken, StoreRefused) as reason:
            log.warning("%s: %s", uri, reason)
            pause = tries.pause(crowded=reason.crowded) if isinstance(reason, Broken) else None
            if pause is None:
                raise Failed("", reason) from reason
            sleep(max(0.0, min(pause, progress.left)))
    raise OutOfTime
