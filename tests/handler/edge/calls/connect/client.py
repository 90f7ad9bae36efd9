"""A client that calls an application in this process over Connect and gRPC-Web."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.schema import open_inference as oip
from handler.settings import Settings
from tests.support.connect_client import JSON, OIP, split
from tests.support.remote import question, raw

ROOT = Path(__file__).parents[5]
TEXT = "application/grpc-web-text"
X = np.array([1, 2.5], np.float32)
BODY = question("half_plus_three", raw("x", "FP32", X), id="1").SerializeToString()
HALVES = [3.5, 4.25]


def settings(repository: Path, **more: str) -> Settings:
    """Returns the settings of a server that may run code."""
    own = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_ALLOW_CODE": "true"}
    return Settings.from_env(own | {name: value for name, value in more.items() if value})


class Answer(NamedTuple):
    """The received answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    parts: list[bytes]

    @property
    def envelopes(self) -> list[tuple[int, bytes]]:
        """Returns flags and message of each envelope."""
        return split(self.body)

    @property
    def end(self) -> dict[str, Any]:
        """Returns the end of a Connect stream."""
        (flags, last) = self.envelopes[-1]
        assert flags == 2
        found: dict[str, Any] = json.loads(last)
        return found

    @property
    def trailers(self) -> dict[str, str]:
        """Returns the end of a gRPC-Web answer."""
        (flags, last) = self.envelopes[-1]
        assert flags == 128
        return dict(line.split(": ", 1) for line in last.decode().splitlines())

    @property
    def error(self) -> tuple[int, str, str]:
        """Returns status, code and text of a refusal by Connect."""
        assert self.headers["content-type"] == JSON
        found = json.loads(self.body)
        return self.status, found["code"], found["message"]


def untext(body: bytes) -> bytes:
    """Decodes base64 in pieces that have their own padding."""
    pieces = [piece for piece in body.split(b"=") if piece]
    return b"".join(base64.b64decode(piece + b"=" * (-len(piece) % 4)) for piece in pieces)


async def exchange(
    app: Any,
    path: str,
    content_type: str,
    body: bytes = b"",
    *,
    verb: str = "POST",
    query: str = "",
    stays: Callable[[list[Any]], Awaitable[None]] | None = None,
    **headers: str,
) -> Answer:
    """Makes one call. The client leaves when `stays` returns, which gets what was sent so far; None: it stays."""
    given = {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    inbox = [{"type": "http.request", "body": body[:7], "more_body": True}, {"type": "http.request", "body": body[7:]}]
    sent: list[Any] = []

    async def receive() -> Any:
        if inbox:
            return inbox.pop(0)
        await (asyncio.Event().wait() if stays is None else stays(sent))
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": verb,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    start, *parts = sent
    content = [part["body"] for part in parts]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(content), content)


def call(app: Any, method: str, content_type: str, body: bytes = b"", service: str = OIP, **more: Any) -> Answer:
    """Makes one call from beginning to end."""
    return asyncio.run(asyncio.wait_for(exchange(app, f"/{service}/{method}", content_type, body, **more), 60))


def streamed(answer: Answer) -> list[oip.ModelStreamInferResponse]:
    """Returns the answers of ModelStreamInfer, without the end."""
    return [oip.ModelStreamInferResponse.FromString(message) for _, message in answer.envelopes[:-1]]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an event that is sure to come."""
    while not condition():  # noqa: ASYNC110 - a file or a list has no event
        await asyncio.sleep(0.005)
