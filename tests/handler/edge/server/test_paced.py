"""handler.edge.server.paced: bodies that stop, or drip."""

import asyncio
from typing import Any

import pytest

from handler.edge.server import paced
from handler.edge.server.limits import Limits

PART = {"type": "http.request", "body": b"x" * 11, "more_body": True}
WHOLE = {"type": "http.request", "body": b"", "more_body": False}
GRPC = [(b"content-type", b"application/grpc")]


LIMITS = Limits(1000, 1, 0.02, 0, 1)


def asked(app: Any, *inbox: Any, pause: float = 0) -> tuple[list[Any], int]:
    """Returns what is sent for a request that goes no further than its messages, and how many of them were taken.

    `pause`: seconds before each of them.
    """
    waiting, sent = list(inbox), []

    async def receive() -> Any:
        await asyncio.sleep(pause)
        return waiting.pop(0) if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append((message["type"], message.get("status")))

    asyncio.run(asyncio.wait_for(paced.Paced(app, LIMITS)({"type": "http", "headers": []}, receive, send), 30))
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


def test_a_body_that_drips_is_refused() -> None:
    """Too few bytes within the pause count as none; enough of them begin a new one."""
    assert LIMITS.least == 20
    drops = [PART | {"body": b"x"}] * 9
    assert asked(reads, *drops, WHOLE, pause=0.004)[0][0] == ("http.response.start", 408)
    assert asked(reads, *[PART] * 9, WHOLE, pause=0.004) == (ANSWER, 10)


def test_a_call_of_grpc_may_pause() -> None:
    """Its client decides when the next message comes."""
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_pausing(), 0.2))


async def _pausing() -> None:
    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def send(_: Any) -> None:
        raise AssertionError

    await paced.Paced(reads, LIMITS)({"type": "http", "headers": GRPC}, receive, send)
