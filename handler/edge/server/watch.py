"""Looks at all connections of a server about once a second, for those without progress and those that are idle.

One look at all connections is cheaper than a timer for each request, and than one behind each answer. A request that is
answered at once costs nothing.
"""

import asyncio
import logging
from collections import deque
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from core.records import NamedTuple
from handler.edge.server.limits import Limits

log = logging.getLogger(__name__)
LONGEST_PERIOD: Final = 1.0
SHORTEST_PERIOD: Final = 0.02
SORT_SECONDS: Final = 0.1
"""Seconds between two looks for idle connections: sorting thousands of them for each new one would be slow."""
FRESH_SECONDS: Final = 1.0
"""From this age on, a connection without a whole head is closed for a new one."""


class Stage(NamedTuple):
    """The step at which a connection is. An equal stage later: nothing moved. `seconds`: the longest for that."""

    name: str
    mark: int
    seconds: float


def answering(taken: int, limits: Limits) -> Stage:
    """Returns the stage of a connection whose client has to read. `taken`: bytes that it has read so far."""
    return Stage("answer", taken // limits.least, limits.pause)


class Watched(Protocol):
    """A connection. `stage`: where it is now, None where no limit holds. `is_idle`: it has no request."""

    seen: Stage | None
    since: float
    transport: Any

    def stage(self) -> Stage | None: ...
    def give_up(self, stage: Stage) -> None: ...
    def is_idle(self) -> bool: ...
    def leave(self) -> None: ...


class Watch:
    """All connections of one server. `now`: seconds of looks until now.

    `requests`: those of HTTP/2 under way, of all connections together.
    """

    def __init__(self, connections: set[Any], limits: Limits, idle: float, loop: asyncio.AbstractEventLoop) -> None:
        """`idle`: seconds after which idle connections are closed."""
        self._connections = connections
        self._loop = loop
        shortest = min(limits.head_seconds, limits.pause, idle)
        self._period = min(LONGEST_PERIOD, max(SHORTEST_PERIOD, shortest / 8))
        self._runs = False
        self._idle: deque[Watched] = deque()
        self._sorted = -SORT_SECONDS
        self.now = 0.0
        self.requests = 0

    def begin(self) -> None:
        """Looks from now on, until the last connection has ended."""
        if not self._runs:
            self._runs = True
            self._loop.call_later(self._period, self._look)

    def _look(self) -> None:
        self.now += self._period  # not the clock: while this process stood still, data of clients may wait to be read
        for connection in tuple(self._connections):
            try:
                look(connection, self.now)
            except Exception:
                log.exception("a look at a connection failed: it is closed")
                connection.transport.abort()
        self._runs = bool(self._connections)
        if self._runs:
            self._loop.call_later(self._period, self._look)

    def make_room(self) -> bool:
        """Closes the connection that is idle for longest. Returns whether there was one."""
        clock = self._loop.time()
        if not self._idle and clock - self._sorted >= SORT_SECONDS:
            self._sorted = clock
            self._idle.extend(sorted((each for each in self._connections if leaves(each, self.now)), key=_since))
        while self._idle:
            connection = self._idle.popleft()
            if leaves(connection, self.now):
                connection.leave()
                return True
        return False


def look(connection: Watched, now: float) -> None:
    """Compares where the connection is with where it was, and gives it up if it stays for too long."""
    stage = connection.stage()
    if stage is None or stage != connection.seen:
        connection.seen, connection.since = stage, now
    elif now - connection.since >= stage.seconds:
        connection.give_up(stage)


def leaves(connection: Watched, now: float) -> bool:
    """Decides whether it can be closed for a new connection: it is idle, or its head is too slow."""
    if connection.is_idle():
        return True
    stage = connection.stage()
    if stage is None or stage.name != "head":
        return False
    return stage == connection.seen and now - connection.since >= FRESH_SECONDS


def _since(connection: Watched) -> float:
    return connection.since


_WATCHES: Final[WeakKeyDictionary[Any, Watch]] = WeakKeyDictionary()


def watch_of(state: Any, limits: Limits, idle: float, loop: asyncio.AbstractEventLoop) -> Watch:
    """Returns the watch of a server. `state`: uvicorn's state of the server, which all its connections have.

    `idle`: seconds after which idle connections are closed.
    """
    found = _WATCHES.get(state)
    if found is None:
        found = _WATCHES[state] = Watch(state.connections, limits, idle, loop)
    return found
