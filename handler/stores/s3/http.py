"""GET requests to one bucket over HTTP/1.1, on connections that are kept.

botocore's own client takes 2.5 ms of CPU for a GetObject and never asks again for a body that breaks off. This one
takes a sixth. It raises Broken if a retry can succeed, and StoreRefused if none can.
"""

import re
import ssl
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, Protocol, cast
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from core.records import NamedTuple
from handler.stores.transfer.answers import (
    Answer,
    Body,
    Broken,
    Line,
    ObjectRequest,
    StoreRefused,
    TimedResponse,
    broken_off,
    in_words,
    is_transient,
    limit,
    whole,
)

CONNECT: Final = 3.0
KEPT: Final = 4.0
"""Seconds for which an idle connection is kept: S3 closes it after 5, and a frozen function does not notice."""
MOST_IDLE: Final = 32
TRANSIENT_CODES: Final = {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "ThrottlingException"}
EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
LEAST: Final = "list-type=2&max-keys=1"
FORGED: Final = {"SignatureDoesNotMatch", "InvalidSignature"}
CLOSED: Final = ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError
"""The errors of a connection that the store closed while it was idle."""


class Signer(Protocol):
    def sign(self, method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the signed headers of a request without a body. Raises ServingError without credentials."""
        ...

    def renew(self) -> None:
        """Looks for credentials anew: the store says that these have expired."""
        ...


class SignedRequest(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]


class BucketReader:
    """Reads a bucket. `base`: its URL; an object is at `base/key`. `proxy`: its URL, with a login if it wants one."""

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

    def get(self, asked: ObjectRequest, seconds: float, line: Line | None = None) -> Answer:
        """See ObjectReader.get."""
        until = time.monotonic() + seconds
        url = f"{self._base}/{quote(asked.key, safe='/~')}"
        if asked.headers is not None:
            request = self._request("GET", url, {}, asked.headers)
        else:
            request = self._request("GET" if asked.body else "HEAD", url, {"x-amz-checksum-mode": "ENABLED"}, {})
        answered = self._ask(request, until, line or Line())
        try:
            return Answer.of(answered)
        except (Broken, StoreRefused):
            answered.close()
            raise

    def list(self, parameters: Mapping[str, str], seconds: float) -> tuple[bytes, str]:
        """Returns ListObjectsV2's document, and the answer's Date, empty without one. Raises Broken, StoreRefused."""
        until = time.monotonic() + seconds
        query = urlencode(
            sorted({"list-type": "2", "encoding-type": "url", **parameters}.items()), quote_via=quote, safe="~"
        )
        url = f"{self._base}?{query}" if self._url.path else f"{self._base}/?{query}"
        answered = self._ask(self._request("GET", url, {}, {}), until, Line())
        return whole(answered, until - time.monotonic()), answered.headers.get("Date", "")

    def forged(self, seconds: float) -> bool:
        """Decides whether the store distinguishes a wrong signature from a missing permission. Raises Broken.

        Sends a listing whose signature is wrong in its last digit.
        """
        request = self._request("GET", f"{self._base}?{LEAST}" if self._url.path else f"{self._base}/?{LEAST}", {}, {})
        signature = request.headers.get("Authorization", "")
        request.headers["Authorization"] = signature[:-1] + ("1" if signature.endswith("0") else "0")
        try:
            self._ask(request, time.monotonic() + seconds, Line()).close()
        except StoreRefused as refused:
            return refused.code in FORGED
        return False

    def _give_back(self, connection: HTTPConnection, reusable: bool) -> None:  # noqa: FBT001 - of `partial`
        with self._lock:
            if reusable and len(self._idle) < MOST_IDLE:
                self._idle.append((time.time(), connection))
                return
        connection.close()

    def _request(self, method: str, url: str, signed: Mapping[str, str], unsigned: Mapping[str, str]) -> SignedRequest:
        headers = {**self._signer.sign(method, url, signed), **unsigned, "User-Agent": "dragoman"}
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if self._proxy is not None and self._tls is None:
            target = url
            headers |= _authorization(self._proxy)
        return SignedRequest(method, target, headers)

    def _ask(self, request: SignedRequest, until: float, line: Line) -> Body:
        """Sends a request on an idle connection or a new one. `until`: the deadline, on time.monotonic()."""
        try:
            connection = self._kept()
            if connection is not None:
                with suppress(*CLOSED):  # the error concerns the connection, not the request
                    return self._answer(connection, request, until, line)
            connection = self._connection(min(CONNECT, limit(until - time.monotonic())))
            return self._answer(connection, request, until, line)
        except (OSError, HTTPException) as error:
            raise Broken.of(error) from error

    def _answer(self, connection: HTTPConnection, request: SignedRequest, until: float, line: Line) -> Body:
        try:
            if connection.sock is None:
                connection.connect()
            line.hold(broken_off(connection.sock))
            seconds = limit(until - time.monotonic())
            connection.sock.settimeout(seconds)
            connection.request(request.method, request.target, headers=request.headers)
            connection.response_class = partial(TimedResponse, within=seconds)  # type: ignore[assignment] # is called
            response = cast("TimedResponse", connection.getresponse())
            if response.status not in (200, 206):
                self._refused(response, until)
            return Body(response, line, partial(self._give_back, connection))
        except BaseException:
            line.hold(None)
            connection.close()
            raise

    def _refused(self, response: TimedResponse, until: float) -> None:
        """Raises StoreRefused or Broken, by status and S3's error code."""
        document = b""
        with suppress(OSError, HTTPException):
            response.within(limit(until - time.monotonic()))
            with response:
                document = response.read(65536)
        status = response.status
        code = _text(b"Code", document) or str(status)
        if code in EXPIRED:
            self._signer.renew()
        elif not (is_transient(status) or code in TRANSIENT_CODES):
            region = response.headers.get("x-amz-bucket-region") or _text(b"Region", document)  # Garage: the latter
            raise StoreRefused(status, code, region)
        raise Broken(in_words(status, code), status, code)

    def _kept(self) -> HTTPConnection | None:
        """Returns an idle connection, None without one that is young enough."""
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


def _text(name: bytes, document: bytes) -> str:
    """Returns the text of an element of S3's error document, "" without one."""
    found = re.search(rb"<%b>\s*([A-Za-z0-9.-]{1,64})\s*</%b>" % (name, name), document)
    return "" if found is None else found[1].decode()


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
