"""handler.edge.server.h2.whole_streams: connections of HTTP/2 to an application that answers at once."""

from __future__ import annotations

import logging
import random
import re
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
import zttp

from core.wire import HttpResponse
from handler.edge.flight import SMALL, Flight
from handler.edge.server.h2.connection import CALLS, LAST_STREAM
from handler.edge.server.h2.whole_streams import MOST_AT_ONCE, WholeStreams
from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.watch import SORT_SECONDS
from handler.edge.server.whole import LONGEST_HEAD
from tests.support.bounded import Whole, serving
from tests.support.http2 import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Http2,
    asking,
    frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CANCEL = b"\0\0\0\x08"
LIMITS = Limits(head=8000, head_seconds=30, pause=30, drain=300_000, connections=20)


@pytest.fixture
def app() -> Whole:
    return Whole()


@pytest.fixture(params=["asyncio", "uvloop"])
def port(request: pytest.FixtureRequest, app: Whole) -> Iterator[int]:
    """The port of a server of the application."""
    with serving(request.param, LIMITS, EitherHttp, app=app) as port:
        yield port


def posted(stream: int, body: bytes, *headers: tuple[str, str], path: str = "/") -> bytes:
    return asking(stream, "POST", path, *headers, ends=False) + frame(DATA, stream, body, END_STREAM)


def test_repeated_heads_are_parsed_once(port: int, app: Whole) -> None:
    """Each request has its own body. Another head is another request."""
    with Http2(port) as client:
        for number, size in enumerate((5, 0, 12, 4000, 5)):
            client.send(posted(2 * number + 1, b"x" * size))
            assert client.answer(2 * number + 1) == (200, b"x" * size)
        assert (app.heads, app.answers) == (1, 5)
        for number, headers in enumerate([[("a", "b")], [("a", "c")], [("a", "c"), ("a", "d")]], 6):
            client.send(posted(2 * number + 1, b"x", *headers))
            found = client.of(2 * number + 1, HEADERS)
            assert found is not None
            assert f"|{'|'.join(value for _, value in headers)}|".encode() in found.payload
        client.send(asking(19, "HEAD", "/"))
        assert client.answer(19) == (200, b"")
    assert (app.heads, app.answers, app.calls) == (5, 9, 0)


def test_a_long_head_is_not_remembered(port: int, app: Whole) -> None:
    """It is not answered at once either: the connection would keep it in memory."""
    with Http2(port) as client:
        client.send(posted(1, b"x", ("a", "b" * LONGEST_HEAD)))
        assert client.answer(1) == (200, b"x")
        client.send(posted(3, b"x", ("a", "b" * LIMITS.head)))
        assert client.answer(3)[0] == 431
    assert (app.heads, app.answers, app.calls) == (0, 0, 1)


def test_a_head_beyond_a_limit_that_is_lower_is_refused(app: Whole) -> None:
    """DRAGOMAN_MAX_HEADER_BYTES may be less than what a connection would remember."""
    with serving("uvloop", LIMITS._replace(head=1000), EitherHttp, app=app) as port, Http2(port) as client:
        client.send(posted(1, b"x", ("a", "b" * 1000)))
        assert client.answer(1)[0] == 431
    assert (app.heads, app.calls) == (0, 0)


def test_so_many_requests_are_answered_in_one_turn(port: int, app: Whole) -> None:
    """The other requests go through ASGI. The next turn counts from zero."""
    with Http2(port) as client:
        for turn in range(2):
            streams = [2 * (20 * turn + number) + 1 for number in range(20)]
            client.send(*(posted(stream, b"%d" % stream) for stream in streams))
            got = {}
            while len(got) < len(streams):
                found = client.next()
                assert found is not None
                if found.kind == DATA and found.payload:
                    got[found.stream] = found.payload
            assert got == {stream: b"%d" % stream for stream in streams}
    assert (app.answers, app.calls) == (2 * MOST_AT_ONCE, 2 * (20 - MOST_AT_ONCE))


