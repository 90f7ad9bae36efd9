"""Bodies whose requests have their answers already: they are read on, and dropped.

A reset behind an answer says that the rest is not wanted (RFC 9113 8.1), but httpx and curl lose the answer with it.
"""

from typing import TYPE_CHECKING, Any

import zttp

if TYPE_CHECKING:
    from asyncio import TimerHandle


class UnreadBodies:
    """Those of one connection of HTTP/2.

    Of each `limits.drain` bytes are taken, within `limits.pause` seconds. After that its stream is reset.
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
        """Drops an event of such a body. Returns whether it was one."""
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
        """Forgets all of them: the connection has ended."""
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
