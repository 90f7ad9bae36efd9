"""A store's answers: objects, listings, refusals, and failures. Bodies are read as they arrive."""

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any, Final, Protocol, Self

from core.records import NamedTuple
from handler.stores import SMALL, checksums
from handler.stores.checksums import Checksum

CHUNK: Final = 1024 * 1024
"""The most bytes that one read returns."""
TOO_LONG: Final = "TooLong"
"""The code of our own refusal of a body of more than SMALL bytes."""
PACKED: Final = "ContentEncoding"
"""The code of our own refusal of a compressed object."""
CODINGS: Final = {"gzip", "x-gzip", "deflate", "compress", "br", "zstd"}
"""Amazon's `aws-chunked`, and names of character sets, which people write there, do not change the content."""
STALL: Final = 20.0
"""Seconds without a byte after which a connection counts as dead."""
OVERLOADED: Final = {429, 503}
UNTRUSTED: Final = "SSLCertVerificationError"
"""The error of a certificate whose authority is not known, as Python names it."""
NOT_TLS: Final = "SSLError"
"""The error of an answer that is not TLS, as of a server of plain HTTP."""
NUMBER: Final = re.compile("[0-9]{1,18}")
RANGE: Final = re.compile("bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
"""Python refuses to read a number of thousands of digits, and no object has so many bytes."""


def is_transient(status: int) -> bool:
    """Decides whether a request with this status can succeed when it is tried again."""
    return status >= 500 or status in (408, 429)  # noqa: PLR2004 - Request Timeout, Too Many Requests, server errors


def in_words(status: int, code: str) -> str:
    """Returns a refusal in words: its status, and the store's code if that says more."""
    return str(status) if code == str(status) else f"{status} {code}"


def unfit(code: str, what: str) -> str:
    """Returns the message of our own refusal of a file that the store has answered, empty for the store's codes."""
    if code == TOO_LONG:
        return f"{what} has more than {SMALL} bytes"
    packed = f"{what} is stored with a Content-Encoding, and so in another form: upload it without one"
    return packed if code == PACKED else ""


class Broken(Exception):
    """A failure that a retry can overcome. `status` 0: there was no answer, or its body broke off (`started`)."""

    def __init__(self, reason: str, status: int = 0, code: str = "", *, started: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.started = started

    @classmethod
    def of(cls, error: Exception, *, started: bool = False) -> "Broken":
        """Names the kind of an error, a word that people find again. Its own text may hold addresses."""
        return cls(type(error).__name__, started=started)

    @property
    def crowded(self) -> bool:
        """Decides whether fewer requests at a time would help."""
        return self.status in OVERLOADED


class StoreRefused(Exception):
    """A refusal that retrying cannot change. `region`: the bucket's, if the store names it, else empty."""

    def __init__(self, status: int, code: str, region: str = "") -> None:
        super().__init__(in_words(status, code))
        self.status = status
        self.code = code
        self.region = region


class Line:
    """What a thread waits on, from its request until it closes the answer. Another thread ends that wait with `cut`."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] | None = None
        self._is_cut = False
        self._lock = threading.Lock()

    def hold(self, stop: Callable[[], object] | None) -> None:
        """Names what ends the wait from now on, None after the answer."""
        with self._lock:
            self._stop = stop
            self._end()

    def cut(self) -> None:
        """Breaks off the thread's wait, and any later one."""
        with self._lock:
            self._is_cut = True
            self._end()

    def _end(self) -> None:
        if self._is_cut and self._stop is not None:
            self._stop()


def broken_off(its_socket: socket.socket) -> Callable[[], None]:
    """Returns what ends a read of a socket: that ends with its socket only."""

    def stop() -> None:
        with suppress(OSError):
            # Not SSLSocket's own shutdown: a request that is being written would go on in plain text after it.
            socket.socket.shutdown(its_socket, socket.SHUT_RDWR)

    return stop


class AnswerBody(Protocol):
    """The body of an answer. `line`: what its reads wait on."""

    line: Line

    def read(self, seconds: float, /) -> bytes:
        """Returns the next bytes, none at the end. Raises Broken, also where the body ends before its length."""
        ...

    def close(self) -> None:
        """Ends the answer. A second call does nothing."""
        ...


class TimedSocket(RawIOBase):
    """Reads a socket until a deadline, on time.monotonic(). The timeout of a socket begins anew with each byte."""

    def __init__(self, raw: RawIOBase, its_socket: socket.socket, seconds: float) -> None:
        self._raw = raw  # it keeps the socket open until the answer is read, also if the connection is closed
        self._socket = its_socket
        self.within(seconds)

    def within(self, seconds: float) -> None:
        """Sets the deadline of all later reads."""
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(limit(self._until - time.monotonic()))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(HTTPResponse):
    """An answer whose head has `within` seconds to arrive. The deadline can be moved for what follows."""

    def __init__(self, its_socket: socket.socket, *, within: float, **options: Any) -> None:
        super().__init__(its_socket, **options)
        self._timed = TimedSocket(self.fp.detach(), its_socket, within)
        self.fp = BufferedReader(self._timed)

    def within(self, seconds: float) -> None:
        """Sets the deadline of all later reads."""
        self._timed.within(seconds)


class Body:
    """The body of a successful answer of HTTP: as many bytes as its head states, or in chunks, as S3 sends listings.

    `done`: called once, with whether the connection may be used again.
    """

    def __init__(self, response: TimedResponse, line: Line, done: Callable[[bool], None]) -> None:
        self._response = response
        self._done = done
        self._closed = False
        self._unread = response.length  # None: the body marks its own end. An answer to HEAD has 0
        self.headers = response.headers
        self.line = line

    def read(self, seconds: float) -> bytes:
        """Returns the next bytes, none at the end. Raises Broken, also where the body ends before its length."""
        if self._unread == 0:
            return b""
        try:
            self._response.within(seconds)
            chunk = self._response.read1(CHUNK if self._unread is None else min(CHUNK, self._unread))
        except (OSError, HTTPException, ValueError) as error:  # ValueError: another thread closed it
            raise Broken.of(error, started=True) from error
        if self._unread is None:
            self._unread = None if chunk else 0
        elif chunk:
            self._unread -= len(chunk)
        else:
            raise Broken(f"{self._unread} bytes are missing", started=True)
        return chunk

    def close(self) -> None:
        """Keeps the connection if the body has been read to its end. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        reusable = self._unread == 0 and not self._response.will_close
        self._response.close()
        self.line.hold(None)
        self._done(reusable)


@dataclass(slots=True, eq=False)
class Answer:
    """An object, or a range of it.

    In bytes: `start` of the body within the object, `length` of the body, `size` of the object. `etag`: without quotes,
    empty if the store has none. `ranged`: the answer is marked as a range. `checksum`: of the whole object.
    """

    body: AnswerBody
    start: int
    length: int
    size: int
    etag: str
    ranged: bool
    checksum: Checksum | None

    @classmethod
    def of(cls, body: Body) -> Self:
        """Reads the head of an answer of HTTP. Raises Broken where the head contradicts itself.

        Raises StoreRefused for an object that was stored compressed: whoever reads it would have to decompress it.
        """
        headers = body.headers
        if headers.get("Content-Encoding", "").lower() in CODINGS:
            raise StoreRefused(200, PACKED)
        length = _number(headers.get("Content-Length"))
        found = RANGE.fullmatch(headers.get("Content-Range", ""))
        start, last, size = map(int, found.groups()) if found else (0, length - 1, length)
        if last - start + 1 != length:
            raise Broken(f"{length} bytes for the range {start}-{last}")
        etag = headers.get("ETag", "").strip('"')
        return cls(body, start, length, size, etag, found is not None, checksums.of_answer(headers))


class ObjectRequest(NamedTuple):
    """`headers`: a range or a condition; None: the whole object, with its checksum. `body` False: the head alone."""

    key: str
    headers: Mapping[str, str] | None = None
    body: bool = True


class ObjectReader(Protocol):
    """Reads the objects of one place in a store."""

    def get(self, asked: ObjectRequest, seconds: float, line: Line | None = None, /) -> Answer:
        """Returns the answer once its head has arrived. Raises Broken, StoreRefused.

        `seconds`: until the answer must have begun. `line`: what can cut the wait.
        """
        ...


def whole(body: AnswerBody, seconds: float) -> bytes:
    """Returns a small body, and closes it. `seconds`: for all of it. Raises Broken, StoreRefused if it is too long."""
    until = time.monotonic() + seconds
    content = bytearray()
    try:
        while chunk := body.read(until - time.monotonic()):
            content += chunk
            if len(content) > SMALL:
                raise StoreRefused(200, TOO_LONG)
    finally:
        body.close()
    return bytes(content)


def limit(seconds: float) -> float:
    """Returns the seconds that a socket may wait for its next byte. Raises TimeoutError if `seconds` are over."""
    if seconds <= 0:
        raise TimeoutError
    return min(STALL, seconds)


def _number(text: str | None) -> int:
    if text is None or not NUMBER.fullmatch(text):
        raise Broken("an answer without Content-Length")
    return int(text)
