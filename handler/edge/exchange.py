"""One HTTP exchange in ASGI's messages: the path and the body of a request, and an answer with a length."""

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from core.errors import InvalidInput, TooLarge, shown
from core.wire import Header, HttpResponse, Part
from handler.edge.flight import NO_LIMIT, SMALL, WEIGHT, WEIGHT_OF_ENCODED, Flight, Lease

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = MutableMapping[bytes, bytes]
Sending = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application that sends an answer that is already made."""
Write = Callable[[HttpResponse, Sequence[Header], Sequence[Part]], None]
"""Sends a whole answer. Takes the response, further headers, and the parts of the body, which are none for HEAD."""
SAFE: Final = ("GET", "HEAD")
ALIGNMENT: Final = 16
REMEMBERED_LINES: Final = 64
PIECE: Final = 256 * 1024
"""Bytes of an answer from which it is sent in pieces. Servers buffer a piece, however slow its client reads."""
LOST: Final = "the request has no body, but its Content-Length is %d: the server or proxy in between has lost the body"
"""uvicorn's own httptools reader loses the body of a request that offers an upgrade (Java's HttpClient does)."""
COMPRESS_KEY: Final = "dragoman.compress_from"
"""The key of ASGI's scope for the bytes of an answer that are worth compressing, if its edge knows."""
UNPACED_KEY: Final = "dragoman.unpaced"
"""The key of ASGI's scope for a function that ends the time limit of the request's body, where the server has one."""
CAME_KEY: Final = "dragoman.came"
"""The key of ASGI's scope for the time at which a request's head came, on time.perf_counter_ns(), if
that was in an earlier turn of the event loop than the body."""
UNBUFFERED: Final = (b"x-accel-buffering", b"no")
"""A header of streams. nginx, and ingresses that are made of it, would gather an answer before they pass it on."""
TRAILERS: Final = "http.response.trailers"
"""The extension of ASGI, and the type of its message, for headers behind a body. Servers have it over HTTP/2."""


SEPARATOR: Final = re.compile(rb"%2[fF]|%3[aA]")
"""A percent-encoded slash or colon. In a decoded path it would split its own part."""


def path_of(scope: Scope) -> tuple[str, bool]:
    """Returns the path below the application's mount, and whether it is /package.Service/Method.

    ASGI's path holds root_path, unless a gateway cut it off.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root + "/"):
        path = path[len(root) :]
    service, _, method = path[1:].partition("/")
    return path, "." in service and "/" not in method and method != ""


def encoded_of(scope: Scope) -> str:
    """Returns the percent-encoded path below the application's mount; "" unless it holds an encoded separator."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw or not SEPARATOR.search(raw):
        return ""
    path, root = raw.decode("ascii", "replace"), scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def goes_both_ways(scope: Scope) -> bool:
    """Decides whether the server passes parts of an answer on while the request goes on, as over HTTP/2."""
    return TRAILERS in (scope.get("extensions") or ())


def let_go(scope: Scope) -> None:
    """Ends the time limit of the request's body: its client decides when it sends."""
    if (ends := scope.get(UNPACED_KEY)) is not None:
        ends()


