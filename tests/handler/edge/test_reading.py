"""handler.edge.reading: how long a gRPC call may wait for its message, and how many calls may wait."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from itertools import islice
from typing import Any, cast

import grpc
import pytest
from grpc import aio

from core.errors import NotSupported, ServerBusy
from handler.edge import idling, reading, rpc
from handler.edge.flight import NO_LIMIT, Flight
from handler.edge.idling import Idling
from handler.edge.reading import Reading, messages_of, most_messages
from tests.handler.edge.beside import served
from tests.handler.edge.client import make
from tests.handler.edge.test_rpc import BODY

INFER = "/inference.GRPCInferenceService/ModelInfer"


async def nothing() -> Any:
    """Reads from a client that sends no message, and does not end the call either."""
    await asyncio.Event().wait()


async def ended() -> Any:
    return aio.EOF


async def sent() -> Any:
    return b"a"


def test_the_first_message_is_the_calls() -> None:
    """A call without one is refused as not implemented, as gRPC's statuscodes.md says."""
    assert asyncio.run(Reading(1).first(sent, NO_LIMIT)) == b"a"
    with pytest.raises(NotSupported, match="the request has no message"):
        asyncio.run(Reading(1).first(ended, NO_LIMIT))


@pytest.mark.parametrize("path", [INFER, "/grpc.health.v1.Health/Watch"])
def test_a_call_without_a_message_has_the_code_of_the_other_ports(path: str) -> None:
    """Over HTTP/2 of our own and gRPC-Web it is UNIMPLEMENTED, too."""
    app = make()

    async def work(channel: aio.Channel, _: Any) -> Any:
        call: Any = channel.stream_unary(path)
        with pytest.raises(aio.AioRpcError) as refused:
            await call(iter(()))
        return refused.value.code()

    assert served(app, work) is grpc.StatusCode.UNIMPLEMENTED
    app.close()


@pytest.mark.parametrize("path", [INFER, "/grpc.health.v1.Health/Watch"])
def test_a_message_that_grpc_refuses_is_not_an_end_of_messages(path: str) -> None:
    """The size limit is grpc's own: its client gets RESOURCE_EXHAUSTED, and the log has no false reason."""
    with closing(make(MAX_BODY_BYTES="2000")) as app:

        async def work(channel: aio.Channel, _: Any) -> grpc.StatusCode:
            call: Any = channel.stream_stream(path)
            with pytest.raises(aio.AioRpcError) as refused:
                [_ async for _ in call(iter([b"x" * 3000]))]
            for _ in range(1000):
                if app.observer.counts.tallies:
                    break
                await asyncio.sleep(0.01)
            return refused.value.code()

        assert served(app, work) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [*app.observer.counts.tallies] == [("grpc", "CANCELLED")]
        assert app.observer.counts.refusals == {}


def test_a_stream_that_grpc_has_ended_does_not_end_well() -> None:
    """Its reader sees an end of the messages, and is cancelled in the read that follows."""

    async def cancelled() -> Any:
        raise asyncio.CancelledError

    reads, found = iter([sent, ended, cancelled]), list[bytes]()

    async def read() -> Any:
        return await next(reads)()

    async def main() -> None:
        async for message in messages_of(read, Idling(1)):
            found.append(message)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert found == [b"a"]


def test_a_message_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call does not wait for ever, nor does the one that came after it; work that goes on is not cancelled."""
    monkeypatch.setattr(reading, "MESSAGE_SECONDS", 0.05)

    async def main() -> list[Any]:
        waits = Reading(9)

        async def call() -> int:
            with pytest.raises(ServerBusy, match="did not arrive in time"):
                await waits.first(nothing, NO_LIMIT)
            await asyncio.sleep(0)
            return cast("asyncio.Task[Any]", asyncio.current_task()).cancelling()

        async def later() -> int:
            await asyncio.sleep(0.02)
            return await call()

        return await asyncio.gather(call(), later(), call())

    assert asyncio.run(main()) == [0, 0, 0]


def test_a_message_has_to_come_in_time_in_a_later_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier loop has ended before its calls were late."""
    monkeypatch.setattr(reading, "MESSAGE_SECONDS", 0.05)
    waits = Reading(9)
    assert asyncio.run(waits.first(sent, NO_LIMIT)) == b"a"
    with pytest.raises(ServerBusy, match="did not arrive in time"):
        asyncio.run(asyncio.wait_for(waits.first(nothing, NO_LIMIT), 30))