def test_an_answer_that_the_client_has_no_room_for_comes_by_asgi(app: Whole) -> None:
    """By the stream's window, and by the connection's."""
    with serving("uvloop", LIMITS, EitherHttp, app=app) as port:
        with Http2(port, window=3) as client:
            client.send(posted(1, b"123"), posted(3, b"1234"))
            assert client.answer(1) == (200, b"123")
            client.take(1, 3)
            assert client.answer(3) == (200, b"1234")
        assert (app.answers, app.calls) == (1, 1)
        with Http2(port) as client:
            client.send(posted(1, b"long"), posted(3, b"long"))  # 50,000 bytes each, of 65,535
            assert client.answer(1) == (200, b"long".ljust(50_000))
            client.take(100_000)
            assert client.answer(3) == (200, b"long".ljust(50_000))
    assert (app.answers, app.calls) == (2, 2)


def test_what_was_made_is_sent_and_what_takes_longer_comes_by_asgi(port: int, app: Whole) -> None:
    """With a known head and with a new one. The next request is answered at once again."""
    with Http2(port) as client:
        for number, body in enumerate((b"sent 1", b"later", b"at once", b"sent 2", b"later", b"at once")):
            expected = b"made:" + body if body.startswith(b"sent") else body
            client.send(posted(2 * number + 1, body))
            assert client.answer(2 * number + 1) == (200, expected)
    assert (app.heads, app.answers, app.calls) == (1, 2, 2)


def test_a_body_whose_length_is_not_known_is_awaited_by_asgi(port: int, app: Whole) -> None:
    """The request has begun by then."""
    with Http2(port) as client:
        client.send(asking(1, "POST", "/", ends=False))
        while not app.calls:
            threading.Event().wait(0.001)
        client.send(frame(DATA, 1, b"one"), posted(3, b"two"), frame(DATA, 1, b"", END_STREAM))
        assert {client.answer(3), client.answer(1)} == {(200, b"two"), (200, b"one")}
    assert (app.answers, app.calls) == (1, 1)


GRPC = (("content-type", "application/grpc"), ("te", "trailers"))
"""The headers of a call, whose message has its length before it."""


def message(size: int, announced: int | None = None) -> bytes:
    """Returns a message of gRPC. `announced`: the length before it, if that is a wrong one."""
    return b"\0" + (size if announced is None else announced).to_bytes(4) + b"m" * size


def begin(client: Http2, app: Whole, stream: int, body: bytes, *headers: tuple[str, str]) -> None:
    """Sends a head and the first part of a body, and waits until the server waits for the rest."""
    before = app.rooms
    client.send(asking(stream, "POST", "/", *headers, ends=False), frame(DATA, stream, body))
    until(lambda: app.rooms == before + 1)


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        threading.Event().wait(0.001)


@pytest.mark.parametrize(
    ("body", "headers"), [(b"a" * 5000, (("content-length", "5000"),)), (message(90_000), GRPC), (message(0), GRPC)]
)
def test_a_request_waits_for_its_body(port: int, app: Whole, body: bytes, headers: Any) -> None:
    """Its length is known from the head, or from a message's. Another request is answered meanwhile."""
    with Http2(port) as client:
        client.take(1_000_000)
        begin(client, app, 1, body[:5], *headers)
        client.send(posted(3, b"other"))
        assert client.answer(3) == (200, b"other")
        client.send(*(frame(DATA, 1, body[start : start + 16_000]) for start in range(5, len(body), 16_000)))
        client.send(frame(DATA, 1, b"", END_STREAM))
        assert client.answer(1) == (200, body)
    assert (app.rooms, app.answers, app.calls) == (1, 2, 0)


