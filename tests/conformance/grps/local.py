"""The application in this process, for a client that stays until its answer has come, in pieces or in one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from tests.conformance.wire import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from handler.app import App

SECONDS: Final = 30


class Patient:
    """The application and an event loop of its own."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.runner = asyncio.Runner()

    def close(self) -> None:
        """End both."""
        self.runner.close()
        self.app.close()

    def run(self, work: Awaitable[Any]) -> Any:
        """What the work gives, in the application's loop."""
        return self.runner.run(asyncio.wait_for(work, SECONDS))

    def call(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """One exchange; any exception of the application is the caller's."""
        answer: Answer = self.run(self._call(method, target, body, headers or {}))
        return answer

    async def _call(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, query = target.partition("?")
        given = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode("utf-8", "surrogateescape"),
            "query_string": query.encode("utf-8", "surrogateescape"),
            "root_path": "",
            "headers": [(b"host", b"local"), (b"content-length", b"%d" % len(body)), *given],
        }
        inbox = [{"type": "http.request", "body": body, "more_body": False}]
        outbox: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not inbox:
                await asyncio.Event().wait()
            return inbox.pop()

        async def send(message: dict[str, Any]) -> None:
            outbox.append(message)

        await self.app(scope, receive, send)
        start, *pieces = outbox
        assert not pieces[-1].get("more_body", False)
        content = b"".join(piece.get("body", b"") for piece in pieces)
        found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        assert method == "HEAD" or int(found.get("content-length", len(content))) == len(content)
        return Answer(start["status"], found, content)
