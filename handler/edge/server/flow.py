"""Which bytes of a connection are parsed when: few requests of it wait in memory, and no piece keeps the event loop.

A request that waits behind another one takes two kilobytes of objects, and its parsing 10 us: a hundred times the
eighteen bytes that it may have. uvicorn parses all that has come, and reads on after each answer.
"""

import asyncio
import sys
from typing import Any, Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

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


def add(piece: bytes, cycle: Any, flow: FlowControl) -> None:
    """Gives a piece of a body to a request.

    A piece that is alone stays as it is, and the application gets it: uvicorn would copy it twice.
    """
    if not cycle.body:
        cycle.body = piece
    else:
        if isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body)
        cycle.body += piece
    if len(cycle.body) > HIGH_WATER_LIMIT:
        flow.pause_reading()
    cycle.message_event.set()


class JoinedWrites:
    """A transport that sends together what is written in one turn of the event loop: one segment wakes a client once.

    uvicorn writes the parts of an answer one by one, and event loops send each of them when it is written. An answer
    that is complete does not wait for the end of the turn: its protocol calls `flush`. `raw`: the loop's transport.
    """

    def __init__(self, raw: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.raw = raw
        self._loop = loop
        self._kept: list[bytes] = []
        self._size = self._sent = 0
        self.abort = raw.abort
        self.can_write_eof = raw.can_write_eof
        self.is_closing = raw.is_closing
        self.pause_reading = raw.pause_reading
        self.resume_reading = raw.resume_reading

    def write(self, data: bytes) -> None:
        if not self._kept:
            self._loop.call_soon(self.flush)
        self._kept.append(data)
        self._size += len(data)
        if self._size >= BODIES:
            self.flush()

    def send(self, whole: bytes) -> None:
        """Sends a whole answer, behind what is kept."""
        self.flush()
        self._sent += len(whole)
        self.raw.write(whole)

    def flush(self) -> None:
        """Sends what is kept, if the connection is still open.

        asyncio's `writelines` has defects in Python 3.12 and 3.13: it never ends with an empty piece, and 3.13.1 and
        earlier do not pause a protocol whose client does not read (CVE-2024-12254).
        """
        kept, size = self._kept, self._size
        if not kept:
            return
        self._kept, self._size = [], 0
        if self.raw.is_closing():
            return
        self._sent += size
        for piece in kept if size >= BODIES else (b"".join(kept),):
            self.raw.write(piece)

    def get_write_buffer_size(self) -> int:
        return self._size + self.raw.get_write_buffer_size()

    def taken(self) -> int | None:
        """Returns how many bytes the client has taken so far; None if none wait here.

        The system takes further bytes only when a third of its buffer is free, which can be a megabyte. Until then its
        own count alone shows whether the client reads.
        """
        waiting = self.raw.get_write_buffer_size()
        if not (waiting or self._size):
            return None
        return self._sent - waiting - _in_system(self.raw.get_extra_info("socket"))

    def write_eof(self) -> None:
        self.flush()
        self.raw.write_eof()

    def close(self) -> None:
        self.flush()
        self.raw.close()


def _in_system(connection: Any) -> int:
    """Returns the bytes of a socket that the system has yet to deliver; 0 where it does not tell."""
    if sys.platform == "win32" or connection is None:
        return 0
    from fcntl import ioctl  # noqa: PLC0415 - Windows has neither
    from termios import TIOCOUTQ  # noqa: PLC0415

    try:
        return int.from_bytes(ioctl(connection.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # the connection has ended
        return 0


class Lingering:
    """A transport for the answer to a body that is still coming. It closes when the body was read."""

    def __init__(self, connection: Any) -> None:
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.linger