@pytest.mark.parametrize(
    ("first", "rest", "headers", "waits"),
    [
        (message(10), b"more", GRPC, True),
        (message(10, 12), b"", GRPC, True),
        (b"later", b" in ASGI", (("content-length", "13"),), True),
        (b"sent", b" at once", (("content-length", "12"),), True),
        (message(10)[:4], message(10)[4:], GRPC, False),
        (message(10)[:9], message(10)[9:], GRPC[1:], False),
        (message(200_000)[:9], b"", GRPC, False),
        (b"a", b"b", (("content-length", "2"), ("expect", "100-continue")), False),
    ],
)
def test_what_a_request_cannot_wait_for_comes_by_asgi(
    port: int, app: Whole, first: bytes, rest: bytes, headers: Any, *, waits: bool
) -> None:
    """A length that is wrong, not known or too long; a client that waits itself; an answer that takes longer."""
    with Http2(port) as client:
        client.send(asking(1, "POST", "/", *headers, ends=False), frame(DATA, 1, first))
        until(lambda: app.rooms + app.calls == 1)
        assert app.rooms == waits
        client.send(frame(DATA, 1, rest, END_STREAM))
        body = first + rest
        assert client.answer(1) == (200, b"made:" + body if first == b"sent" else body)
        client.send(posted(3, b"x"))
        assert client.answer(3) == (200, b"x")
    assert (app.answers, app.calls) == (1, first != b"sent")
    assert (app.came is not None) == (waits and first != b"sent")


@pytest.mark.parametrize("idle", [0.05, 0.3])
def test_a_body_that_does_not_go_on_is_not_awaited_for_long(app: Whole, idle: float) -> None:
    """The request begins with the part that has come. The connection is not `idle` before, nor after."""
    with serving("uvloop", LIMITS._replace(pause=0.2), EitherHttp, idle, app=app) as port, Http2(port) as client:
        begin(client, app, 1, message(10)[:9], *GRPC)
        until(lambda: app.calls == 1)
        threading.Event().wait(0.15)
        client.send(frame(DATA, 1, message(10)[9:], END_STREAM))
        assert client.answer(1) == (200, message(10))
    assert (app.answers, app.came is None) == (0, False)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("before", [0, 200])
def test_a_request_that_is_reset_while_it_waits_never_begins(
    app: Whole, caplog: pytest.LogCaptureFixture, loop: str, before: int
) -> None:
    """The parser does not get its reset if there were many `before`. No request begins when its time would be over."""
    limits = LIMITS._replace(pause=0.1)
    with serving(loop, limits, EitherHttp, app=app) as port, Http2(port) as client:
        for stream in range(1, 2 * before, 2):
            client.send(asking(stream, "POST", "/", ends=False) + frame(RST_STREAM, stream, CANCEL))
        first = 2 * before + 1
        begin(client, app, first, b"12", ("content-length", "4"))
        client.send(frame(RST_STREAM, first, CANCEL))
        client.send(posted(first + 2, b"x"))
        assert client.answer(first + 2) == (200, b"x")
        begin(client, app, first + 4, b"12", ("content-length", "4"))
        client.send(frame(DATA, first + 4, b"34", END_STREAM))
        assert client.answer(first + 4) == (200, b"1234")
        threading.Event().wait(0.2)
    assert (app.rooms, app.calls) == (2, 0)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("ends", ["whole", "by the client", "too much"])
def test_the_bytes_of_a_body_count_while_it_is_awaited(port: int, app: Whole, ends: str) -> None:
    """If they become too many beside others, the application decides."""
    flight = app.flight = Flight(500_000)
    size = 100_000
    with Http2(port) as client:
        client.take(1_000_000)
        begin(client, app, 1, b"a" * 16_000, ("content-length", str(size)))
        assert flight.held == 0  # as for any short body
        pieces = [frame(DATA, 1, b"a" * 16_000)] * 5
        client.send(*pieces[:4])
        until(lambda: flight.held >= 2 * SMALL)
        if ends == "by the client":
            client.send(frame(RST_STREAM, 1, CANCEL))
        else:
            if ends == "too much":
                flight.take(400_000)
            client.send(pieces[4], frame(DATA, 1, b"a" * 4000, END_STREAM))
            assert client.answer(1) == (200, b"a" * size)
    until(lambda: flight.held == (400_000 if ends == "too much" else 0))
    assert (app.answers, app.calls) == (ends == "whole", ends == "too much")


