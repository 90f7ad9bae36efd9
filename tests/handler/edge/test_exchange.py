"""handler.edge.exchange: requests and answers in ASGI's messages."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidInput, ServerBusy, TooLarge
from core.wire import HttpResponse
from handler.edge import exchange
from handler.edge.flight import SMALL, Flight

GONE = {"type": "http.disconnect"}


def messages(*chunks: bytes) -> list[dict[str, Any]]:
    """Returns the messages as ASGI servers send them."""
    return [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]


def gather(
    inbox: list[dict[str, Any]], headers: Mapping[bytes, bytes] | None = None, limit: int = 1000, align_at: int = 0
) -> Any:
    """Returns the body, and how many messages were left."""
    left = list(inbox)

    async def receive() -> Any:
        return left.pop(0)

    body = asyncio.run(exchange.gather(headers or {}, receive, limit, align_at))
    return body, len(left)


@pytest.mark.parametrize("size", [1, SMALL - 1, SMALL, SMALL + 1])
@pytest.mark.parametrize("align_at", [0, 5, 16])
def test_a_room_holds_the_body_that_was_put_there(size: int, align_at: int) -> None:
    """Long bodies count twice among the bytes in flight, until nothing uses them any more. They cannot be changed."""
    flight = Flight(10**9)
    room, body = exchange.Room(size, align_at, flight), bytes(number % 251 for number in range(size))
    assert len(room.view) == size
    for end in (size // 2, size):
        room.grow(end)
        assert flight.held == (2 * end if end >= SMALL else 0)
    room.view[:] = body
    array = np.frombuffer(room.whole(), np.uint8)
    del room
    assert array.tobytes() == body
    assert not array.flags.writeable
    assert flight.held == (2 * size if size >= SMALL else 0)
    del array
    assert flight.held == 0


def test_a_room_that_is_not_used_gives_its_bytes_back() -> None:
    """A body that has no room is refused, at its head or while it arrives."""
    flight = Flight(4 * SMALL)
    room = exchange.Room(SMALL, 0, flight)
    room.grow(SMALL)
    with pytest.raises(ServerBusy):
        exchange.Room(SMALL + 1, 0, flight)
    other = exchange.Room(SMALL, 0, flight)
    flight.take(2 * SMALL)
    with pytest.raises(ServerBusy):
        other.grow(SMALL)
    flight.give_back(2 * SMALL)
    room.end()
    other.end()
    assert flight.held == 0


def announced(size: int) -> dict[bytes, bytes]:
    return {b"content-length": b"%d" % size}


@pytest.mark.parametrize(("scope", "encoded"), [
    ({}, ""), ({"raw_path": None}, ""), ({"raw_path": b"/v1/a%40b"}, ""),
    ({"raw_path": b"/v1/a%2fb%40"}, "/v1/a%2fb%40"), ({"raw_path": b"/v1/a%3Ab"}, "/v1/a%3Ab"),
    ({"raw_path": b"/mounted/v1/a%2Fb", "root_path": "/mounted"}, "/v1/a%2Fb"),
    ({"raw_path": b"/rooted/a%2Fb", "root_path": "/root"}, "/rooted/a%2Fb"),
])  # fmt: skip
def test_a_path_stays_encoded_where_decoding_would_split_it(scope: dict[str, Any], encoded: str) -> None:
    """Other paths are served as they are decoded; a server may leave the mount out."""
    assert exchange.encoded_of(scope) == encoded


@given(chunks=st.lists(st.binary(max_size=9), min_size=1, max_size=6), told=st.booleans(), json=st.integers(0, 40))
def test_a_body_is_all_its_pieces(*, chunks: list[bytes], told: bool, json: int) -> None:
    """The pieces are joined in order, empty ones among them, announced or not, at any alignment."""
    whole = b"".join(chunks)
    assert gather(messages(*chunks), announced(len(whole)) if told else {}, align_at=json)[0] == whole


@pytest.mark.parametrize("json", [0, 1, 15, 16, 17, 10**20 - 1])
def test_what_follows_the_json_is_aligned(json: int) -> None:
    """Tensors of a body in pieces need no copy."""
    body, _ = gather(messages(b"x" * 20, b"y" * 20), align_at=json)
    assert (np.frombuffer(body, np.uint8).ctypes.data + json) % exchange.ALIGNMENT == 0


@pytest.mark.parametrize(
    ("text", "length"), [(b"0", 0), (b"17", 17), (b"", 0), (b"-1", 0), (b"x", 0), (b"9" * 400, 10**20 - 1)]
)
def test_a_length_in_a_header_is_a_number_or_0(text: bytes, length: int) -> None:
    """A header without a sensible number announces nothing."""
    assert exchange.length_in({b"x-length": text}, b"x-length") == length
    assert exchange.length_in({}, b"x-length") == 0


def test_a_message_without_a_body_is_an_empty_piece() -> None:
    """ASGI lets servers leave the body out of a message."""
    start, end = messages(b"ab", b"cd")
    empty = {"type": "http.request", "more_body": True}
    assert gather([{"type": "http.request"}])[0] == b""
    for headers in ({}, announced(4)):
        assert gather([start, empty, end], headers)[0] == b"abcd"
        assert gather([empty, start, end], headers)[0] == b"abcd"


def test_a_body_that_a_server_lost_is_not_an_empty_one() -> None:
    """The client has sent it: a refusal that speaks of its JSON would lead it astray."""
    with pytest.raises(InvalidInput, match="the request has no body, but its Content-Length is 25"):
        gather([{"type": "http.request"}], announced(25))
    assert gather([{"type": "http.request"}], announced(0))[0] == b""


@pytest.mark.parametrize("headers", [{}, announced(6)], ids=["unknown", "announced"])
@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_client_that_goes_before_the_end_is_not_answered(headers: dict[bytes, bytes], pieces: int) -> None:
    """The body is None, wherever the client left."""
    assert gather([*messages(b"ab", b"cd", b"ef")[:pieces], GONE], headers)[0] is None


def test_an_announced_size_over_the_limit_is_refused_before_anything_is_read() -> None:
    """A Content-Length that is not a number announces nothing."""
    with pytest.raises(TooLarge, match="the body has 1001 bytes; at most 1000 are accepted"):
        gather([], announced(1001))
    with pytest.raises(TooLarge):
        gather([], {b"content-length": b"9" * 400})
    assert gather(messages(b"ab"), {b"content-length": b"-5"})[0] == b"ab"


@pytest.mark.parametrize("chunks", [(b"x" * 11,), (b"x" * 6, b"x" * 5), (b"x" * 6, b"x" * 10, b"x" * 3)])
def test_a_body_that_grows_over_the_limit_is_read_to_its_end_and_refused(chunks: tuple[bytes, ...]) -> None:
    """The refusal names the whole size, and the client reads it because the body was read."""
    with pytest.raises(TooLarge, match=f"the body has {sum(map(len, chunks))} bytes; at most 10 are accepted"):
        gather(messages(*chunks), limit=10)
    assert gather(messages(b"x" * 5, b"x" * 5), limit=10) == (b"x" * 10, 0)


def test_a_body_over_twice_the_limit_is_not_read_to_its_end() -> None:
    """Such a body may be endless."""
    with pytest.raises(TooLarge, match="the body has more than 20 bytes; at most 10 are accepted"):
        gather(messages(*[b"x"] * 21), limit=10)
    with pytest.raises(IndexError):
        gather(messages(*[b"x"] * 21)[:20], limit=10)


def test_a_small_lie_about_the_size_is_no_way_around_the_limit() -> None:
    """The pieces are measured as they come."""
    with pytest.raises(TooLarge):
        gather(messages(b"x" * 6, b"x" * 6), announced(3), limit=10)


def sent(*parts: bytes, method: str = "GET", flight: Flight | None = None) -> list[Any]:
    """Returns the bodies of an answer as they are sent, and the bytes in flight meanwhile."""
    flight, outbox = flight or Flight(None), []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            outbox.append((bytes(message["body"]), message.get("more_body", False), flight.held))

    asyncio.run(exchange.answer(HttpResponse(200, (), parts), method, send, (), flight))
    return outbox


def test_a_large_answer_is_sent_in_pieces_and_counts_meanwhile() -> None:
    """The server holds the rest while its client does not read; the parts keep their order."""
    flight = Flight(None)
    parts = b"a" * 10, b"b" * exchange.PIECE, b"c" * exchange.PIECE * 2
    outbox = sent(*parts, flight=flight)
    assert b"".join(body for body, _, _ in outbox) == b"".join(parts)
    assert [more for _, more, _ in outbox] == [True] * (len(outbox) - 1) + [False]
    assert max(len(body) for body, _, _ in outbox) == exchange.PIECE
    assert {held for *_, held in outbox[:-1]} == {sum(map(len, parts))}
    assert flight.held == 0


def test_a_small_answer_and_one_to_head_are_one_message() -> None:
    """They do not count against the budget."""
    assert sent(b"a", b"b") == [(b"ab", False, 0)]
    assert sent(b"a" * exchange.PIECE * 2, method="HEAD") == [(b"", False, 0)]


@pytest.mark.parametrize(("trailers", "length"), [((), b"0"), (((b"grpc-status", b"5"),), None)])
def test_an_answer_with_trailers_has_no_length(trailers: tuple[tuple[bytes, bytes], ...], length: bytes | None) -> None:
    """Both nginx and HAProxy end an answer of length 0 at its head, and leave out a refusal behind it."""
    outbox: list[Any] = []

    async def send(message: Any) -> None:
        outbox.append(message)

    asyncio.run(exchange.answer(HttpResponse(200, (), (b"",), trailers), "POST", send))
    assert dict(outbox[0]["headers"]).get(b"content-length") == length
    assert [tuple(each["headers"]) for each in outbox[2:]] == ([trailers] if trailers else [])


def test_a_chunk_of_a_stream_counts_if_it_is_large() -> None:
    """It is also sent in pieces."""
    flight, outbox = Flight(None), []

    async def send(message: Any) -> None:
        outbox.append((len(message["body"]), message["more_body"], flight.held))

    for size in (3, exchange.PIECE + 1):
        asyncio.run(exchange.proceed(b"x" * size, send, flight))
    size = exchange.PIECE + 1
    assert outbox == [(3, True, 0), (exchange.PIECE, True, size), (1, True, size)]
    assert flight.held == 0


@pytest.mark.parametrize(
    ("sent", "length", "left"),
    [
        (messages(b"ab", b"cd"), None, 0),
        (messages(b"ab", b"cd"), 4, 0),
        (messages(b"ab", b"cd"), SMALL, 2),
        (messages(*[b"x" * (SMALL // 2)] * 4), None, 2),
        ([GONE, GONE], None, 1),
    ],
    ids=["chunked", "short", "long", "too-long", "left"],
)
def test_a_short_body_that_nobody_needs_is_read(sent: list[Any], length: int | None, left: int) -> None:
    """It is read to its end; of a long one, at most as much is read as of a short one."""
    inbox = list(sent)

    async def receive() -> Any:
        return inbox.pop(0)

    asyncio.run(exchange.skip({} if length is None else announced(length), receive))
    assert len(inbox) == left
