"""Decides where a request comes from: this machine or another one, a page of this server or of another site."""

import re
from collections.abc import Iterable
from typing import Any, Final

from core.wire import Header, HttpStream
from handler.edge.exchange import SAFE, Scope, Send

EVENT: Final = "aws.event"
"""The member of Mangum's scope with Lambda's event."""
FORWARDED: Final = frozenset((b"forwarded", b"via", b"x-real-ip", b"x-envoy-external-address", b"x-amzn-trace-id"))
"""Headers that a proxy adds, beside x-forwarded-*: behind it, every client has the proxy's address."""
LOOPBACK: Final = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{0,5})?")
PORT: Final = re.compile(r":[0-9]{0,5}$")
OWN_SITE: Final = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site (W3C, Fetch Metadata) for requests of the server's own pages, and of a person."""
AGENT: Final = b"user-agent"
BROWSER: Final = b"Mozilla/"
"""The start of every browser's User-Agent, and of no other client's of this server."""
ALLOWED: Final = (
    b"authorization, x-api-key, content-type, content-encoding, inference-header-content-length, "
    b"connect-protocol-version, connect-timeout-ms, connect-content-encoding, connect-accept-encoding, "
    b"x-request-id, x-grpc-web, x-user-agent, grpc-timeout, grpc-encoding, grpc-accept-encoding"
)
EXPOSED: Final = (
    b"grpc-status, grpc-message, grpc-status-details-bin, grpc-encoding, connect-content-encoding, "
    b"inference-header-content-length, model-version, server-timing, retry-after, www-authenticate, x-request-id"
)
METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
MAX_AGE: Final = b"600"
WANTED: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]{0,2048}")
"""The header names that a preflight asks for; what else it holds is not echoed."""
VARY: Final = b"vary"


def is_local(scope: Scope) -> bool:
    """Decides whether the peer is a process of this machine, and not a proxy that speaks for another."""
    client = scope.get("client")
    if not client or EVENT in scope:
        return False
    if any(name in FORWARDED or name.startswith(b"x-forwarded-") for name, _ in scope["headers"]):
        return False
    host = str(client[0])
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


def is_cross_site(scope: Scope) -> bool:
    """Decides whether a browser sends the request for a page of another origin (Fetch Metadata; RFC 6454).

    An image of a page is asked for with GET and without an Origin, and over plain HTTP without Fetch Metadata, too:
    then a browser's GET could be any page's.
    """
    hosts, sites = _values(scope, b"host"), _values(scope, b"sec-fetch-site")
    if any(site.lower() not in OWN_SITE for site in sites):
        return True
    if not sites and scope["method"] in SAFE and any(agent.startswith(BROWSER) for agent in _values(scope, AGENT)):
        return True
    return any(origin.partition(b"://")[2] not in hosts for origin in _values(scope, b"origin"))


def is_rebound(scope: Scope) -> bool:
    """Decides whether the client knows this machine by a foreign name, as a page does after DNS rebinding."""
    bound = str((scope.get("server") or ("",))[0]) or None
    hosts = (host.decode("latin-1").lower() for host in _values(scope, b"host"))
    return any(not LOOPBACK.fullmatch(host) and PORT.sub("", host).strip("[]") != bound for host in hosts)


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


class Sharing:
    """CORS (W3C Fetch): which pages of other sites may call this server, by DRAGOMAN_CORS_ORIGINS."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._every = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, scope: Scope) -> HttpStream | None:
        """Returns the answer to a browser's question in advance, which has no credential; None for another request.

        It is a stream without parts: a 204 has no Content-Length.
        """
        wanted = _values(scope, b"access-control-request-method")
        if scope["method"] != "OPTIONS" or not wanted or not _values(scope, b"origin"):
            return None
        asked = b", ".join(_values(scope, b"access-control-request-headers"))
        headers = ALLOWED + b", " + asked if asked and WANTED.fullmatch(asked) else ALLOWED
        more: tuple[Header, ...] = (
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", headers),
            (b"access-control-max-age", MAX_AGE),
            (VARY, b"access-control-request-headers"),
        )
        return HttpStream(204, more, ())

    def wrapped(self, scope: Scope, send: Send) -> Send:
        """Returns `send` with the headers that let the page read the answer, errors included."""

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self.shared(scope, message.get("headers", ()))
            await send(message)

        return sending

    def shared(self, scope: Scope, headers: Iterable[Header]) -> list[Header]:
        """Returns an answer's headers with those that let the page read it."""
        origin = next(iter(_values(scope, b"origin")), b"")
        headers = list(headers)
        if self._every:
            return [*headers, (b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED)]
        # A cache must not keep the answer to one origin for another, one without permission included.
        vary = b", ".join([*(value for name, value in headers if name == VARY), b"origin"])
        headers = [*(header for header in headers if header[0] != VARY), (VARY, vary)]
        if origin not in self._origins:
            return headers
        return [
            *headers,
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", EXPOSED),
        ]
