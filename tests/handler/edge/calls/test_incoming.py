"""handler.edge.calls.incoming: the messages of a call as they arrive."""

import asyncio
import weakref
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.dialects.connect.envelopes import frames
from core.errors import InvalidInput, ServerBusy, ServingError, TooLarge
from handler.edge.calls import incoming as incoming_module
from handler.edge.calls.incoming import Incoming
from handler.edge.flight import SMALL, Flight
from handler.edge.idling import Idling
from tests.support.connect_client import envelope

LIMIT = 3 * SMALL


def arriving(*pieces: bytes, ends: bool = True, coding: bytes = b"", limit: int = LIMIT) -> tuple[list[bytes], Any]:
    """Returns the messages of a body in pieces, and the error that ended them. All pieces arrive before the first."""
    flight = Flight(10 * limit)

    async def work() -> tuple[list[bytes], Any]:
        inbox = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        inbox += [{"type": "http.request", "body": b"", "more_body": False}] * ends + [{"type": "http.disconnect"}]

        async def receive() -> Any:
            return inbox.pop(0)

        incoming = Incoming(receive, limit, flight, coding, Idling(9))
        await incoming.gather()
        assert incoming.received == sum(map(len, pieces))
        found = []
        try:
            async for frame in incoming.messages():
                found.append(bytes(frame.message(limit)))  # noqa: PERF401 - those before an error count
        except ServingError as error:
            return found, error
        else:
            return found, None
        finally:
            incoming.close()

    answer = asyncio.run(work())
    assert flight.held == 0
    return answer


@given(st.lists(st.binary(max_size=30), max_size=5), st.binary(max_size=9), st.integers(1, 9))
@example([b"x" * SMALL] * 2, b"", 1000)
def test_a_body_in_any_pieces_has_the_same_messages(messages: list[bytes], more: bytes, size: int) -> None:
    """What follows them is refused wherever it is cut, unless it is a message, too."""
    body = b"".join(map(envelope, messages)) + more
    found, error = arriving(*(body[start : start + size] for start in range(0, len(body), size)))
    assert found[: len(messages)] == messages
    wanted: Any = None
    try:
        assert found == [frame.content for frame in frames(body, LIMIT, b"")]
    except ServingError as refused:
        wanted = refused
    assert type(error) is type(wanted)


class Seen:
    """A frame that a weak reference can watch."""

    def __init__(self, content: bytes, coding: bytes) -> None:
        self.parts = content, coding


def test_a_message_is_let_go_while_the_next_one_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream does not keep its last message, which does not count any more."""
    monkeypatch.setattr(incoming_module, "Frame", Seen)

    async def work() -> None:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        incoming = Incoming(inbox.get, LIMIT, Flight(None), b"", Idling(9))
        gathering = asyncio.create_task(incoming.gather())
        await inbox.put({"type": "http.request", "body": envelope(b"one"), "more_body": True})
        messages = incoming.messages()
        seen = weakref.ref(await anext(messages))
        waiting = asyncio.create_task(anext(messages))  # type: ignore[arg-type] # a coroutine of asyncio's
        await asyncio.sleep(0)
        assert seen() is None
        for task in (waiting, gathering):
            task.cancel()
        incoming.close()

    asyncio.run(work())


def test_a_message_waits_for_its_end() -> None:
    """Each one is there before the next one arrives: the call goes both ways."""

    async def work() -> list[bytes]:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        incoming = Incoming(inbox.get, LIMIT, Flight(None), b"", Idling(9))
        gathering = asyncio.create_task(incoming.gather())
        messages, found = incoming.messages(), []
        for text in (b"one", b"two"):
            body = envelope(text)
            inbox.put_nowait({"type": "http.request", "body": body[:6], "more_body": True})
            following = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            assert not following.done()
            inbox.put_nowait({"type": "http.request", "body": body[6:], "more_body": True})
            found.append(bytes((await following).content))
        inbox.put_nowait({"type": "http.disconnect"})
        await gathering
        return found

    assert asyncio.run(work()) == [b"one", b"two"]


def test_what_waits_has_a_most_of_bytes() -> None:
    """What came before it is answered; a message of the most bytes that are permitted always fits."""
    largest = envelope(bytes(LIMIT))
    found, error = arriving(largest, b"")
    assert ([*map(len, found)], error) == ([LIMIT], None)
    found, error = arriving(largest, largest, envelope(b"x"))
    assert ([*map(len, found)], type(error)) == ([LIMIT, LIMIT], ServerBusy)
    found, error = arriving(envelope(bytes(LIMIT + 1)))
    assert (found, type(error)) == ([], TooLarge)


def test_a_body_that_its_client_leaves_is_cut() -> None:
    """Nobody will read the refusal, but no message is made of a part."""
    found, error = arriving(envelope(b"one"), envelope(b"two")[:-1])
    assert (found, type(error)) == ([b"one"], InvalidInput)


@pytest.mark.parametrize(("size", "told"), [
    (3, "the request ends inside an envelope's head, after 3 bytes of it"),
    (5, "the request ends where an envelope announces 3 bytes, after 0 bytes of it"),
    (7, "the request ends where an envelope announces 3 bytes, after 2 bytes of it"),
])  # fmt: skip
def test_a_cut_message_is_refused_with_the_bytes_of_it_that_came(size: int, told: str) -> None:
    """An envelope announces the bytes behind its head, and these are counted."""
    _, error = arriving(envelope(b"one"), envelope(b"two")[:size])
    assert error.message == told


def test_a_message_that_does_not_go_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold its part of the memory. Between two messages a client may wait as long as it likes."""
    monkeypatch.setattr(incoming_module, "MESSAGE_SECONDS", 0.01)

    async def work(body: bytes, seconds: float) -> None:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        inbox.put_nowait({"type": "http.request", "body": body, "more_body": True})
        incoming = Incoming(inbox.get, LIMIT, Flight(None), b"", Idling(9))
        gathering = asyncio.create_task(incoming.gather())
        async with asyncio.timeout(seconds):
            async for _ in incoming.messages():
                pass
        gathering.cancel()

    for part in (envelope(b"x")[:3], envelope(b"x")[:-1]):
        with pytest.raises(ServerBusy, match="did not arrive in time"):
            asyncio.run(work(envelope(b"one") + part, 60))
    with pytest.raises(TimeoutError):
        asyncio.run(work(envelope(b"one"), 0.2))


def test_the_budget_of_the_server_counts() -> None:
    """Other requests hold it."""
    flight = Flight(SMALL)
    flight.take(SMALL)

    async def work() -> None:
        inbox = [{"type": "http.request", "body": envelope(b"x"), "more_body": True}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return inbox.pop(0)

        incoming = Incoming(receive, LIMIT, flight, b"", Idling(9))
        await incoming.gather()
        await anext(incoming.messages())

    with pytest.raises(ServerBusy, match="DRAGOMAN_BYTES_IN_FLIGHT"):
        asyncio.run(work())
