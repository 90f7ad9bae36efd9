"""Reads the body of a request into its place in memory before the request begins.

The parser would copy each piece, and the edge would join the copies. Meanwhile a connection has this protocol. If the
body ends early, or does not fit, the request begins with the part of its body that has arrived, as any other request.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from core.errors import ServerBusy
from core.wire import Part
from handler.edge.exchange import Room


class ArrivingBody(asyncio.BufferedProtocol):
    """The protocol of a connection until a body is in its room.

    `head`: the received head. b"" if it did not come alone, or with its body alone. `known`: the application's form of
    a head that the parser has not had.
    """

    def __init__(self, connection: Any, room: Room, head: bytes = b"", known: Any = None) -> None:
        self.room = room
        self.head = head
        self.known = known
        self._connection = connection
        self._raw: asyncio.Transport = connection.joined.raw
        self._size = self._parsed = 0

    def begin(self, parsed: Sequence[Part], kept: Part) -> None:
        """Takes the bytes that the connection has received, and reads the others. `parsed`: the parser has had them."""
        view = self.room.view
        for piece in (*parsed, kept):
            end = self._size + len(piece)
            view[self._size : end] = piece
            self._size = end
        self._parsed = self._size - len(kept)
        if self._goes_on():
            self._switch(self)

    def follows(self, data: bytes) -> None:
        """Notes the data at whose end the body has begun."""
        self.head = data[: len(data) - self._size]

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.room.view[self._size :]

    def buffer_updated(self, size: int) -> None:
        self._connection.received += size
        self._connection.had_turn = False
        self._size += size
        self._goes_on()

    def _goes_on(self) -> bool:
        """Counts the bytes. Returns whether more are to come; otherwise the request has its body, or has begun."""
        try:
            self.room.grow(self._size)
        except ServerBusy:
            self.stop()
            return False
        if self._size < len(self.room.view):
            return True
        self._leave()
        self._connection.arrived(self)
        return False

    def stop(self) -> None:
        """Begins the request now. The connection reads the rest of the body."""
        self._leave()
        self._connection.begin_early(self, bytes(self.room.view[self._parsed : self._size]))
        self.room.end()

    def _leave(self) -> None:
        self._connection.arriving = None
        if self._raw.get_protocol() is self:
            self._switch(self._connection)

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        """Changes the protocol. uvloop looks at its kind only when it begins to read."""
        raw = self._raw
        if raw.is_closing():
            raw.set_protocol(protocol)
            return
        raw.pause_reading()
        raw.set_protocol(protocol)
        raw.resume_reading()

    # -- events of the connection's transport -------------------------------------------------------------------------

    def eof_received(self) -> bool | None:
        self.stop()
        ends: bool | None = self._connection.eof_received()
        return ends

    def connection_lost(self, error: Exception | None) -> None:
        self.stop()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
