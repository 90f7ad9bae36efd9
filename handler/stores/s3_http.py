"""GET requests to one bucket over HTTP/1.1: connections that are kept, answers whose bodies are read as they come.

botocore's own client takes 2.5 ms of CPU for a GetObject and never asks again for a body that breaks off; this takes
a sixth, and what went wrong is told as Broken or Refused, for the caller to try again or not.
"""

import re
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, NamedTuple, Protocol
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

CHUNK: Final = 256 * 1024
"""Bytes that one read returns at most; larger ones leave the processor's cache before they are written."""
CONNECT: Final = 3.0
STALL: Final = 20.0
"""Seconds without a byte after which a connection counts as dead."""
KEPT: Final = 4.0
"""Seconds that an idle connection may be used again: S3 closes them after 5, and a frozen function does not notice."""
MOST_IDLE: Final = 32
TRANSIENT: Final = {408, 429}
TRANSIENT_CODES: Final = {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "ThrottlingException"}
EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
OVERLOADED: Final = {429, 503}


class Broken(Exception):
    """May go well when tried again. `status` 0: there was no answer, or its body broke off (`started`)."""

    def __init__(self, reason: str, status: int = 0, code: str = "", *, started: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.started = started

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


class Signer(Protocol):
    def sign(self, method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a request without a body, signed. Raises ServingError where there are no credentials."""
        ...

    def renew(self) -> None:
        """Look for credentials anew: the store says that these have expired."""
        ...


class Answer:
    """A successful answer. `start`: where in the object the body begins; `length` of the body; `size` of the object."""

    def __init__(
        self, bucket: "Bucket", connection: HTTPConnection, response: HTTPResponse, its_socket: socket.socket
    ) -> None:
        self._bucket = bucket
        self._connection = connection
        self._response = response
        self._closed = False
        self._socket = its_socket  # http.client forgets it when the answer is the connection's last
        self.headers = response.headers
        self.length = _number(response.headers.get("Content-Length"))
        self._unread = 0 if response.length == 0 else self.length  # nothing follows the answer to HEAD
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
        self.start, last, self.size = map(int, found.groups()) if found else (0, self.length - 1, self.length)
        self.ranged = found is not None
        if last - self.start + 1 != self.length:
            raise Broken(f"{self.length} bytes for the range {self.start}-{last}")

    @property
    def etag(self) -> str:
        return self.headers.get("ETag", "").strip('"')

    def read(self, seconds: float) -> bytes:
        """The next bytes, none at the end. Raises Broken, also where the body ends before its length."""
        if not self._unread:
            return b""
        try:
            self._socket.settimeout(max(0.01, min(STALL, seconds)))
            chunk = self._response.read1(min(CHUNK, self._unread))
        except (OSError, HTTPException, ValueError) as error:  # ValueError: closed by `abort` meanwhile
            raise Broken(_kind(error), started=True) from error
        if not chunk:
            raise Broken(f"{self._unread} bytes are missing", started=True)
        self._unread -= len(chunk)
        return chunk

    def close(self) -> None:
        """Keeps the connection if the body has been read to its end. Once is enough."""
        if self._closed:
            return
        self._closed = True
        reusable = not self._unread and not self._response.will_close
        self._response.close()
        self._bucket.give_back(self._connection, reusable=reusable)

    def abort(self) -> None:
        """End a read that another thread waits in."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class Request(NamedTuple):
    """`limit`: seconds until the answer must begin."""

    method: str
    target: str
    headers: dict[str, str]
    limit: float


class Bucket:
    """`base`: URL of the bucket, whose objects are at `base/key`."""

    def __init__(
        self, base: str, region: str, signer: Signer, tls: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        self.region = region
        self._base = base
        self._url = urlsplit(base)
        self._signer = signer
        self._tls = tls
        self._proxy = urlsplit(proxy) if proxy else None
        self._idle: list[tuple[float, HTTPConnection]] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    def get(self, key: str, seconds: float, ranged: Mapping[str, str] | None = None, *, body: bool = True) -> Answer:
        """The object with its checksum, or what the headers of `ranged` ask for. Raises Broken, Refused."""
        url = f"{self._base}/{quote(key, safe='/~')}"
        if ranged is not None:
            return self._ask("GET", url, seconds, {}, ranged)
        return self._ask("GET" if body else "HEAD", url, seconds, {"x-amz-checksum-mode": "ENABLED"}, {})

    def list(self, parameters: Mapping[str, str], seconds: float) -> bytes:
        """ListObjectsV2's document."""
        query = urlencode(
            sorted({"list-type": "2", "encoding-type": "url", **parameters}.items()), quote_via=quote, safe="~"
        )
        url = f"{self._base}?{query}" if self._url.path else f"{self._base}/?{query}"
        answer = self._ask("GET", url, seconds, {}, {})
        return whole(answer, seconds)

    def give_back(self, connection: HTTPConnection, *, reusable: bool) -> None:
        with self._lock:
            if reusable and len(self._idle) < MOST_IDLE:
                self._idle.append((time.time(), connection))
                return
        connection.close()

    def _ask(
        self, method: str, url: str, seconds: float, signed: Mapping[str, str], unsigned: Mapping[str, str]
    ) -> Answer:
        headers = {**self._signer.sign(method, url, signed), **unsigned, "User-Agent": "dragoman"}
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if self._proxy is not None and self._tls is None:
            target = url
            headers |= _authorization(self._proxy)
        request = Request(method, target, headers, max(0.01, min(STALL, seconds)))
        connection = self._kept()
        if connection is not None:
            try:
                return self._answer(connection, request)
            except (OSError, HTTPException):
                connection.close()  # the store had closed it: that says nothing about the request
        connection = self._connection(min(CONNECT, request.limit))
        try:
            return self._answer(connection, request)
        except (OSError, HTTPException) as error:
            connection.close()
            raise Broken(_kind(error)) from error

    def _answer(self, connection: HTTPConnection, request: Request) -> Answer:
        if connection.sock is None:
            connection.connect()
        its_socket = connection.sock
        its_socket.settimeout(request.limit)
        connection.request(request.method, request.target, headers=request.headers)
        response = connection.getresponse()
        try:
            if response.status not in (200, 206):
                self._refused(response)
            return Answer(self, connection, response, its_socket)
        except BaseException:
            response.close()
            connection.close()
            raise

    def _refused(self, response: HTTPResponse) -> None:
        try:
            found = re.search(rb"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>", response.read(65536))
        except (OSError, HTTPException):
            found = None
        status = response.status
        code = found[1].decode() if found else str(status)
        if code in EXPIRED:
            self._signer.renew()
        elif not (status >= 500 or status in TRANSIENT or code in TRANSIENT_CODES):  # noqa: PLR2004 - server errors
            raise Refused(status, code, response.headers.get("x-amz-bucket-region", ""))
        raise Broken(f"{status} {code}", status, code)

    def _kept(self) -> HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if 0 <= time.time() - since < KEPT:
                return connection
            connection.close()

    def _connection(self, timeout: float) -> HTTPConnection:
        to = self._proxy or self._url
        made = _connection(to, timeout, self._tls)
        if self._proxy is not None and self._tls is not None:
            made.set_tunnel(str(self._url.hostname), self._url.port or 443, _authorization(self._proxy))
        return made


def whole(answer: Answer, seconds: float) -> bytes:
    """A small body, in memory."""
    try:
        return b"".join(iter(lambda: answer.read(seconds), b""))
    finally:
        answer.close()


def _connection(to: SplitResult, timeout: float, tls: ssl.SSLContext | None) -> HTTPConnection:
    host = to.hostname or ""
    if tls is not None:
        return HTTPSConnection(host, to.port, timeout=timeout, context=tls)
    return HTTPConnection(host, to.port, timeout=timeout)


def _close(idle: list[tuple[float, HTTPConnection]]) -> None:
    for _, connection in idle:
        connection.close()


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _number(text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise Broken("an answer without Content-Length")
    return int(text)


def _kind(error: Exception) -> str:
    """What went wrong in a word that people find again; the error's own text may hold addresses."""
    return type(error).__name__
