"""Reads and drops the rest of a body whose request already has its answer.

RFC 9113 8.1 permits a server to reset the stream right after the answer, but httpx and curl then lose the answer.
"""

from typing import TYPE_CHECKING, Any

import zttp

if TYPE_CHECKING:
    from asyncio import TimerHandle


class UnreadBodies:
    """The bodies of one HTTP/2 connection that nobody reads.

    Each may have `limits.drain` further bytes within `limits.pause` seconds. Then its stream is reset.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._left: dict[int, int] = {}
        self._timers: dict[int, TimerHandle] = {}

    def add(self, stream_id: int) -> None:
        connection = self._connection
        self._left[stream_id] = connection.limits.drain
        self._timers[stream_id] = connection.loop.call_later(connection.limits.pause, self._reset, stream_id)

    def took(self, event: Any) -> bool:
        """Drops an event that belongs to an unread body. Returns whether it did."""
        stream_id = event.stream_id
        if stream_id not in self._left:
            return False
        if type(event) is not zttp.Data:
            self._forget(stream_id)
        else:
            self._left[stream_id] -= len(event.data)
            if self._left[stream_id] < 0:
                self._reset(stream_id)
        return True

    def close(self) -> None:
        """Forgets all bodies. The connection has ended."""
        for stream_id in [*self._left]:
            self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        del self._left[stream_id]
        self._timers.pop(stream_id).cancel()

    def _reset(self, stream_id: int) -> None:
        self._forget(stream_id)
        connection = self._connection
        if not connection.transport.is_closing():
            connection.conn.stream(stream_id).reset(zttp.H2ErrorCode.NO_ERROR)
            connection.flush()
