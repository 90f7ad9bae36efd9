"""The bounds of a server's connections, from the settings of the process."""

import sys
from functools import cache
from typing import Final

from core.records import NamedTuple
from handler.settings import Settings

MOST_CONNECTIONS: Final = 10_000
"""The limit where descriptors do not set a lower one. An idle connection takes about 8 kB."""
RESERVE: Final = 64
"""The least number of descriptors for files, S3 and gRPC."""
LEAST_RATE: Final = 1024
"""Bytes a second of a body or an answer, over the pause. Fewer count as none: one a second would hold the memory."""


class Limits(NamedTuple):
    """`head`: bytes of a request line with its headers. `head_seconds`: until a head is complete.

    `pause`: seconds without progress of a body or of an answer. `drain`: bytes of a body that are read after its
    answer, for a client that reads the answer only then. `connections`: the most at a time.
    """

    head: int
    head_seconds: float
    pause: float
    drain: int
    connections: int

    @property
    def least(self) -> int:
        """The bytes of a body that have to come, and of an answer that have to be read, within the pause."""
        return max(1, int(self.pause * LEAST_RATE))


class WaitLimit:
    """`left`: seconds for which a client may still let the server wait. Each `least` of bytes begin the time anew."""

    def __init__(self, seconds: float, least: int) -> None:
        self.left = seconds
        self._seconds = seconds
        self._least = least
        self._bytes = 0

    def count(self, size: int, seconds: float) -> None:
        """Counts bytes that moved, and the time that the server has waited for them."""
        self._bytes += size
        self.left -= seconds
        if self._bytes >= self._least:
            self._bytes, self.left = 0, self._seconds


@cache
def limits() -> Limits:
    """Returns the bounds that the environment sets. Raises InvalidSettings."""
    return of(Settings.from_env())


def of(settings: Settings) -> Limits:
    connections = settings.connections or most_connections(descriptors())
    times = settings.head_timeout, settings.pause_timeout
    return Limits(settings.max_header_bytes, *times, 2 * settings.max_body_bytes, connections)


def most_connections(descriptors: int) -> int:
    """Returns how many connections leave room for files, S3 and gRPC: three quarters of the descriptors."""
    return max(1, min(MOST_CONNECTIONS, descriptors - max(RESERVE, descriptors // 4)))


def descriptors() -> int:
    """Returns the number of files and connections that this process may open."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource  # noqa: PLC0415 - Windows has none

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft
