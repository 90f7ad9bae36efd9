"""handler.edge.idling: streams that wait for their client take no place from others."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from core.errors import ServerBusy
from handler.edge import idling
from handler.edge.app import App
from tests.handler.edge.client import make

WATCH = ("/grpc.health.v1.Health/Watch", "application/connect+proto")
EXCHANGE = ("/inference.GRPCInferenceService/ModelStreamInfer", "application/grpc")


async def nothing() -> Any:
    """Waits for a client that does nothing."""
    await asyncio.Event().wait()


async def sent() -> Any:
    return b"a"


def test_idle_streams_end_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest idle ones end a moment later. Their tasks go on, and are not cancelled any more."""
    monkeypatch.setattr(idling, "FRESH_SECONDS", 0.05)

    async def main() -> list[Any]:
        streams, now = idling.Idling(2), asyncio.get_running_loop().time()
        waits = [asyncio.create_task(streams.wait(nothing(), now - since)) for since in (10, 30, 20, 0)]
        done, left = await asyncio.wait(waits, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        done |= (await asyncio.wait(left, timeout=0.01))[0]
        found = [str(task.exception()) if task in done else "" for task in waits]
        assert [task.cancelling() for task in waits] == [0] * 4
        for task in left:
            task.cancel()
        return [*found, await streams.wait(sent(), now)]

    told = "more than 2 streams are idle, and this one was for longest: open it again"
    assert asyncio.run(main()) == ["", told, told, "", b"a"]


def test_idle_streams_end_in_a_later_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier loop has ended before it looked at its own."""
    monkeypatch.setattr(idling, "FRESH_SECONDS", 0.05)
    streams = idling.Idling(1)

    async def main(*, ends: bool) -> None:
        waits = [asyncio.create_task(streams.wait(nothing(), 0.0)) for _ in range(2)]
        done, left = await asyncio.wait(waits, timeout=30 if ends else 0, return_when=asyncio.FIRST_COMPLETED)
        assert [type(task.exception()) for task in done] == [ServerBusy] * ends
        for task in left:
            task.cancel()

    asyncio.run(main(ends=False))
    asyncio.run(main(ends=True))


def test_streams_that_are_not_idle_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream ends at the limit, nor does one beyond it that has just begun to wait."""
    monkeypatch.setattr(idling, "FRESH_SECONDS", 0.05)

    async def main() -> list[bool]:
        streams = idling.Idling(1)
        stays, leaves = (asyncio.create_task(streams.wait(nothing(), 0.0)) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0.2)
        stays.cancel()
        await asyncio.wait([stays, leaves])
        return [stays.cancelled(), leaves.cancelled()]

    assert asyncio.run(main()) == [True, True]


@pytest.mark.parametrize(("connections", "most"), [(1, 128), (256, 128), (768, 384)])
def test_half_of_the_places_may_be_idle(connections: int, most: int) -> None:
    """The other half is left for calls that are worked on."""
    assert idling.most_idle(connections) == most


async def opened(app: App, call: tuple[str, str], closed: asyncio.Event) -> bytes:
    """Returns how a stream over ASGI ends whose client sends nothing, or an empty message."""
    path, media_type = call
    inbox = [{"type": "http.request", "body": bytes(5) if call is WATCH else b"", "more_body": call is EXCHANGE}]
    parts: list[bytes] = []

    async def receive() -> Any:
        if inbox:
            return inbox.pop()
        await closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message.get("body", b"") + b"".join(value for _, value in message.get("headers", ())))

    head = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "extensions": {"http.response.trailers": {}},
    }
    await app({**head, "headers": [(b"content-type", media_type.encode())]}, receive, send)
    return b"".join(parts[-2:])


@pytest.mark.parametrize("call", [WATCH, EXCHANGE], ids=["watch", "exchange"])
def test_idle_streams_over_http_end_for_others(monkeypatch: pytest.MonkeyPatch, call: tuple[str, str]) -> None:
    """HTTP/2 counts them among the requests of all connections, which are limited."""
    monkeypatch.setattr(idling, "FEWEST", 2)
    monkeypatch.setattr(idling, "FRESH_SECONDS", 0.05)
    app = make(CONNECTIONS="4")

    async def main() -> tuple[list[bytes], int]:
        closed = asyncio.Event()
        calls = [asyncio.create_task(opened(app, call, closed)) for _ in range(4)]
        ends = [await first for first in islice(asyncio.as_completed(calls), 2)]
        left = sum(not each.done() for each in calls)
        closed.set()
        await asyncio.wait(calls)
        return ends, left

    ends, left = asyncio.run(asyncio.wait_for(main(), 60))
    assert left == 2
    assert all(b"more than 2 streams are idle" in each for each in ends)
    app.close()
