"""Asks the whole application for pages, as a browser or a program would."""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from handler.edge.app import App
from tests.support.asgi import application, spoken

ROOT = Path(__file__).parents[3]
serving = partial(application, inline=True)


@dataclass(frozen=True)
class Answer:
    """The received answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def value(self) -> Any:
        """Returns the body as JSON."""
        return json.loads(self.text)


def ask(app: App, path: str, method: str = "GET", body: bytes = b"", **where: str) -> Answer:
    """Sends one request, as a server would hand it over.

    `where`: what the client accepts, its key, the host, the root path in front of the application, the query, the
    media type of the body, and the scheme ("": the server names none).
    """
    root, host, accept = where.get("root", ""), where.get("host", "127.0.0.1:8080"), where.get("accept", "text/html")
    media = [(b"content-type", where["media"].encode())] if "media" in where else []
    media += [(b"x-api-key", where["key"].encode())] if "key" in where else []
    scheme = {"scheme": where.get("scheme", "http")} if where.get("scheme") != "" else {}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, **scheme,
        "path": root + path, "raw_path": (root + path).encode(), "root_path": root,
        "query_string": where.get("query", "").encode(),
        "headers": [(b"host", host.encode()), (b"accept", accept.encode()), *media], "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
    }  # fmt: skip
    sent = asyncio.run(spoken(app, scope, {"type": "http.request", "body": body, "more_body": False}))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]).decode())


INPUTS = b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}'


def infer(app: App, model: str = "iris", body: bytes = INPUTS) -> Answer:
    """Sends an inference, which loads the model."""
    return ask(app, f"/v2/models/{model}/infer", "POST", body)