def test_a_client_that_leaves_while_its_wait_ends_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the refusal. Other calls go on as before."""
    monkeypatch.setattr(reading, "FRESH_SECONDS", 0.0)

    async def main() -> tuple[bool, bool]:
        waits = Reading(1)
        first = asyncio.create_task(waits.first(nothing, NO_LIMIT))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(waits.first(nothing, NO_LIMIT))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        second.cancel()
        await asyncio.wait([second])
        return first.cancelled(), second.cancelled()

    assert asyncio.run(main()) == (True, True)


def test_waits_that_end_are_not_ended_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was ended for a new one has not left yet when the time of all is over."""
    monkeypatch.setattr(reading, "MESSAGE_SECONDS", 0.0)
    monkeypatch.setattr(reading, "FRESH_SECONDS", 0.0)

    async def main() -> list[Any]:
        waits = Reading(1)
        return await asyncio.gather(*(waits.first(nothing, NO_LIMIT) for _ in range(3)), return_exceptions=True)

    assert [*map(type, asyncio.run(main()))] == [ServerBusy] * 3


@pytest.mark.parametrize(("fresh", "ended"), [(0.0, 2), (60.0, 0)])
def test_the_oldest_wait_ends_for_a_new_call(monkeypatch: pytest.MonkeyPatch, fresh: float, ended: int) -> None:
    """A wait that began a moment ago is spared; each new call ends one, and the newest stays."""
    monkeypatch.setattr(reading, "FRESH_SECONDS", fresh)

    async def main() -> list[bool]:
        waits = Reading(1)
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(waits.first(nothing, NO_LIMIT)))
            await asyncio.sleep(0.01)
        done = [task.done() and isinstance(task.exception(), ServerBusy) for task in tasks]
        for task in tasks:
            task.cancel()
        return done

    assert asyncio.run(main()) == [True] * ended + [False] * (3 - ended)


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/ModelStreamInfer", "/grpc.health.v1.Health/Watch"])
def test_idle_streams_take_no_place_from_calls(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Streams cost their client nothing. Without a limit of their own, they could have every other call refused."""
    monkeypatch.setattr(idling, "FRESH_SECONDS", 0.2)
    monkeypatch.setattr(rpc, "STREAMS", 4)

    app = make(THREADS="1", QUEUE="1")

    async def work(channel: aio.Channel, _: Any) -> tuple[bytes, Any]:
        async def code(call: Any) -> Any:
            with suppress(aio.AioRpcError):
                while await call.read() is not aio.EOF:
                    pass
            return await call.code()

        async def message() -> Any:
            if "Watch" in path:
                yield b""
            await asyncio.Event().wait()

        opened: Any = channel.stream_stream(path)
        calls = [opened(message()) for _ in range(6)]
        live: Any = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        codes = [await first for first in islice(asyncio.as_completed(map(code, calls)), 2)]
        return await live(b""), codes

    assert served(app, work) == (b"\x08\x01", [grpc.StatusCode.UNAVAILABLE] * 2)
    app.close()


def test_as_many_messages_may_be_on_their_way_as_fit_into_the_budget() -> None:
    """Without a budget, the limit is the number of streams."""
    assert most_messages(None, 10) == reading.STREAMS
    assert most_messages(1000, 10) == 100
    assert most_messages(10, 10) == reading.FEWEST


@pytest.mark.parametrize("held", [50_000_000, 30_000_000])
def test_a_call_beyond_the_budget_is_refused(held: int) -> None:
    """Without free budget, it is refused before its message is read, else once its size is known; it may be retried."""
    app = make(BYTES_IN_FLIGHT="40MB")
    large = BODY + bytes(10_000_000)

    async def work(channel: aio.Channel, _: Any) -> tuple[Any, Any, int]:
        call: Any = channel.unary_unary(INFER)
        with app.flight.holding(held), pytest.raises(aio.AioRpcError) as refused:
            await call(large)
        with pytest.raises(aio.AioRpcError) as taken:
            await call(large)
        return refused.value, taken.value.code(), app.flight.held

    refusal, code, left = served(app, work)
    assert refusal.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(refusal.trailing_metadata())["retry-after"] == "1"
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert left == 0
    app.close()


def test_a_small_call_is_refused_only_where_nothing_is_left() -> None:
    """It does not count against the budget itself."""
    app = make(BYTES_IN_FLIGHT="40MB")

    async def work(channel: aio.Channel, _: Any) -> bytes:
        call: Any = channel.unary_unary(INFER)
        with app.flight.holding(40_000_000):
            return bytes(await call(BODY))

    assert served(app, work)
    assert isinstance(app.flight, Flight)
    app.close()
