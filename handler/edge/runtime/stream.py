"""One answer in pieces: chunks are sent to the Runtime API when they are made, and as fast as it takes them."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final

from core.wire import Header, Part
from handler.edge.runtime.api import EventContext, RuntimeApi, RuntimeApiError, trailers

NULS: Final = bytes(8)
"""Separates an answer's status and headers from its body."""
LARGEST_PRELUDE: Final = 16 * 1024
"""API Gateway looks for NULS in so many bytes."""
HOP: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"trailer", b"upgrade"))
JOINED_FROM: Final = 64 * 1024
"""Bytes of a piece from which copying it to its frame costs more than further calls of the system."""


class ResponseStream:
    """The answer to one event. `begun`: its head was sent. `left`: its reader has left.

    `sent`: when the last piece was sent, on the event loop's clock. `last`: its last two bytes.

    `begin`, `send`, `end` and `fail` run in the event loop, `finish` and `drop` in the event's own thread
    afterwards.
    """

    def __init__(self, api: RuntimeApi, context: EventContext) -> None:
        self.begun = False
        self.sent = 0.0
        self.last = b""
        self.left = asyncio.Event()
        self._api = api
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: Any = None
        self._ended = self._torn = False
        self._sending = asyncio.Lock()

    async def begin(self, head: bytes) -> None:
        """Sends the head. Raises RuntimeApiError."""
        loop = asyncio.get_running_loop()
        self._socket = self._api.begin_stream(self._context)
        self._loop, self.begun = loop, True
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket, self._leave)
        await self.send(head)

    def _leave(self) -> None:
        """The connection has ended, or the Runtime API answers already: it does not want the rest."""
        if self._loop is not None and not self.left.is_set():
            self._loop.remove_reader(self._socket)
            self.left.set()
            self._torn = True

    async def send(self, piece: Part) -> None:
        """Sends a piece. Returns when the system has taken it, or its reader has left."""
        if len(piece) and not self._ended:  # a chunk without a byte would end the answer
            self.sent, self.last = asyncio.get_running_loop().time(), bytes(piece[-2:])
            head = b"%x\r\n" % len(piece)
            if len(piece) < JOINED_FROM:
                await self._write(b"".join((head, piece, b"\r\n")))
            else:
                await self._write(head, piece, b"\r\n")

    async def end(self, last: bytes = b"") -> None:
        """Ends the answer. `last`: its trailers."""
        if self._loop is not None and not self._ended and not self.left.is_set():
            self._ended = True
            self._loop.remove_reader(self._socket)
            await self._write(b"0\r\n%b\r\n" % last)

    async def fail(self, kind: str, message: str) -> None:
        """Ends the answer with an error."""
        await self.end(trailers(kind, message, self._context.aws_request_id))

    async def _write(self, *parts: Part) -> None:
        async with self._sending:
            if self._torn or self._loop is None:
                return
            self._torn = True  # unless all of it is sent: a frame may be cut by a deadline
            try:
                for part in parts:
                    await self._loop.sock_sendall(self._socket, part)
            except OSError:
                self.left.set()
                self._loop.remove_reader(self._socket)
                return
            self._torn = self.left.is_set()

    def close(self) -> None:
        """Lets go of the socket, in the event loop."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket)

    def drop(self) -> None:
        """Ends the connection in the middle of the answer."""
        self._api.close()

    def finish(self) -> None:
        """Reads the Runtime API's reply to the answer. Raises RuntimeApiError, also for an answer that was cut."""
        if not self.begun:
            return
        if self._torn:
            self.drop()
            raise RuntimeApiError("the answer was not taken to its end")
        self._socket.settimeout(None)
        self._api.end_stream()


def head_of(status: int, headers: Iterable[Header]) -> bytes:
    """Returns the head of an answer: JSON with status, headers and cookies, and NULS. Raises ValueError."""
    joined: dict[str, str] = {}
    cookies: list[str] = []
    for name, value in headers:
        lower, text = bytes(name).lower(), bytes(value).decode("latin-1")
        if lower == b"set-cookie":
            cookies.append(text)
        elif lower not in HOP:
            key = lower.decode("latin-1")
            joined[key] = f"{joined[key]}, {text}" if key in joined else text
    told: dict[str, Any] = {"statusCode": status, "headers": joined}
    found = json.dumps(told | ({"cookies": cookies} if cookies else {})).encode() + NULS
    if len(found) > LARGEST_PRELUDE:
        raise ValueError(f"the answer's headers have {len(found)} bytes; at most {LARGEST_PRELUDE} are possible")
    return found
