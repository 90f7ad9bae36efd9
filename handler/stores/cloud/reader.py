"""Requests to one bucket by obstore, each of which ends at its deadline or when another thread cuts it.

obstore's blocking calls cannot be ended before they are done. Its asynchronous ones can be cancelled: they run
in the event loop of one thread, for all stores of the process, and the caller's thread waits for each.
"""

import asyncio
import math
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import cache
from typing import Any, Final, TypeVar

from handler.stores.checksums import Checksum
from handler.stores.cloud import errors
from handler.stores.transfer import answers
from handler.stores.transfer.answers import Answer, Broken, Line, ObjectRequest, StoreRefused, limit

T = TypeVar("T")
CHUNK: Final = 256 * 1024
"""Bytes that the client gathers before it hands them over: the most that a deadline can lose of each stream."""
PAGE: Final = 1000
"""Objects that one step of a listing brings."""
SHA256: Final = "sha256"
"""Key in an object's metadata for the hexadecimal checksum of its whole content. `dragoman push` writes it."""
HEXADECIMAL: Final = re.compile(r"[0-9a-f]{64}")
RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop of the requests, which runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cloud-store", daemon=True).start()
    return loop


def begun(request: Callable[[], Awaitable[T]]) -> Future[T]:
    """Begins a request. Its future can be cancelled, which ends the request."""

    async def run() -> T:
        return await request()

    return asyncio.run_coroutine_threadsafe(run(), _loop())


def waited(
    request: Callable[[], Awaitable[T]], seconds: float, line: Line | None = None, *, started: bool = False
) -> T:
    """Returns what a request returns. `line`: what may cut it. `started`: its answer has begun.

    `seconds`: until the deadline. A store that is silent for STALL ends the request sooner: before its answer here, in
    its body by the client, which sees bytes that are not handed over yet. Raises Broken, also if there is no answer in
    time, and StoreRefused.
    """
    line = line or Line()
    longest = seconds if started else limit(seconds)
    future = begun(request)
    line.hold(future.cancel)
    try:
        return future.result(None if math.isinf(longest) else max(0.0, longest))
    except TimeoutError as error:
        future.cancel()
        raise Broken("timeout", started=started) from error
    except CancelledError as error:
        raise Broken("cut", started=started) from error
    except Exception as error:
        raise errors.reason(error, started=started) from error
    finally:
        line.hold(None)


class StreamedBody:
    """The body of an answer of obstore. `size`: in bytes."""

    def __init__(self, stream: Any, size: int, line: Line) -> None:
        self._stream = stream
        self._unread = size
        self.line = line

    def read(self, seconds: float) -> bytes:
        """Returns the next bytes, none at the end. Raises Broken, also where the body ends before its length."""
        if self._unread <= 0 or self._stream is None:
            return b""
        chunk = waited(self._next, seconds, self.line, started=True)
        if not chunk:
            raise Broken(f"{self._unread} bytes are missing", started=True)
        self._unread -= len(chunk)
        return chunk

    async def _next(self) -> bytes:
        try:
            return bytes(await self._stream.__anext__())
        except StopAsyncIteration:
            return b""

    def close(self) -> None:
        """Forgets the stream: the connection is closed with it if it has more to send."""
        self._stream = None


class CloudReader:
    """Reads and lists a bucket. `store`: obstore's."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def get(self, asked: ObjectRequest, seconds: float, line: Line | None = None) -> Answer:
        """See ObjectReader.get."""
        import obstore  # noqa: PLC0415 - 31 ms of cold start, for these stores alone

        line = line or Line()
        options = _options(asked.headers or {}, body=asked.body)
        found = waited(lambda: obstore.get_async(self.store, asked.key, options=options), seconds, line)
        if found.attributes.get("Content-Encoding", "").lower() in answers.CODINGS:
            raise StoreRefused(200, answers.PACKED)
        (start, stop), meta = found.range, found.meta
        stream = found.stream(min_chunk_size=min(CHUNK, answers.CHUNK)) if asked.body else None
        etag = (meta["e_tag"] or "").strip('"')
        content = StreamedBody(stream, stop - start, line)
        return Answer(content, start, stop - start, meta["size"], etag, "range" in options, _checksum(found.attributes))

    def listed(self, prefix: str, left: Callable[[], float], most: int | None = None) -> list[Any]:
        """Returns the objects below a prefix as obstore has them, at least `most` + 1 of them if there are so many.

        `left`: seconds until the deadline. Raises Broken, StoreRefused.
        """
        import obstore  # noqa: PLC0415 - as above

        stream: Any = obstore.list(self.store, prefix=prefix or None, chunk_size=PAGE)

        async def step() -> list[Any] | None:
            try:
                return list(await stream.__anext__())
            except StopAsyncIteration:
                return None

        found: list[Any] = []
        while (most is None or len(found) <= most) and (page := waited(step, left())) is not None:
            found += page
        return found

    def folders(self, prefix: str, seconds: float) -> list[str]:
        """Returns the names directly below a prefix that have objects below them. Raises Broken, StoreRefused."""
        import obstore  # noqa: PLC0415 - as above

        found = waited(lambda: obstore.list_with_delimiter_async(self.store, prefix=prefix or None), seconds)
        return [str(each).rpartition("/")[2] for each in found["common_prefixes"]]


def _options(ranged: Mapping[str, str], *, body: bool) -> Any:
    """Returns obstore's options for the headers of a request."""
    options: dict[str, Any] = {} if body else {"head": True}
    if span := RANGE.fullmatch(ranged.get("Range", "")):
        options["range"] = int(span[1]), int(span[2]) + 1
    if "If-Match" in ranged:
        options["if_match"] = ranged["If-Match"]
    return options


def _checksum(attributes: Mapping[str, str]) -> Checksum | None:
    """Returns the checksum that the publisher has written beside the object."""
    for name, value in attributes.items():
        if name.lower() == SHA256 and HEXADECIMAL.fullmatch(value):
            return Checksum(SHA256, value)
    return None
