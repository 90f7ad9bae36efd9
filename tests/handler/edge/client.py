"""A client that sends requests to an application in this process, one ASGI message at a time."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from handler.edge.app import App
from tests.support.asgi import application, spoken

ROOT = Path(__file__).parents[3]
BODY = json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]}).encode()
INFER = "/v2/models/half_plus_three/infer"
make = application


def lifespan(app: Any) -> list[str]:
    """Starts an application and shuts it down. Returns the types of the messages that it sent."""
    inbox = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    return [message["type"] for message in asyncio.run(spoken(app, {"type": "lifespan"}, *inbox))]


async def exchange(
    app: App, method: str, path: str, *messages: dict[str, Any], **scope: Any
) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body; (0, {}, b"") if there was no answer."""
    base = {"type": "http", "method": method, "path": path, "headers": [], "client": ("127.0.0.1", 1)}
    sent = await spoken(app, base | scope, *(messages or [{"type": "http.request"}]))
    if not sent:
        return 0, {}, b""
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, bytes(sent[1]["body"])


def ask(app: App, method: str, path: str, body: bytes = b"", **scope: Any) -> tuple[int, dict[str, str], bytes]:
    """Sends one request in one message."""
    return asyncio.run(exchange(app, method, path, {"type": "http.request", "body": body}, **scope))


def watched(app: App, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the work that threads for inference get from now on."""
    workers: Any = app.dispatcher._workers  # type: ignore[union-attr] # of Threads
    changed, run = [], workers.run

    async def noted(work: Any, *arguments: Any, **options: Any) -> Any:
        changed.append(work)
        return await run(work, *arguments, **options)

    monkeypatch.setattr(workers, "run", noted)
    return changed
