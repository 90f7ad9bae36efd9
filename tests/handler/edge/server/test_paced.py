"""handler.edge.server.paced: bodies that stop, and answers that come before a body's end."""

import asyncio
from typing import Any

import pytest

from handler.edge.server import paced

PART = {"type": "http.request", "body": b"x", "more_body": True}
WHOLE = {"type": "http.request", "body": b"", "more_body": False}
GRPC = [(b"content-type", b"application/grpc")]


def asked(app: Any, *inbox: Any, headers: Any = (), seconds: float = 0.01) -> tuple[list[Any], int]:
    """Returns what is sent for a request that goes no further than its messages, and how many of them were taken."""
    waiting, sent = list(inbox), []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append((message["type"], message.get("status")))

    scope = {"type": "http", "headers": list(headers)}
    asyncio.run(asyncio.wait_for(paced.Paced(app, seconds)(scope, receive, send), 30))
    return sent, len(inbox) - len(waiting)


async def reads(_scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, and answers unless the client has left."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await answers(_scope, receive, send)


async def answers(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers at once, with trailers."""
    await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
    await send({"type": "http.response.body", "body": b""})
    await send({"type": "http.response.trailers", "headers": []})


ANSWER = [("http.response.start", 200), ("http.response.body", None), ("http.response.trailers", None)]


def test_a_body_that_stops_is_refused() -> None:
    """The client may be there still. One whose body is whole gets the answer."""
    assert asked(reads, PART) == ([("http.response.start", 408), ("http.response.body", None)], 1)
    assert asked(reads, PART, WHOLE) == (ANSWER, 2)


def test_a_call_of_grpc_may_pause() -> None:
    """Its client decides when the next message comes."""
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_pausing(), 0.2))


async def _pausing() -> None:
    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def send(_: Any) -> None:
        raise AssertionError

    await paced.Paced(reads, 0.01)({"type": "http", "headers": GRPC}, receive, send)


@pytest.mark.parametrize("headers", [(), GRPC])
def test_the_end_of_an_answer_waits_for_that_of_the_request(headers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypercorn ends the connection otherwise. A body without an end cannot hold the answer back for long."""
    assert asked(answers, PART, PART, WHOLE, headers=headers, seconds=30) == (ANSWER, 3)
    monkeypatch.setattr(paced, "LINGERING_SECONDS", 0.01)
    assert asked(answers, PART, headers=headers, seconds=30) == (ANSWER, 1)


def test_a_client_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that has gone: hypercorn would wait for it without an end."""
    monkeypatch.setattr(paced, "CALL_SECONDS", 0.01)

    async def stuck(_: Any) -> None:
        await asyncio.Event().wait()

    async def whole() -> Any:
        return WHOLE

    for headers in ((), GRPC):
        scope = {"type": "http", "headers": list(headers)}
        asyncio.run(asyncio.wait_for(paced.Paced(answers, 0.01)(scope, whole, stuck), 30))
    assert asked(answers, PART, {"type": "http.disconnect"}, seconds=30)[0] == ANSWER[:2]


def test_everything_else_passes() -> None:
    """Lifespan messages, for example."""
    seen = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(paced.Paced(app, 1)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"]
