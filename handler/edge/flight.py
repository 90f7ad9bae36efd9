"""The bytes in flight: bodies that are being gathered, their tensors, and answers that wait for their client.

They have one budget for all protocols. Small bodies and answers do not count: the number of connections bounds them.
"""

import os
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from core.errors import ServerBusy
from core.wire import Part
from handler.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL: Final = 64 * 1024
"""Bytes from which a body or a message counts."""
SHARE: Final = 4
"""Without a setting, one part in so many of the memory is for requests. Models have the rest."""
WEIGHT: Final = 2
"""A body exists twice while its pieces are joined. The pieces are freed before tensors are made."""
WEIGHT_OF_ENCODED: Final = 8
"""Numbers in JSON are three to five times as long as their gzip."""
MB: Final = 1_000_000


class Flight:
    """The budget. `limit`: bytes, None without a limit. The event loop takes bytes, and any thread returns them."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._held = 0
        # Finalizers append to it, in any thread and in the middle of any statement: they must not wait for a lock.
        self._returned: deque[int] = deque()

    @property
    def held(self) -> int:
        """The bytes in flight now."""
        while self._returned:
            self._held -= self._returned.popleft()
        return self._held

    def admit(self, more: int, own: int = 0) -> None:
        """Raises ServerBusy if these bytes do not fit beside those in flight. One request alone always fits.

        `own`: the bytes that the same request holds.
        """
        if self.limit is None:
            return
        held = self.held
        if held > own and held + more > self.limit:
            raise ServerBusy(
                f"requests and answers in flight hold {held / MB:.0f} MB already: try again, or raise "
                "DRAGOMAN_BYTES_IN_FLIGHT",
                retry_after=1,
            )

    def fits(self, body: Part) -> bool:
        """Decides whether a message fits beside the bytes in flight."""
        return len(body) < SMALL or self.limit is None or self.held + WEIGHT * len(body) <= self.limit

    def take(self, size: int) -> None:
        self._held += size

    def give_back(self, size: int) -> None:
        self._returned.append(size)

    def waiting(self, body: Part) -> AbstractContextManager[None]:
        """Counts a whole message while the block runs. The message waits until it fits beside others."""
        return self.holding(len(body) if len(body) >= SMALL else 0)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Counts bytes that exist already while the block runs."""
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)


class Lease:
    """The bytes of one body in the budget. `weight`: how often each byte of the body counts."""

    __slots__ = ("_flight", "_held", "_weight")

    def __init__(self, flight: Flight, weight: int) -> None:
        self._flight = flight
        self._weight = weight
        self._held = 0

    def grow(self, size: int) -> None:
        """Holds a body that has this size by now. Raises ServerBusy."""
        more = self._weight * size - self._held
        if size >= SMALL:
            self._flight.admit(more, self._held)
            self._flight.take(more)
            self._held += more

    def kept(self, body: "bytes | NDArray[np.uint8]") -> memoryview:
        """Returns the body, which counts until nothing uses its memory any more."""
        if not self._held:
            return memoryview(body)  # type: ignore[arg-type] # numpy's arrays are buffers
        array = np.frombuffer(body, np.uint8)
        weakref.finalize(array, self._flight.give_back, self._held).atexit = False
        self._held = 0
        return array.data

    def end(self) -> None:
        """Returns the bytes, unless they are kept."""
        if self._held:
            self._flight.give_back(self._held)
            self._held = 0


NO_LIMIT: Final = Flight(None)


def flight_of(settings: Settings) -> Flight:
    """Returns the budget of a server."""
    wanted = settings.bytes_in_flight
    if wanted is None:
        wanted = (settings.memory_limit or machine_memory()) // SHARE
    return Flight(wanted or None)


def machine_memory() -> int:
    """Returns the bytes of memory of this machine, 0 where the system does not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
