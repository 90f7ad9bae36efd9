"""What a server's own HTTP/2 lacks: time limits both ways, and an end of an answer that waits for the request's."""

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

from handler.edge.exchange import TRAILERS, Receive, Scope, Send

LATE: Final = b'{"error":"the request did not arrive in time"}'
HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(LATE))]
LINGERING_SECONDS: Final = 0.25
"""The end of an answer waits so long for the end of a request that nobody reads."""
CALL_SECONDS: Final = 120.0
"""The longest pause of a gRPC client that reads an answer. Until then it may work on the one before."""


class Paced:
    """An application whose clients have to go on with a body, and with an answer. `seconds`: the longest pause.

    Calls of gRPC may pause: the client decides when it sends the next message.
    """

    def __init__(self, app: Any, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_call = dict(scope["headers"]).get(b"content-type", b"").startswith(b"application/grpc")
        seconds = (None, CALL_SECONDS) if is_call else (self._seconds, self._seconds)
        body = _Body(receive, send, *seconds)
        await self._app(scope, body.receive, body.send)
        if body.is_late:
            await send({"type": "http.response.start", "status": 408, "headers": HEADERS})
            await send({"type": "http.response.body", "body": LATE})


class _Body:
    """One body and its answer. `is_late`: the body stopped before its end, and nothing has been answered.

    `seconds`, `own`: the longest pauses of the body and of the answer.
    """

    def __init__(self, receive: Receive, send: Send, seconds: float | None, own: float) -> None:
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._own = own
        self._left = False
        self._ended = asyncio.Event()
        self._has_answer = False
        self._has_trailers = False
        self._stopped = False

    @property
    def is_late(self) -> bool:
        return self._stopped and not self._has_answer

    async def receive(self) -> MutableMapping[str, Any]:
        if self._ended.is_set():
            return await self._receive()
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            self._stopped = True
            message = {"type": "http.disconnect"}
        self._left = self._left or (message["type"] == "http.disconnect" and not self._stopped)
        if not message.get("more_body", False):
            self._ended.set()
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self._has_answer = True
        if message["type"] == "http.response.start":
            self._has_trailers = message.get("trailers", False)
        elif not self._ended.is_set() and self._is_last(message):
            await self._linger()
        if self._left:
            return  # hypercorn would wait for a client that is no longer there
        try:
            async with asyncio.timeout(self._own):
                await self._send(message)
        except TimeoutError:
            self._left = True

    def _is_last(self, message: MutableMapping[str, Any]) -> bool:
        return message["type"] == TRAILERS or not (self._has_trailers or message.get("more_body", False))

    async def _linger(self) -> None:
        """Reads and drops the rest of a body. hypercorn ends a connection on which one goes on behind its answer."""
        reading = asyncio.create_task(self._drop())
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGERING_SECONDS):
                await self._ended.wait()  # perhaps the application reads, too
        reading.cancel()

    async def _drop(self) -> None:
        while not self._ended.is_set():
            await self.receive()
