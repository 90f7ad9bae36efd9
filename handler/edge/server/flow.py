"""Which bytes of a connection are parsed when: few requests of it wait in memory, and no piece keeps the event loop.

A request that waits behind another one takes two kilobytes of objects, and its parsing 10 us: a hundred times the
eighteen bytes that it may have. uvicorn parses all that has come, and reads on after each answer.
"""

from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl

MOST_WAITING: Final = 32
"""Requests of a connection behind the one under way. Further ones are kept as received bytes."""
HEADS: Final = 4096
"""Bytes that are parsed at a time where a request may begin: at most 230 of them."""
BODIES: Final = 64 * 1024
"""The same number inside a body. uvicorn joins the pieces, so that short ones would cost time."""


class PacedFlow(FlowControl):
    """Reads on if uvicorn wants to, and no bytes are kept. `kept`: those that are not parsed yet."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.kept = memoryview(b"")
        self._wants_more = True

    def pause_reading(self) -> None:
        self._wants_more = False
        super().pause_reading()

    def resume_reading(self) -> None:
        self._wants_more = True
        if not self.kept:
            super().resume_reading()

    def keep(self, data: bytes) -> None:
        """Keeps further bytes. There are earlier ones only if data arrived in spite of the pause."""
        self.kept = memoryview(bytes(self.kept) + data if self.kept else data)

    def next(self, size: int) -> memoryview:
        """Returns the next bytes, which are kept no longer."""
        piece, self.kept = self.kept[:size], self.kept[size:]
        return piece

    def settle(self) -> None:
        """Stops reading while bytes are kept, and otherwise does what uvicorn wants."""
        if self.kept:
            super().pause_reading()
        elif self._wants_more:
            super().resume_reading()


class Lingering:
    """A transport for the answer to a body that is still coming. It closes when the body was read."""

    def __init__(self, connection: Any) -> None:
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.linger
