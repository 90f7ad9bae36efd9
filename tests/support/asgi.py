"""The application in this process, without a network or more threads: a fuzzer can ask thousands of questions."""

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from handler.edge.app import App
from handler.settings import Settings
from tests.support.wire import TIMEOUT, Answer

ROOT: Final = Path(__file__).parents[2]
BODILESS: Final = {204, 304}
T = TypeVar("T")


def application(repository: Path | str = ROOT / "models", *, inline: bool = False, **settings: str) -> App:
    """Makes the application of a repository; `settings` have no prefix, and it has no threads if it is inline."""
    environ = {"REPOSITORY": str(repository), **settings}
    return App(Settings.from_env({f"DRAGOMAN_{name}": value for name, value in environ.items()}), inline=inline)


async def spoken(app: Any, scope: Mapping[str, Any], *inbox: Mapping[str, Any], leaves: bool = False) -> list[Any]:
    """Makes one call. Returns what the application sent. The client leaves after its last message, or it stays."""
    left, sent = list(inbox), list[Any]()

    async def receive() -> Any:
        if not left and not leaves:
            await asyncio.Event().wait()
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


class Local:
    """The application and its event loop."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.runner = asyncio.Runner()

    def close(self) -> None:
        """Ends the loop and the application."""
        self.runner.close()
        self.app.close()

    def run(self, work: Awaitable[T]) -> T:
        """Returns the result of the work, which runs in the application's loop."""
        return self.runner.run(asyncio.wait_for(work, TIMEOUT))

    def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str | bytes] | None = None,
        *,
        stays: bool = False,
    ) -> Answer:
        """Returns the answer; the client leaves when that has begun, or stays. Raises what the application raises."""
        return self.run(self._call(method, target, body, headers or {}, stays=stays))

    async def _call(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str | bytes], *, stays: bool
    ) -> Answer:
        path, _, query = target.partition("?")
        pairs = [
            (k.lower().encode("latin-1"), v if isinstance(v, bytes) else v.encode("latin-1"))
            for k, v in headers.items()
        ]
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
            "headers": [(b"host", b"localhost"), (b"content-length", b"%d" % len(body)), *pairs],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        half = len(body) // 2  # a body in two pieces, as servers pass large ones
        inbox = [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:], "more_body": False},
        ]
        outbox: list[dict[str, Any]] = []
        begun = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not inbox:
                await (asyncio.Event() if stays else begun).wait()
            return inbox.pop(0) if inbox else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            outbox.append(message)
            begun.set()

        await self.app(scope, receive, send)
        return _answer(outbox, method, streams=stays)


def _answer(outbox: list[dict[str, Any]], method: str, *, streams: bool) -> Answer:
    """Checks that ASGI permits the messages."""
    start, *bodies = outbox
    assert start["type"] == "http.response.start"
    assert bodies
    assert all(message["type"] == "http.response.body" for message in bodies)
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    content = b"".join(message.get("body", b"") for message in bodies)
    names = [name for name, _ in start["headers"]]
    assert all(name == name.lower() for name in names)
    assert len(set(names)) == len(names)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
    assert not any(character in value for value in headers.values() for character in "\r\n\0")
    if method != "HEAD" and start["status"] not in BODILESS:
        assert int(headers.get("content-length", len(content) if streams else -1)) == len(content)
    return Answer(start["status"], headers, content)
