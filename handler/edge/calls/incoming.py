"""The messages of one call as they arrive, where a server passes answers on while the request goes on.

HTTP/2 has a window for each direction, but a server's application can hold back only the whole connection, with the
client's permission to send further answers on it. So what arrives is taken at once, within limits.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from core.dialects.connect.envelopes import HEAD, Frame, announced
from core.errors import InvalidInput, ServerBusy, ServingError
from handler.edge.exchange import Receive
from handler.edge.flight import SMALL, Flight
from handler.edge.idling import LATE, MESSAGE_SECONDS, Idling

T = TypeVar("T")


async def in_time(work: Awaitable[T]) -> T:
    """Returns the result of the wait for a message. Raises ServerBusy if it does not come in time."""
    try:
        async with asyncio.timeout(MESSAGE_SECONDS):
            return await work
    except TimeoutError:
        raise ServerBusy(LATE, retry_after=1) from None


class Incoming:
    """The body of one call. `limit`: the most bytes of a message, and of those that wait. `coding`: as for frames.

    `idling`: has the stream between two messages.
    """

    def __init__(self, receive: Receive, limit: int, flight: Flight, coding: bytes, idling: Idling) -> None:
        self.received = 0
        self._receive = receive
        self._limit = limit
        self._flight = flight
        self._coding = coding
        self._idling = idling
        self._waiting = bytearray()
        self._held = 0
        self._more = True
        self._error: ServingError | None = None
        self._came = asyncio.Event()

    async def gather(self) -> None:
        """Takes what arrives until the client leaves."""
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return
            try:
                self._add(message.get("body", b""))
            except ServingError as error:
                self._error = self._error or error
            self._more = message.get("more_body", False)
            self._came.set()

    def _add(self, piece: bytes) -> None:
        """Raises ServerBusy beyond the limit or the budget."""
        self.received += len(piece)
        if self._error is not None:
            return
        if len(self._waiting) > self._limit + HEAD:  # at least one message of it is whole
            raise ServerBusy(f"messages of {len(self._waiting)} bytes wait: send further ones as answers come")
        self._flight.admit(len(piece), self._held)
        self._waiting += piece
        self._count()

    def _count(self) -> None:
        size = len(self._waiting) if len(self._waiting) >= SMALL else 0
        self._flight.take(size - self._held)
        self._held = size

    async def messages(self) -> AsyncGenerator[Frame]:
        """Yields each message when it is whole. Raises InvalidInput, TooLarge, UnannouncedCompression, ServerBusy."""
        at = 0
        while await self._has(HEAD, "inside an envelope's head"):
            own, size = announced(self._waiting[:HEAD], self._limit, self._coding, at=at)
            await self._has(HEAD + size, f"where an envelope announces {size} bytes")
            made = [Frame(bytes(memoryview(self._waiting)[HEAD : HEAD + size]), own)]
            del self._waiting[: HEAD + size]
            at += HEAD + size
            self._count()
            yield made.pop()  # this frame would keep it until the next one is whole

    async def _has(self, size: int, where: str) -> bool:
        """Waits for so many bytes. Returns False at the end of the body. Raises InvalidInput if it ends between."""
        while not self._waiting and self._more and self._error is None:
            # The client decides when the next message begins.
            await self._idling.wait(self._next(), asyncio.get_running_loop().time())
        return len(self._waiting) >= size or await in_time(self._arrives(size, where))

    async def _arrives(self, size: int, where: str) -> bool:
        while len(self._waiting) < size:
            if self._error is not None:
                raise self._error
            if not self._more:
                if size == HEAD and not self._waiting:
                    return False
                came = len(self._waiting) - (0 if size == HEAD else HEAD)  # a head does not count itself
                raise InvalidInput(f"the request ends {where}, after {came} bytes of it")
            await self._next()
        return True

    async def _next(self) -> None:
        self._came.clear()
        await self._came.wait()

    def close(self) -> None:
        """Gives back what it holds."""
        self._waiting.clear()
        self._count()