@lru_cache(REMEMBERED_LINES)
def lines_of(headers: tuple[Header, ...]) -> bytes:
    """Returns headers as lines of HTTP/1.1. Raises ValueError for one that would be more than its line."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers) or b"\0" in lines:
        raise ValueError(f"a header has an end of a line: {shown(headers)}")
    return lines


def length_in(headers: Headers, name: bytes) -> int:
    """Returns the number of bytes in a header, cut to a length that no body has; 0 if it does not hold a number."""
    text = headers.get(name, b"")
    return int(text[:20]) if text.isdigit() else 0


async def gather(
    headers: Headers, receive: Receive, limit: int, align_at: int = 0, flight: Flight = NO_LIMIT
) -> bytes | memoryview | None:
    """Returns the whole body, None if the client left before its end. Raises TooLarge, ServerBusy, InvalidInput.

    `align_at`: the byte of the body from which tensors follow; it lies aligned in memory, so that they need no copy.
    """
    announced = length_in(headers, b"content-length")
    if announced > limit:
        raise TooLarge(f"the body has {announced} bytes; at most {limit} are accepted")
    weight = WEIGHT_OF_ENCODED if b"content-encoding" in headers else WEIGHT
    if announced >= SMALL:
        flight.admit(weight * announced)
    message = await receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    more: bool = message.get("more_body", False)
    if not more and announced and not first:
        raise InvalidInput(LOST % announced)
    if not more and len(first) < SMALL and len(first) <= limit:
        return first
    gathering = _Gathering(limit, -align_at % ALIGNMENT, Lease(flight, weight))
    try:
        gathering.add(first)
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            more = message.get("more_body", False)
            gathering.add(message.get("body", b""))
        return gathering.whole()
    finally:
        gathering.lease.end()


async def skip(headers: Headers, receive: Receive) -> None:
    """Reads a short body that is not needed.

    connect-node stops to send a body once it has its answer, and keeps the connection without another request.
    """
    more = length_in(headers, b"content-length") < SMALL
    size = 0
    while more and size < SMALL:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


class _Gathering:
    """The pieces of a body as they come.

    Joining the pieces at the end is quicker than copying each to its place (6 % of a request of 600 kB).
    """

    def __init__(self, limit: int, padding: int, lease: Lease) -> None:
        self.lease = lease
        self._limit = limit
        self._padding = padding
        self._size = 0
        self._chunks = [bytes(padding)]

    def add(self, chunk: bytes) -> None:
        """Drops a body beyond the limit, but takes twice as much: a client that has sent all of it reads the answer.

        Raises TooLarge, ServerBusy.
        """
        self._size += len(chunk)
        if self._size <= self._limit:
            self._chunks.append(chunk)
            self.lease.grow(self._size)
            return
        self._chunks.clear()
        self.lease.end()
        if self._size > 2 * self._limit:
            raise TooLarge(f"the body has more than {2 * self._limit} bytes; at most {self._limit} are accepted")

    def whole(self) -> bytes | memoryview:
        """Raises TooLarge."""
        if self._size > self._limit:
            raise TooLarge(f"the body has {self._size} bytes; at most {self._limit} are accepted")
        whole = b"".join(self._chunks)
        self._chunks.clear()
        return self.lease.kept(whole)[self._padding :]


class Room:
    """Memory for a body of known size, which a server fills as the body arrives. `view`: all of it.

    `came`: when the body's head came, on time.perf_counter_ns(). Each byte counts twice among those in flight: a
    request that begins early has a copy.
    """

    def __init__(self, size: int, align_at: int, flight: Flight) -> None:
        """`align_at`: as for `gather`. Raises ServerBusy."""
        if size >= SMALL:
            flight.admit(WEIGHT * size)
        self.came = time.perf_counter_ns()
        self._padding = -align_at % ALIGNMENT
        self._memory = np.empty(self._padding + size, np.uint8)
        self._lease = Lease(flight, WEIGHT)
        self.view = self._memory.data[self._padding :]

    def grow(self, size: int) -> None:
        """Counts a body that has this size by now. Raises ServerBusy."""
        self._lease.grow(size)

    def whole(self) -> bytes | memoryview:
        """Returns the body, all of which has arrived."""
        if len(self.view) < SMALL:
            return bytes(self.view)
        return self._lease.kept(self._memory).toreadonly()[self._padding :]

    def end(self) -> None:
        """Returns the bytes of a body that is not used."""
        self._lease.end()


async def disconnected(receive: Receive) -> None:
    """Returns when the client leaves. Its body has to be gathered before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse_websocket(receive: Receive, send: Send) -> None:
    """Closes a websocket before it is accepted: its client gets 403."""
    if (await receive())["type"] == "websocket.connect":
        await send({"type": "websocket.close", "code": 1000})


async def answer(
    response: HttpResponse, method: str, send: Send, more: tuple[Header, ...] = (), flight: Flight = NO_LIMIT
) -> None:
    """Sends a whole answer, to HEAD without its body. `more`: further headers, or trailers if the answer has some."""
    parts = response.parts
    size = sum(map(len, parts))
    headers = [*response.headers]
    start = {"type": "http.response.start", "status": response.status, "headers": headers}
    if response.trailers:
        start["trailers"] = True  # proxies send none behind a body whose length is known to be 0
    else:
        headers += (*more, (b"content-length", b"%d" % size))
    await send(start)
    if size > PIECE and method != "HEAD":
        with flight.holding(size):
            for part in parts:
                await _pieces(part, send)
            body: Part = b""
    else:
        body = b"" if method == "HEAD" else parts[0] if len(parts) == 1 else b"".join(parts)
    await send({"type": "http.response.body", "body": body})
    if response.trailers:
        await follow((*response.trailers, *more), send)


def admit(size: int, received: int, flight: Flight) -> None:
    """Raises ServerBusy if a large answer to a small request does not fit beside what is in flight. Both in bytes.

    A large request was admitted itself, and may hold all of the budget alone.
    """
    if size > PIECE and received < SMALL:
        flight.admit(size)


async def follow(trailers: tuple[Header, ...], send: Send) -> None:
    """Sends the trailers of an answer whose start has announced them."""
    await send({"type": TRAILERS, "headers": [*trailers]})


async def proceed(chunk: Part, send: Send, flight: Flight) -> None:
    """Sends a part of an answer that is not the last."""
    if len(chunk) <= PIECE:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        return
    with flight.holding(len(chunk)):
        await _pieces(chunk, send)


async def _pieces(part: Part, send: Send) -> None:
    """Sends the part in pieces. A server holds the next one back until the client has read most of the last one."""
    view = memoryview(part)
    for start in range(0, len(part), PIECE):
        piece = bytes(view[start : start + PIECE])
        await send({"type": "http.response.body", "body": piece, "more_body": True})
