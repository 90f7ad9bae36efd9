"""A server with bounds of its connections, in this process, for an application that does as its paths say."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import uvicorn

from core.wire import HttpResponse
from handler.edge.exchange import CAME_KEY, Room, Write
from handler.edge.flight import NO_LIMIT
from handler.edge.server.limits import Limits
from handler.edge.server.protocol import BoundedHttp
from tests.support.ports import free_port

LARGE = 50_000_000
MOST_WAITED = 200_000
"""Bytes of a body for which a request may wait, before it begins."""


async def application(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Answers with the body, a stream of it, or, without reading, with a refusal or many bytes; or waits for long."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    body = b"" if path in ("/refuse", "/large", "/wait") else await read(receive)
    if body is None:
        return
    body = answer_to(body)
    values = b"|".join(value for name, value in scope["headers"] if name == b"a")
    headers = [(b"x-headers", b"%d" % len(scope["headers"])), (b"x-values", b"|%b|" % values)]
    if path == "/large":
        body = bytes(LARGE)
    if path == "/wait":
        await asyncio.sleep(1)
    if path != "/stream":
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 400 if path == "/refuse" else 200, "headers": headers})
    if path == "/stream":
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if scope["query_string"] == b"wait":
            await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": b"" if path == "/stream" else body})


def answer_to(body: bytes) -> bytes:
    """Returns the body, or, if it begins with "long", a long one that begins with it."""
    return body.ljust(50_000) if body.startswith(b"long") else body


class Whole:
    """The same application, which answers requests for / at once.

    `heads`, `rooms`, `answers`: how often it was asked for each. `calls`: requests that came by ASGI; `gone` of them
    had no whole body. `came`: the time at which the head of the last one came, if it came before.
    A body that begins with "later" has to come by ASGI; with "sent", an application of its own sends the answer.
    It waits for bodies of up to `most_waited` bytes, which count in `flight`.
    """

    def __init__(self) -> None:
        self.most_waited = MOST_WAITED
        self.flight = NO_LIMIT
        self.heads = self.rooms = self.answers = self.calls = self.gone = 0
        self.came: int | None = None
        self.last_room: Any = None
        self.whole_requests = self

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self.calls += 1
        self.came = scope.get(CAME_KEY)

        async def received() -> Any:
            message = await receive()
            self.gone += message["type"] == "http.disconnect"
            return message

        await application(scope, received, send)

    def head(self, scope: Any) -> Any:
        """Returns the head of a request."""
        self.heads += 1
        return SimpleNamespace(headers=dict(scope["headers"]), scope=scope) if scope["path"] == "/" else None

    def room(self, _head: Any, size: int) -> Room | None:
        """Returns memory for a body of up to `most_waited` bytes."""
        self.last_room = Room(size, 0, self.flight) if size <= self.most_waited else None
        self.rooms += self.last_room is not None
        return self.last_room

    def answer(self, head: Any, body: Any, write: Write, most: int, _came: int | None = None) -> Any:
        """Answers with the body."""
        body = bytes(body)
        if body.startswith(b"later") or len(answer_to(body)) > most:
            return False
        if body.startswith(b"sent"):
            return sending
        self.answers += 1
        body = answer_to(body)
        values = b"|".join(value for name, value in head.scope["headers"] if name == b"a")
        headers = (b"x-headers", b"%d" % len(head.scope["headers"])), (b"x-values", b"|%b|" % values)
        parts = () if head.scope["method"] == "HEAD" else (body,)
        write(HttpResponse(200, headers, (body,)), [(b"content-length", b"%d" % len(body))], parts)
        return True


async def sending(_scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Sends an answer that was made before the request began."""
    body = b"made:" + (await read(receive) or b"")
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Callable[[], Any]) -> bytes | None:
    """Returns the body; None if the client has left."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        more = message["more_body"]
    return body


class _Server(uvicorn.Server):
    """Looks every 10 ms whether it has to end. uvicorn looks every 100, which is long for a short test."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 - as uvicorn's own loop
            await asyncio.sleep(0.01)


@contextmanager
def serving(
    loop: str, limits: Limits, http: type[BoundedHttp] = BoundedHttp, idle: float = 5, app: Any = application
) -> Iterator[int]:
    """Yields the port of a server with these limits. `idle`: seconds until it closes an idle connection."""
    port = free_port()
    bounded: Any = type("Http", (http,), {"bounds": limits})
    config = uvicorn.Config(app, port=port, http=bounded, loop=loop, lifespan="off", log_config=None, access_log=False)
    config.timeout_keep_alive = idle  # type: ignore[assignment] # for call_later, which takes fractions
    server = _Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield port
    finally:
        server.should_exit = True
        thread.join()
