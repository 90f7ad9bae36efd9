"""The deadline of a request: one value that every call passes on."""

import math
import time
from typing import Final

from core.records import NamedTuple

SLICE_SECONDS: Final = 1.0
"""The most that a request spends on a look at the repository, or on a fetch, while a loaded version could answer it."""
LONGEST_MARGIN: Final = 1.0

LONGEST_WAIT: Final = 366 * 86400.0
"""Seconds beyond which a deadline counts as none. A lock cannot wait for the centuries that gRPC can state."""


class Deadline(NamedTuple):
    """A point in time. `at`: seconds on time.monotonic(); infinity means that nothing ends the wait.

    `init`: no request waits yet (Lambda's init phase). `beside`: a loaded version could answer the request; how many
    seconds its runtime took to load it. None where no version is loaded. `process`: when the process may end, if
    `at` is a client's deadline, which does not end it.
    """

    at: float = math.inf
    init: bool = False
    beside: float | None = None
    process: float | None = None

    @property
    def left(self) -> float:
        """Seconds until the deadline; infinite without an end, negative after it."""
        return self.at - time.monotonic()

    @property
    def is_never(self) -> bool:
        return self.at == math.inf

    @property
    def process_left(self) -> float:
        """Seconds until the process may end."""
        return self.left if self.process is None else self.process - time.monotonic()

    def with_client(self, client: "Deadline") -> "Deadline":
        """Returns the earlier of this deadline, the process's, and its client's."""
        if self.at <= client.at:
            return self
        return client if self.is_never else client._replace(process=self.at)

    def earlier(self, seconds: float) -> float:
        """Returns the number of seconds that may pass from now on, at most `seconds`."""
        return min(seconds, self.left)

    def slice(self) -> "Deadline":
        """Returns the deadline of one look or one fetch that begins now."""
        if self.beside is None or self.is_never:
            return self
        left = self.left
        return self._replace(at=self.at - left + min(left / 4, SLICE_SECONDS))


NEVER: Final = Deadline()
SCOPE_KEY: Final = "dragoman.deadline"
"""The key under which an edge passes a request's deadline on in ASGI's scope."""


def within(seconds: float, *, init: bool = False) -> Deadline:
    """Returns the deadline that ends `seconds` from now; one without an end if that is longer than LONGEST_WAIT."""
    return Deadline(time.monotonic() + seconds if seconds <= LONGEST_WAIT else math.inf, init)


def answerable(seconds: float) -> float:
    """Returns how many of `seconds` may be spent waiting, so that an answer still arrives within them.

    A fetch stops within a quarter of a second, and an answer takes milliseconds to write.
    """
    return seconds - min(LONGEST_MARGIN, seconds / 4)