def test_a_connection_that_ends_gives_back_what_its_bodies_held(port: int, app: Whole) -> None:
    app.flight = Flight(500_000)
    with Http2(port) as client:
        begin(client, app, 1, b"a" * 16_000, ("content-length", "100000"))
        client.send(*[frame(DATA, 1, b"a" * 16_000)] * 4)
        until(lambda: app.flight.held >= 2 * SMALL)
    until(lambda: app.flight.held == 0)
    assert (app.answers, app.calls) == (0, 0)


def test_a_connection_whose_request_waits_is_not_idle(app: Whole) -> None:
    """It is not closed for another one, but is when it has its answer."""
    limits = LIMITS._replace(connections=1)
    with serving("uvloop", limits, EitherHttp, app=app) as port, Http2(port) as client:
        begin(client, app, 1, b"12", ("content-length", "4"))
        with Http2(port) as other:
            assert other.next() is None
        client.send(frame(DATA, 1, b"34", END_STREAM))
        assert client.answer(1) == (200, b"1234")
        threading.Event().wait(2 * SORT_SECONDS)
        with Http2(port) as other:
            other.send(posted(1, b"x"))
            assert other.answer(1) == (200, b"x")


def to_be_ended(loop: str, app: Whole) -> tuple[int, threading.Thread]:
    """Starts a server. Returns its port, and the thread that ends it."""
    with ExitStack() as serves:
        port = serves.enter_context(serving(loop, LIMITS, EitherHttp, app=app))
        return port, threading.Thread(target=serves.pop_all().close)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_that_ends_answers_a_request_that_waits(loop: str, app: Whole) -> None:
    """Its connection ends after the answer."""
    port, ending = to_be_ended(loop, app)
    with Http2(port) as client:
        begin(client, app, 1, b"12", ("content-length", "4"))
        ending.start()
        assert client.of(0, GOAWAY) is not None
        client.send(frame(DATA, 1, b"34", END_STREAM))
        assert client.answer(1) == (200, b"1234")
        assert client.of(0, GOAWAY) is not None
        assert client.next() is None
    ending.join()
    assert (app.answers, app.calls) == (1, 0)


def test_a_request_that_is_reset_in_its_turn_never_begins(port: int, app: Whole) -> None:
    """Neither at once nor by ASGI."""
    reset = frame(RST_STREAM, 1, CANCEL)
    with Http2(port) as client:
        client.send(asking(1, "POST", "/", ends=False), frame(DATA, 1, b"x"), reset, posted(3, b"y"))
        assert client.answer(3) == (200, b"y")
        client.send(posted(5, b"z"))  # what had begun would be there by now
        assert client.answer(5) == (200, b"z")
    assert (app.heads, app.answers, app.calls) == (1, 2, 0)


def test_no_request_that_is_reset_in_its_turn_begins_however_many_there_were(port: int, app: Whole) -> None:
    """The parser does not get all of these resets. A few come in the next turn, where the bytes are cut."""
    many = range(1, 2001, 2)
    with Http2(port) as client:
        client.send(*(asking(it, "POST", "/", ends=False) + frame(RST_STREAM, it, CANCEL) for it in many))
        client.send(posted(2001, b"x"))
        assert client.answer(2001) == (200, b"x")
    assert app.answers == 1
    assert app.calls < 100


