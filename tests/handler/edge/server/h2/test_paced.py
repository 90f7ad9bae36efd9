"""handler.edge.server.h2.paced: bodies that stop, or drip."""

import asyncio
from typing import Any

import pytest

from handler.edge.exchange import let_go
from handler.edge.server.h2 import paced
from handler.edge.server.limits import Limits

PART = {"type": "http.request", "body": b"x" * 11, "more_body": True}
WHOLE = {"type": "http.request", "body": b"", "more_body": False}
GRPC = [(b"content-type", b"application/grpc")]
METHOD = "/inference.GRPCInferenceService/ModelInfer"


LIMITS = Limits(1000, 1, 0.2, 0, 1)


def asked(app: Any, *inbox: Any, pause: float = 0, scope: Any = None) -> tuple[list[Any], int]:
    """Returns what is sent for a request that goes no further than its messages, and how many of them were taken.

    `pause`: seconds before each of them. `scope`: the request's head.
    """
    waiting, sent = list(inbox), []

    async def receive() -> Any:
        await asyncio.sleep(pause)
        return waiting.pop(0) if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append((message["type"], message.get("status")))

    scope = scope or {"type": "http", "path": "/", "headers": []}
    asyncio.run(asyncio.wait_for(paced.Paced(app, LIMITS)(scope, receive, send), 30))
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
    assert LIMITS.least == 204
    enough = PART | {"body": b"x" * 204}
    assert asked(reads, *[PART] * 9, WHOLE, pause=0.04)[0][0] == ("http.response.start", 408)
    assert asked(reads, *[enough] * 9, WHOLE, pause=0.04) == (ANSWER, 10)


def test_an_application_can_end_the_limit() -> None:
    """A stream whose answers are read meanwhile has a client that decides when it sends."""

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        let_go(scope)
        await reads(scope, receive, send)

    asked_for = {"type": "http", "path": METHOD, "headers": []}
    assert asked(streams, *[PART] * 9, WHOLE, pause=0.04, scope=asked_for) == (ANSWER, 10)


def test_a_call_of_grpc_may_pause() -> None:
    """Its client decides when the next message comes."""
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_pausing(), 3 * LIMITS.pause))


@pytest.mark.parametrize(
    ("path", "types"),
    [
        ("/v2/models/iris/infer", [b"application/grpc"]),
        (METHOD, [b"application/grpc-web+proto"]),
        (METHOD, [b"application/grpcs"]),
        (METHOD, [b"application/json", b"application/grpc"]),
        (METHOD, []),
    ],
)
def test_a_type_alone_gives_no_time(path: str, types: list[bytes]) -> None:
    """Any client can send the type of gRPC. Only the calls of gRPC itself have limits of their own."""
    asked_for = {"type": "http", "path": path, "headers": [(b"content-type", each) for each in types]}
    assert asked(reads, PART, scope=asked_for) == ([("http.response.start", 408), ("http.response.body", None)], 1)


async def _pausing() -> None:
    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def send(_: Any) -> None:
        raise AssertionError

    await paced.Paced(reads, LIMITS)({"type": "http", "path": METHOD, "headers": GRPC}, receive, send)
