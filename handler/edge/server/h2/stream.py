"""One request of HTTP/2 and its answer: what goes to zttp when, and how long its client may take."""

from contextlib import suppress
from typing import Any, Final

from uvicorn.protocols.http.zttp_h2_impl import RequestResponseCycle

from handler.edge.server.h2.calls import is_call, with_trailers
from handler.edge.server.limits import WaitLimit

PARKED: Final = 4096
"""Bytes of an answer for which its sender does not wait. zttp keeps what the client's windows have no room for, and
moves all of it for each permission to send a byte: in 190 us if it is 256 kB."""
CALL_SECONDS: Final = 120.0
"""The longest pause of a gRPC client that reads an answer. Until then it may work on the one before."""


def waits(cycle: RequestResponseCycle) -> bool:
    """Decides whether a part of an answer waits for the client."""
    return bool(cycle.stream.pending_bytes) and not (cycle.disconnected or cycle.transport.is_closing())


def expects(scope: Any) -> bool:
    """Decides whether the client sends the body only when it is asked for it. zttp knows that of HTTP/1.1 alone."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"])


class StreamFlow:
    """One request and its answer. A client that takes nothing of it for too long gets no more."""

    def __init__(self, connection: Any, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._receive, self._send = cycle.receive, cycle.send
        self._expects = cycle.more_body and expects(cycle.scope)
        self._wait = WaitLimit(connection.limits.pause, connection.limits.least)
        if is_call(cycle.scope):
            self._wait = WaitLimit(CALL_SECONDS, 1)
            with_trailers(cycle.scope)
        self._sent = self._taken = 0

    async def receive(self) -> Any:
        """Reads on behind a large body: uvicorn has looked at its size before the application took it."""
        if self._expects:
            self._proceed()
        message = await self._receive()
        self._connection.resume_reading_if_idle()
        return message

    def _proceed(self) -> None:
        """Asks for the body, as uvicorn does over HTTP/1.1: its client may wait for it without end."""
        self._expects = False
        cycle = self._cycle
        if not (cycle.body or cycle.response_started or cycle.disconnected or cycle.transport.is_closing()):
            cycle.stream.send_informational(100)
            self._connection.flush()

    async def send(self, message: Any) -> None:
        """Sends a part of the answer, and waits until the client has taken nearly all of it; of the last part, all."""
        cycle = self._cycle
        if cycle.transport.is_closing():
            cycle.disconnected = True  # zttp takes nothing more
        if len(message.get("body", b"")) > PARKED:
            message = await self._ahead(message)
        await self._pass(message)
        if cycle.response_complete and cycle.more_body and not cycle.stream.pending_bytes:
            self._connection.unread.add(cycle.stream.stream_id)

    async def _ahead(self, message: Any) -> Any:
        """Sends what the client takes of a large part, as it takes it. Returns the rest, for which there is room."""
        stream, connection = self._cycle.stream, self._connection
        body = memoryview(message["body"])
        while len(body) > (room := max(PARKED, min(stream.send_window or 0, connection.conn.send_window))):
            await self._pass(message | {"body": body[:room], "more_body": True})
            body = body[room:]
        return message | {"body": body}

    async def _pass(self, message: Any) -> None:
        self._sent += len(message.get("body", b""))
        await self._send(message)
        await self._drain()

    async def _drain(self) -> None:
        cycle, stream, connection = self._cycle, self._cycle.stream, self._connection
        if cycle.response_complete:
            cycle.body.clear()  # nobody reads it, and it would stop the client's permissions
        most = 0 if cycle.response_complete else PARKED
        while waits(cycle) and (stream.pending_bytes or 0) > most:
            begun = connection.loop.time()
            with suppress(TimeoutError):
                await connection.credit(begun + self._wait.left)
            before, self._taken = self._taken, self._sent - (stream.pending_bytes or 0)
            self._wait.count(self._taken - before, connection.loop.time() - begun)
            if self._wait.left <= 0:
                cycle.abort_stream()
        if cycle.response_complete and stream.stream_id in connection.cycles:
            connection.on_response_complete(stream.stream_id)