def test_a_connection_that_answers_at_once_is_announced_to_end(port: int) -> None:
    """The announcement and the answer are one segment, so that the client's next request uses another connection."""
    with Http2(port) as client:
        client.send(posted(LAST_STREAM - 2, b"x"))
        assert client.answer(LAST_STREAM - 2) == (200, b"x")
        client.send(posted(LAST_STREAM, b"y"))
        assert client.answer(LAST_STREAM) == (200, b"y")
        client.socket.settimeout(0)
        last = client.of(0, GOAWAY)
        assert last is not None
        assert last.payload == b"\x7f\xff\xff\xff" + bytes(4)
        client.socket.settimeout(60)
        client.send(posted(LAST_STREAM + 2, b"z"))
        assert client.answer(LAST_STREAM + 2) == (200, b"z")


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_request_comes_by_asgi_while_earlier_answers_are_not_read(app: Whole, *, is_paused: bool) -> None:
    """ASGI waits for the client. The test has no network: there, a server does not read from such a client either."""
    peer = zttp.Connection(zttp.SERVER, zttp.HTTP2)
    peer.initiate_connection()
    peer.receive_data(PREFACE + frame(SETTINGS) + asking(1, "GET", "/"))
    _, event = peer.next_event(), peer.next_event()
    state, flow = SimpleNamespace(default_headers=[]), SimpleNamespace(write_paused=is_paused)
    connection = MagicMock(conn=peer, flow=flow, limits=LIMITS, server_state=state)
    connection.reset_for.return_value = None
    passed = [*WholeStreams(connection, app).passed(event)]
    assert (passed, app.answers) == (([event], 0) if is_paused else ([], 1))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_that_ends_answers_what_was_on_its_way(loop: str, app: Whole) -> None:
    """The connection ends after the last answer."""
    port, ending = to_be_ended(loop, app)
    with Http2(port) as client:
        client.send(asking(1, "POST", "/", ends=False))
        while not app.calls:
            threading.Event().wait(0.001)
        ending.start()
        assert client.of(0, GOAWAY) is not None
        client.send(posted(3, b"x"))
        assert client.answer(3) == (200, b"x")
        client.send(frame(DATA, 1, b"all of it", END_STREAM))
        assert client.answer(1) == (200, b"all of it")
        assert client.of(0, GOAWAY) is not None
        assert client.next() is None
    ending.join()
    assert app.answers == 1


