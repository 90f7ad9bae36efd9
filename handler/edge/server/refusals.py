"""Answers to requests that no application gets, and answers to clients of HTTP/1.0."""

import re
from http import HTTPStatus
from typing import Any, Final

from core.dialects import refusing
from core.errors import InvalidInput, NotSupported, ServingError, TimedOut, TooLarge
from core.wire import JSON, RETRY_SOON, HttpError, Part
from handler.edge.exchange import Receive, Scope, Send, path_of

MOST_HEADERS: Final = 256
METHOD: Final = re.compile(rb"[\w!#$%&'*+.^`|~-]{1,32}+ (\S*)")
"""Matches a method, which is any token in RFC 9110, and a URL. HTTP/1.1's parser knows the registered methods."""
HOST: Final = re.compile(
    rb"(?:(?:[\w.~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2}|(?!))*+|\[[0-9A-Fa-f:.]+(?:%[\w.~%-]+)?\]|\[v[\w.~!$&'()*+,;=:-]+\])"
    rb"(?::0*+(?:[0-9]{0,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
)
"""Matches a host and perhaps a port (RFC 3986 3.2.2, 3.2.3; RFC 6874 for the zone of an address). It can be empty.

`|(?!)` never matches, and Python before 3.11.5 needs it: see CONTRIBUTING.md."""
Headers = list[tuple[bytes, bytes]]


class Unserved(HttpError):
    """The failure of a request that no application gets."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = int(status)


class Refusal:
    """An ASGI application that refuses a request and ends its connection. `path`: of the protocol of its text."""

    def __init__(self, status: HTTPStatus, reason: str, *more: tuple[bytes, bytes], path: str = "/") -> None:
        self.status = status
        self.reason = reason
        self.more = more
        self.body = _of_call(self.error()) if path_of({"path": path})[1] else _of_route(status, reason, path)
        self.headers = [JSON, (b"content-length", b"%d" % len(self.body)), *more, (b"connection", b"close")]

    def at(self, url: bytes) -> "Refusal":
        """Returns the refusal in the format of the protocol that owns the URL's path. A part of the URL may do."""
        return Refusal(self.status, self.reason, *self.more, path=url.partition(b"?")[0].decode("latin-1"))

    def error(self) -> ServingError:
        """Returns the failure of a remote call."""
        return OF_CALLS.get(self.status, InvalidInput)(self.reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        await send({"type": "http.response.start", "status": int(self.status), "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})

    def raw(self, default_headers: Headers) -> bytes:
        """Returns the whole answer in its bytes on the wire."""
        lines = [b"HTTP/1.1 %d %b" % (self.status, self.status.phrase.encode())]
        lines += [b"%b: %b" % header for header in (*default_headers, *self.headers)]
        return b"\r\n".join((*lines, b"", self.body))


def _of_route(status: HTTPStatus, reason: str, path: str) -> bytes:
    return b"".join(refusing(path).refuse(Unserved(status, reason), "", "").parts)


def _of_call(error: ServingError) -> bytes:
    """Returns the JSON of Connect, whose clients show no other text."""
    from core.dialects.connect import ends  # noqa: PLC0415 - not for servers whose clients speak REST alone

    return b"".join(ends.refusal(error).parts)


OF_CALLS: Final[dict[HTTPStatus, type[ServingError]]] = {
    HTTPStatus.REQUEST_TIMEOUT: TimedOut,
    HTTPStatus.REQUEST_URI_TOO_LONG: TooLarge,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: TooLarge,
    HTTPStatus.NOT_IMPLEMENTED: NotSupported,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: NotSupported,
}
"""The failures of remote calls, whose codes clients read; others are the client's mistakes."""
MALFORMED: Final = Refusal(HTTPStatus.BAD_REQUEST, "the request is not valid HTTP/1.1")
HOSTS: Final = Refusal(HTTPStatus.BAD_REQUEST, "the request has no Host header, or several; HTTP/1.1 needs one")
WRONG_HOST: Final = Refusal(
    HTTPStatus.BAD_REQUEST, "the request's Host header is malformed; expected HOST or HOST:PORT"
)
MANY_HEADERS: Final = Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request has more than {MOST_HEADERS} headers"
)
OTHER_VERSION: Final = Refusal(
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the request's version of HTTP is not served; send HTTP/1.1"
)
OTHER_METHOD: Final = Refusal(
    HTTPStatus.NOT_IMPLEMENTED, "the request's method is not known; expected GET, POST, HEAD or another one of HTTP"
)
OTHER_CODING: Final = Refusal(
    HTTPStatus.NOT_IMPLEMENTED, "the request's transfer-encoding is not served; expected chunked, and content-encoding"
)
WEBSOCKET: Final = Refusal(HTTPStatus.FORBIDDEN, "websockets are not served")
LATE: Final = Refusal(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time")
CROWDED: Final = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many connections are open: try again, or raise DRAGOMAN_CONNECTIONS",
    RETRY_SOON,
)
TO_SILENT: Final = (LATE, CROWDED)
"""Refusals of clients that send nothing, or of which there are too many: nothing is read after them."""


def of_head(url: bytes, headers: Headers, most: int) -> Refusal | None:
    """Returns the refusal of a head that is too large, or whose Host is malformed. HTTP/2's authority arrives as Host.

    `most`: the bytes of its headers and its URL on the wire.
    """
    if len(headers) > MOST_HEADERS:
        return MANY_HEADERS.at(url)
    size = len(url)
    for name, value in headers:
        size += len(name) + len(value) + len(b": \r\n")
        if name == b"host" and not HOST.fullmatch(value):
            return WRONG_HOST.at(url)
    return too_long(url, most).at(url) if size > most else None


def too_long(url: bytes, most: int) -> Refusal:
    """Returns the refusal of a head with more bytes than `most`."""
    if 2 * len(url) > most:
        told = f"the URL is too long: with the headers it can have {most} bytes; send long messages with POST"
        return Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, told)
    told = f"the headers are too large: with the URL they can have {most} bytes"
    return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, told)


def of_method(head: Part) -> tuple[Refusal, bytes]:
    """Returns the refusal of a head without a known method, and its URL.

    Bytes that no method can have are not HTTP at all, and do not have a URL.
    """
    found = METHOD.match(head)
    return (MALFORMED, b"") if found is None else (OTHER_METHOD, bytes(found[1]))


class Unframed:
    """Sends an answer without a length to a client of HTTP/1.0. The answer ends with the connection.

    HTTP/1.0 does not know chunks (RFC 9112 6.1).
    """

    def __init__(self, cycle: Any) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._raw = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._raw = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if self._raw:
                self._cycle.chunked_encoding = False
        elif self._raw:
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)
