"""Requests with an Upgrade header. The server ignores the offer, as RFC 9110 7.8 permits.

Java's HttpClient offers HTTP/2 with every request to an `http://` address, and so does `curl --http2`. httptools takes
what follows such a head for the other protocol, so that the body would be lost.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httptools


def declined(parser: Any, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the head that `parser` has read, without the offer. b"" for CONNECT, which is not an offer."""
    method: bytes = parser.get_method()
    if method == b"CONNECT":
        return b""
    start = b"%s %s HTTP/%s" % (method, url, parser.get_http_version().encode())
    lines = [b"%s: %s" % header for header in headers if header[0] != b"upgrade"]
    return b"\r\n".join((start, *lines, b"", b""))


def parser(connection: Any) -> Any:
    """Returns a parser for the rest of a connection, with what uvicorn permits: bytes behind the last request."""
    made = httptools.HttpRequestParser(connection)
    with suppress(AttributeError):  # httptools < 0.6.3
        made.set_dangerous_leniencies(lenient_data_after_close=True)
    return made
