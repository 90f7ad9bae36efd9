"""`dragoman serve --lambda`: an ASGI application that is to the function what API Gateway is, with its limits."""

import asyncio
import json
import logging
import zlib
from collections.abc import Mapping
from typing import Any, Final

from core.records import NamedTuple
from core.wire import JSON
from handler.commands.serve import events
from handler.commands.serve.events import Came, Goes
from handler.commands.serve.function import FunctionFailed, FunctionTimedOut, LambdaInstance
from handler.edge.function.answers import LARGEST_RESPONSE

log = logging.getLogger("dragoman.lambda")
SECONDS: Final = 29.0
"""API Gateway waits this long for a function, whose own timeout is the same in template.yaml."""
LARGEST_BODY: Final = 10 * 2**20
"""The most bytes of a request that API Gateway takes."""
LARGEST_EVENT: Final = 6 * 2**20
"""The most bytes of an event that Lambda takes."""
GZIP: Final = 31
"""zlib's name for gzip with its header."""


class Api(NamedTuple):
    """One kind of API Gateway's APIs: its stage, and the answers of its own, by status."""

    stage: str
    prefix: str
    is_http: bool
    own: Mapping[str, tuple[int, str]]


APIS: Final = {
    "rest": Api("Prod", "/Prod", is_http=False, own={
        "path": (403, "Missing Authentication Token"),
        "large": (413, "Request Too Long"),
        "coding": (415, "Unsupported Media Type"),
        "failed": (502, "Internal server error"),
        "late": (504, "Endpoint request timed out"),
    }),
    "http": Api("$default", "", is_http=True, own={
        "path": (404, "Not Found"),
        "large": (413, "Request Entity Too Large"),
        "failed": (500, "Internal Server Error"),
        "late": (503, "Service Unavailable"),
    }),
}  # fmt: skip


class Gateway:
    """Makes an event of each request, and an answer of the function's result."""

    def __init__(self, api: Api, environ: Mapping[str, str]) -> None:
        self._api = api
        self._instance = LambdaInstance(environ, SECONDS, log.info)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await asyncio.to_thread(self._instance.close)
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = await _gathered(receive)
        if body is None:
            goes = self._own("large", "the request has more than 10 MB")
        else:
            goes = await self._in_time(scope, body)
        await send({"type": "http.response.start", "status": goes.status, "headers": _framed(goes)})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else goes.body})

    async def _in_time(self, scope: Any, body: bytes) -> Goes:
        """Returns the answer, or the gateway's own one if the server ends before."""
        try:
            return await asyncio.to_thread(self._answer, scope, body)
        except asyncio.CancelledError:
            return self._own("failed", "the server stops before the function has answered")

    def _answer(self, scope: Any, body: bytes) -> Goes:
        path = scope["raw_path"].decode("latin-1")
        below = path.removeprefix(self._api.prefix)
        if self._api.prefix and (below == path or (not below.startswith(("/", "?")) and below)):
            return self._own("path", f"{path} is not below the stage, {self._api.prefix}")
        headers = tuple(scope["headers"])
        try:
            inflated = body if self._api.is_http else _inflated(headers, body)
        except zlib.error:
            return self._own("coding", "the body is not gzip, or it is not complete")
        if len(inflated) > LARGEST_BODY:
            return self._own("large", "the body has more than 10 MB when gzip is inflated")
        peer = (scope.get("client") or ("127.0.0.1",))[0]
        query = scope["query_string"].decode("latin-1")
        came = Came(scope["method"], below or "/", query, headers, inflated, peer, self._api.stage)
        return self._invoked(events.http(came) if self._api.is_http else events.rest(came))

    def _invoked(self, event: dict[str, Any]) -> Goes:
        size = len(json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogateescape"))
        if size > LARGEST_EVENT:
            return self._own("large", f"the event has {size} bytes; Lambda takes {LARGEST_EVENT}")
        try:
            invoked = self._instance.invoke(event)
            if invoked.size > LARGEST_RESPONSE:
                return self._own("failed", f"the answer has {invoked.size} bytes; Lambda takes {LARGEST_RESPONSE}")
            return events.answer(invoked.answer, is_http=self._api.is_http)
        except FunctionTimedOut:
            return self._own("late", "the function did not answer in time")
        except (FunctionFailed, events.WrongAnswer) as error:
            return self._own("failed", str(error))

    def _own(self, kind: str, why: str) -> Goes:
        """Returns API Gateway's own answer, which does not say why. The log does."""
        status, text = self._api.own[kind]
        log.warning("API Gateway answers %d %s: %s", status, text, why[:1024])
        return Goes(status, (JSON,), json.dumps({"message": text}).encode())


async def _gathered(receive: Any) -> bytes | None:
    """Returns the body of a request, None if it is too large. Reads it to its end, and keeps no more than the limit."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size <= LARGEST_BODY:
            parts.append(part)
    return b"".join(parts) if size <= LARGEST_BODY else None


def _inflated(headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> bytes:
    """Returns the body as a REST API passes it: it inflates gzip, up to a byte above the limit. Raises zlib.error."""
    if (b"content-encoding", b"gzip") not in headers:
        return body
    inflater = zlib.decompressobj(GZIP)
    inflated = inflater.decompress(body, LARGEST_BODY + 1)
    if not inflater.eof and len(inflated) <= LARGEST_BODY:
        raise zlib.error
    return inflated


def _framed(goes: Goes) -> list[tuple[bytes, bytes]]:
    return [*goes.headers, (b"content-length", b"%d" % len(goes.body))]