def test_a_full_server_refuses_what_it_would_answer_at_once(port: int, app: Whole) -> None:
    """Its client may send it again."""
    clients = [Http2(port) for _ in range(CALLS // 100 + 1)]
    for client in clients:
        client.send(*(asking(2 * number + 1, "POST", "/", ends=False) for number in range(100)))
        if client is not clients[-1]:
            client.send(frame(PING, 0, bytes(8)))
            assert client.of(0, PING) is not None
    assert clients[-1].of(199, RST_STREAM) is not None
    clients[-1].send(posted(201, b"x"))
    refused = clients[-1].of(201, RST_STREAM)
    assert refused is not None
    assert refused.payload == b"\0\0\0\x07"
    clients[-1].send(asking(203, "POST", "/", ("content-length", "4"), ends=False))
    assert clients[-1].of(203, RST_STREAM) is not None
    assert (app.answers, app.rooms) == (0, 0)
    for client in clients:
        client.socket.close()


def test_answers_have_their_trailers_and_no_header_of_another_connection(app: Whole) -> None:
    """HTTP/2 does not have the header `connection`, and clients refuse it."""

    def answer(_head: Any, body: bytes, write: Any, _most: int, _came: int | None) -> bool:
        headers = (b"connection", b"close"), (b"x-one", b"1")
        write(HttpResponse(200, headers, (body, b"!"), ((b"grpc-status", b"0"),)), [(b"x-two", b"2")], (body, b"!"))
        return True

    app.answer = answer  # type: ignore[method-assign] # of this application alone
    with serving("uvloop", LIMITS, EitherHttp, app=app) as port, Http2(port) as client:
        client.send(posted(1, b"x"))
        head, body, end = client.of(1, HEADERS), client.of(1, DATA), client.of(1, HEADERS)
    assert head is not None
    assert body is not None
    assert end is not None
    assert [name in head.payload for name in (b"x-one", b"x-two", b"connection", b" GMT")] == [True, True, False, True]
    assert (body.payload, end.payload, end.flags & END_STREAM) == (b"x!", b"\0\x0bgrpc-status\x010", END_STREAM)


def test_streams_cut_anywhere_have_the_answers_that_asgi_gives(app: Whole) -> None:
    """The requests and the cuts are random. One server asks its application for answers at once; the other does not."""
    numbers = random.Random(7)  # noqa: S311 - cuts, not secrets
    other = Whole()
    other.whole_requests = None  # type: ignore[assignment] # all by ASGI
    with serving("uvloop", LIMITS, EitherHttp, app=app) as one, serving("uvloop", LIMITS, EitherHttp, app=other) as two:
        for _ in range(150):
            streams = [2 * number + 1 for number in range(numbers.randint(1, 6))]
            frames = _shuffled(numbers, [_request(numbers, stream) for stream in streams])
            wire = b"".join(frames)
            cuts = sorted(numbers.choices(range(len(wire)), k=numbers.randint(1, 5)))
            pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
            pause = numbers.choice([0, 0.002, 0.002])
            kept = [stream for stream in streams if frame(RST_STREAM, stream, CANCEL) not in frames]
            assert _told(one, pieces, pause, kept) == _told(two, pieces, pause, kept), pieces
    assert app.answers > 100
    assert app.calls > 100
    assert app.rooms > 10


def _request(numbers: random.Random, stream: int) -> list[bytes]:
    """Returns the frames of a request."""
    body = numbers.choice([b"", b"x", b"later", b"long", b"12345" * 100])
    method = numbers.choice(["POST", "POST", "POST", "GET", "HEAD"])
    path = numbers.choice(["/", "/", "/", "/a%20b", "/stream", "/refuse", "/?a=b"])
    length = (("content-length", f"{len(body)}"),)
    headers = numbers.choice([(), (("a", "1"),), (("a", "1"), ("a", "2")), length, length])
    if not body and numbers.random() < 0.5:
        return [asking(stream, method, path, *headers)]
    half = numbers.randint(0, len(body))
    datas = [body[:half], body[half:]] if numbers.random() < 0.3 else [body]
    frames = [frame(DATA, stream, data) for data in datas[:-1]]
    frames = [asking(stream, method, path, *headers, ends=False), *frames, frame(DATA, stream, datas[-1], END_STREAM)]
    return frames if numbers.random() > 0.1 else [*frames[:-1], frame(RST_STREAM, stream, CANCEL)]


def _shuffled(numbers: random.Random, requests: list[list[bytes]]) -> list[bytes]:
    """Returns the frames of all requests in a random order. Each request's frames keep theirs."""
    frames, begun = [], 0
    while any(requests):
        left = [request for request in requests[:begun] if request]
        if begun < len(requests) and (not left or numbers.random() < 0.5):
            left, begun = [requests[begun]], begun + 1
        frames.append(numbers.choice(left).pop(0))
    return frames


def _told(port: int, pieces: list[bytes], pause: float, streams: list[int]) -> dict[int, list[bytes]]:
    """Returns the heads without their dates, and the body of each stream."""
    told: dict[int, list[bytes]] = {stream: [b"", b""] for stream in streams}
    left = {*streams}
    with Http2(port) as client:
        client.take(1_000_000)
        for piece in pieces:
            client.socket.sendall(piece)
            threading.Event().wait(pause)
        while left:
            found = client.next()
            assert found is not None
            if found.stream in left and found.kind in (HEADERS, DATA):
                told[found.stream][found.kind == DATA] += re.sub(rb"[A-Z][a-z]{2}, .{20} GMT", b"", found.payload)
            if found.kind == RST_STREAM or found.flags & END_STREAM:
                left.discard(found.stream)
    return told
