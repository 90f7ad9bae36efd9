"""What a store answers: an object, a listing, a refusal, or nothing that is an answer. Bodies are read as they come."""

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Final

CHUNK: Final = 1024 * 1024
"""Bytes that one read returns at most."""
SMALL: Final = 16 * 1024 * 1024
"""Bytes of what is read into memory at most; a page of a thousand keys, each as long as it can be, has a quarter."""
STALL: Final = 20.0
"""Seconds without a byte after which a connection counts as dead."""
OVERLOADED: Final = {429, 503}


class Broken(Exception):
    """May go well when tried again. `status` 0: there was no answer, or its body broke off (`started`)."""

    def __init__(self, reason: str, status: int = 0, code: str = "", *, started: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.started = started

    @classmethod
    def of(cls, error: Exception, *, started: bool = False) -> "Broken":
        """By the kind of an error, a word that people find again; its own text may hold addresses."""
        return cls(type(error).__name__, started=started)

    @property
    def crowded(self) -> bool:
        """Whether fewer requests at a time would help."""
        return self.status in OVERLOADED


class Refused(Exception):
    """An answer that stays the same. `region`: where the store says that the bucket is, empty if it does not."""

    def __init__(self, status: int, code: str, region: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.region = region


class Line:
    """The connection that a thread waits on, from when it asks until the answer is closed."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._lock = threading.Lock()

    def hold(self, its_socket: socket.socket | None) -> None:
        """Wait on this one from now on; None: on none."""
        with self._lock:
            self._socket = its_socket
            self._end()

    def cut(self) -> None:
        """Whatever is waited for breaks off, now and later."""
        with self._lock:
            self._is_cut = True
            self._end()

    def _end(self) -> None:
        if self._is_cut and self._socket is not None:
            with suppress(OSError):
                # Not SSLSocket's own, after which a request that is being written would go on in plain text.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Body:
    """What follows a successful answer's head: so many bytes as that says, or in chunks, as S3's listings are sent.

    `done`: called once, with whether the connection may be used again.
    """

    def __init__(
        self, response: HTTPResponse, its_socket: socket.socket, line: Line, done: Callable[[bool], None]
    ) -> None:
        self._response = response
        self._socket = its_socket  # http.client forgets it when the answer is the connection's last
        self._done = done
        self._closed = False
        self._unread = response.length  # None: it tells where it ends; nothing follows the answer to HEAD
        self.headers = response.headers
        self.line = line

    def read(self, seconds: float) -> bytes:
        """The next bytes, none at the end. Raises Broken, also where the body ends before its length."""
        if self._unread == 0:
            return b""
        try:
            self._socket.settimeout(limit(seconds))
            chunk = self._response.read1(CHUNK if self._unread is None else min(CHUNK, self._unread))
        except (OSError, HTTPException, ValueError) as error:  # ValueError: closed meanwhile
            raise Broken.of(error, started=True) from error
        if self._unread is None:
            self._unread = None if chunk else 0
        elif chunk:
            self._unread -= len(chunk)
        else:
            raise Broken(f"{self._unread} bytes are missing", started=True)
        return chunk

    def close(self) -> None:
        """Keeps the connection if the body has been read to its end. Once is enough."""
        if self._closed:
            return
        self._closed = True
        reusable = self._unread == 0 and not self._response.will_close
        self._response.close()
        self.line.hold(None)
        self._done(reusable)


class Answer:
    """An object, or a range of it. `start`: where in it the body begins; `length` of the body; `size` of the object."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.headers = body.headers
        self.length = _number(self.headers.get("Content-Length"))
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", self.headers.get("Content-Range", ""))
        self.start, last, self.size = map(int, found.groups()) if found else (0, self.length - 1, self.length)
        self.ranged = found is not None
        if last - self.start + 1 != self.length:
            raise Broken(f"{self.length} bytes for the range {self.start}-{last}")

    @property
    def etag(self) -> str:
        return self.headers.get("ETag", "").strip('"')


def whole(body: Body, seconds: float) -> bytes:
    """A small body, in memory. Raises Broken, Refused."""
    until = time.monotonic() + seconds
    content = bytearray()
    try:
        while chunk := body.read(until - time.monotonic()):
            content += chunk
            if len(content) > SMALL:
                raise Refused(200, "TooLong")
    finally:
        body.close()
    return bytes(content)


def limit(seconds: float) -> float:
    """How long a socket may wait for its next byte. Raises TimeoutError."""
    if seconds <= 0:
        raise TimeoutError
    return min(STALL, seconds)


def _number(text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise Broken("an answer without Content-Length")
    return int(text)
