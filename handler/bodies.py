"""Request bodies, gathered from ASGI's messages."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import numpy as np

from core.errors import TooLarge
from core.wire import padding

Headers = Mapping[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
GATHERED_IN_PLACE: Final = 8 * 1024 * 1024
"""The largest body for which memory is taken on the word of a Content-Length."""


async def gather(headers: Headers, receive: Receive, limit: int) -> bytes | memoryview | None:
    """The whole body; None if the client went before its end. Raises TooLarge, at once where the size is announced."""
    length = headers.get(b"content-length", b"")
    announced = int(length[:20]) if length.isdigit() else 0
    if announced > limit:
        raise _too_large(announced, limit)
    message = await receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    if message.get("more_body"):
        collect = _gather_announced if len(first) < announced <= GATHERED_IN_PLACE else _gather
        return await collect(first, headers, receive, announced or limit)
    if len(first) > limit:
        raise _too_large(len(first), limit)
    return first


async def _gather_announced(first: bytes, headers: Headers, receive: Receive, size: int) -> memoryview | None:
    """A body of known size: each piece goes to its place while the next one is still on its way."""
    pad = padding(headers)
    body = np.empty(pad + size, np.uint8).data[pad:]  # not a bytearray: that would be zeroed first
    position = len(first)
    body[:position] = first
    while position < size:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")[: size - position]
        body[position : position + len(chunk)] = chunk
        position += len(chunk)
        if not message.get("more_body"):
            break
    return body[:position]


async def _gather(first: bytes, headers: Headers, receive: Receive, limit: int) -> bytes | memoryview | None:
    """A body of unknown size, read to its end even beyond the limit, so that the client gets to read the answer."""
    chunks, size, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > limit:
            del chunks[:]
    if size > limit:
        raise _too_large(size, limit)
    pad = padding(headers)
    return memoryview(b"".join((bytes(pad), *chunks)))[pad:]


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(f"the body has {size} bytes; at most {limit} are accepted")
