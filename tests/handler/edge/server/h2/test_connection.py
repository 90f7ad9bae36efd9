"""handler.edge.server.h2.connection is tested with frames to uvicorn in this process, on either event loop."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from handler.edge.server.h2.connection import CALLS, WINDOW, BoundedHttp2
from handler.edge.server.h2.resets import MOST_REQUESTS, MOST_RESETS
from handler.edge.server.h2.stream import PARKED, StreamFlow
from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from tests.support.bounded import LARGE, application, serving
from tests.support.http2 import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2,
    asking,
    frame,
)
from tests.support.raw import crowd, head, opened, poured, status, talk

CALL = ("content-type", "application/grpc")
PIECE = 16_000
REFUSED, CANCEL = b"\0\0\0\x07", b"\0\0\0\x08"


def closing(method: str, target: str) -> bytes:
    return head(method, target, "Connection: close")


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server with small limits."""
    limits = Limits(head=1000, head_seconds=0.3, pause=0.4, drain=300_000, connections=20)
    with serving(request.param, limits, EitherHttp) as port:
        yield port


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def patient(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that waits for clients on a busy machine."""
    with serving(request.param, Limits(10_000, 30, 30, 300_000, 20), EitherHttp) as port:
        yield port


def has_goaway(client: Http2) -> bool:
    """Returns whether the server has said so, or says so within a moment."""
    client.socket.settimeout(0.2)
    with suppress(TimeoutError):
        return client.of(0, GOAWAY) is not None
    return False


def data(stream: int, body: bytes, *, ends: bool = True) -> bytes:
    pieces = [body[start : start + PIECE] for start in range(0, len(body), PIECE)] or [b""]
    last = frame(DATA, stream, pieces.pop(), END_STREAM * ends)
    return b"".join([*(frame(DATA, stream, piece) for piece in pieces), last])


def test_requests_of_a_connection_are_answered_each_on_its_stream(patient: int) -> None:
    """However the bytes are cut, the preface included."""
    wire = PREFACE + frame(SETTINGS) + asking(1, "POST", "/", ends=False) + data(1, b"one") + asking(3, "GET", "/?x")
    for size in (1, 5, 25, 1000):
        with Http2(patient) as client:
            client.send(asking(1, "POST", "/", ends=False), data(1, b"one"), asking(3, "GET", "/"))
            assert {client.answer(1), client.answer(3)} == {(200, b"one"), (200, b"")}
        got = talk(
            patient, *[wire[start : start + size] for start in range(0, len(wire), size)], frame(GOAWAY, 0, bytes(8))
        )
        assert got.count(b"\x03200") == 2


@pytest.mark.parametrize(("request_", "expected"), [
    (asking(1, "GET", "/", ("a", "x" * 800)), 200),
    (asking(1, "GET", "/", ("a", "x" * 1000)), 431),
    (asking(1, "GET", "/", ("a", "x" * 50_000)), 431),
    (asking(1, "GET", "/", *[("a", "")] * 300), 431),
    (asking(1, "GET", "/" + "x" * 1000), 414),
    (asking(1, "GET", "/?" + "x" * 1000), 414),
    (asking(1, "GET", "/", authority="a@b"), 400),
    (asking(1, "GET", "/", authority="ü"), 400),
    (asking(1, "GET", "/", authority="a.b:80"), 200),
    (asking(1, "POST", "/", ends=False), 408),
    (asking(1, "POST", "/", ends=False) + data(1, b"x", ends=False), 408),
])  # fmt: skip
def test_what_goes_beyond_a_limit_is_refused(port: int, request_: bytes, expected: int) -> None:
    """The connection stays."""
    with Http2(port) as client:
        client.send(request_)
        assert client.answer(1)[0] == expected
        client.send(asking(3, "GET", "/"))
        assert client.answer(3)[0] == 200


def test_a_refusal_has_the_format_of_its_paths_protocol(port: int) -> None:
    """The cases are a head that is too large, and a body that stops."""
    for request_, code in ((asking(1, "GET", "/grps/v1/x", ("a", "x" * 1000)), 431),
                           (asking(1, "POST", "/grps/v1/x", ends=False), 408)):  # fmt: skip
        with Http2(port) as client:
            client.send(request_)
            found, body = client.answer(1)
            assert (found, json.loads(body)["status"]["code"]) == (code, code)


def test_a_body_that_drips_is_refused(port: int) -> None:
    """A body may take long if its bytes come fast enough. A byte every 0.1 s is too slow."""
    for size, expected in ((1, 408), (400, 200)):
        with Http2(port) as client:
            client.send(asking(1, "POST", "/", ends=False))
            for _ in range(7):
                threading.Event().wait(0.1)
                client.send(data(1, b"x" * size, ends=False))
            client.send(data(1, b""))
            assert client.answer(1)[0] == expected


def test_a_call_of_grpc_may_pause(port: int) -> None:
    """Its client decides when the next message comes."""
    with Http2(port) as client:
        client.send(asking(1, "POST", "/a.Service/Method", CALL, ends=False))
        threading.Event().wait(0.8)
        client.send(data(1, b"late"))
        assert client.answer(1) == (200, b"late")


def test_a_client_that_waits_for_100_gets_it(patient: int) -> None:
    """Unless the body is there, or is not wanted."""
    expects = ("expect", "100-Continue")
    with Http2(patient) as client:
        client.send(asking(1, "POST", "/", expects, ends=False))
        asked = client.of(1, HEADERS)
        assert asked is not None
        assert (b"100" in asked.payload, asked.flags & END_STREAM) == (True, 0)
        client.send(data(1, b"body"))
        assert client.answer(1) == (200, b"body")
        client.send(asking(3, "POST", "/", expects, ends=False), data(3, b"body"))
        assert client.answer(3) == (200, b"body")
        client.send(asking(5, "POST", "/refuse", expects, ends=False))
        assert client.answer(5)[0] == 400
        client.send(asking(7, "GET", "/", expects))
        assert client.answer(7)[0] == 200


@pytest.mark.parametrize("start", [b"P", PREFACE[:-1]])
def test_a_beginning_that_stops_is_refused(port: int, start: bytes) -> None:
    """It could become either version, and its time is that of a head."""
    assert status(talk(port, start)) == 408


def test_other_beginnings_are_http_1(port: int) -> None:
    """The letters of the preface can begin a request of HTTP/1.1."""
    assert status(talk(port, b"P", closing("PUT", "/")[1:])) == 200
    assert status(talk(port, PREFACE[:-4] + b"XX\r\n")) == 400


def test_an_answer_waits_for_its_reader(patient: int) -> None:
    """Other streams of the connection go on meanwhile."""
    with Http2(patient, window=PIECE) as client:
        client.take(2**30)
        client.send(asking(1, "GET", "/large"), asking(3, "GET", "/"))
        assert client.answer(3)[0] == 200
        client.take(2**30, 1)
        assert len(client.answer(1)[1]) > LARGE - 2 * PIECE


def test_an_answer_without_a_reader_is_reset(port: int) -> None:
    """The client has given room for a part of it. Its connection stays."""
    with Http2(port, window=PARKED) as client:
        client.send(asking(1, "GET", "/large"))
        assert client.of(1, RST_STREAM) is not None
        client.take(2**30)
        client.send(asking(3, "GET", "/"))
        assert client.answer(3)[0] == 200


@pytest.mark.parametrize("version", [1, 2])
def test_a_client_that_reads_slowly_gets_all(version: int) -> None:
    """In the pause it reads less than makes the system take more of an answer, but more than a kilobyte a second."""
    with serving("uvloop", Limits(1000, 30, 1, 300_000, 20), EitherHttp) as port, Http2(port) as client:
        connection = client.socket if version == 2 else opened(port)
        with connection:
            if version == 2:
                client.take(2**30)
            connection.sendall(asking(1, "GET", "/large") if version == 2 else closing("GET", "/large"))
            size = 0
            for _ in range(50):
                threading.Event().wait(0.05)
                size += len(connection.recv(20_000))
            while size < LARGE and (piece := connection.recv(2**20)):
                size += len(piece)
    assert size >= LARGE


@pytest.mark.parametrize(("size", "call", "whole"), [(1, False, False), (1000, False, True), (1, True, True)])
def test_an_answer_that_drips_is_reset(size: int, *, call: bool, whole: bool) -> None:
    """A client may take long if it takes enough at a time. One of gRPC may work on what it has."""
    body = bytes(15 * size + 10)
    request_ = asking(1, "POST", "/a.Service/Method", CALL, ends=False) if call else asking(1, "POST", "/", ends=False)
    with serving("uvloop", Limits(1000, 30, 1, 300_000, 20), EitherHttp) as port, Http2(port, 10) as client:
        client.send(request_, data(1, body))
        for _ in range(15):
            threading.Event().wait(0.1)
            client.take(size, 1)
        assert (client.answer(1) == (200, body)) is whole


def test_a_client_that_only_sends_is_left(port: int) -> None:
    """The answers to its pings and requests wait, so that it is read no further."""
    with Http2(port) as client:
        assert not poured(client.socket, frame(PING, 0, bytes(8)) * 1000, 90_000_000)
    with Http2(port) as client:
        client.take(2**30)
        client.send(asking(1, "GET", "/large"))
        assert not poured(client.socket, frame(PING, 0, bytes(8)) * 1000, 90_000_000)


def test_a_large_request_can_have_a_large_answer(patient: int) -> None:
    """The client's permission to send the rest comes behind the request, and is read."""
    body = bytes(3 * WINDOW)
    with Http2(patient) as client:
        client.send(asking(1, "POST", "/", ends=False), data(1, body))
        assert client.of(1, HEADERS) is not None
        client.take(2**30)
        got = b""
        while len(got) < len(body):
            found = client.of(1, DATA)
            assert found is not None
            got += found.payload
    assert got == body


def test_the_windows_are_large(patient: int) -> None:
    """A client of a megabyte need not wait. zttp returns what it has read."""
    with Http2(patient) as client:
        seen = [client.next() for _ in range(4)]
    assert (SETTINGS, 0, 0, b"\0\4" + WINDOW.to_bytes(4)) in seen
    assert (WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4)) in seen


def test_the_rest_of_a_refused_request_is_dropped(patient: int) -> None:
    """A client that is still sending would lose the answer if a reset followed it. The connection can be used again."""
    with Http2(patient) as client:
        for stream, ends in ((1, True), (3, False)):
            client.send(asking(stream, "POST", "/refuse", ends=False), data(stream, b"x" * 1000, ends=False))
            assert client.answer(stream)[0] == 400
            client.send(data(stream, b"more" * 50_000, ends=ends), frame(RST_STREAM, stream, CANCEL))
        client.send(asking(5, "GET", "/"))
        seen = iter(client.next, None)
        answered = next(found for found in seen if found.stream == 5 or found.kind == RST_STREAM)
        assert (answered.stream, answered.kind) == (5, HEADERS)


def test_so_much_of_a_body_is_read_behind_its_answer(patient: int) -> None:
    """The client learns from a reset that the rest is not wanted, and may use the connection again."""
    with Http2(patient) as client:
        client.send(asking(1, "POST", "/refuse", ends=False), data(1, b"x" * 1000, ends=False))
        assert client.answer(1)[0] == 400
        client.send(data(1, b"x" * 300_000, ends=False), frame(PING, 0, bytes(8)))
        assert client.of(0, PING) is not None
        client.send(data(1, b"x", ends=False))
        assert client.of(1, RST_STREAM) == (RST_STREAM, 0, 1, bytes(4))
        client.send(data(1, b"more"), asking(3, "GET", "/"))
        assert client.answer(3)[0] == 200


def test_the_rest_of_a_refused_request_is_awaited_for_so_long(port: int) -> None:
    """The time is that of any pause of a body."""
    with Http2(port) as client:
        client.send(asking(1, "POST", "/refuse", ends=False))
        assert client.answer(1)[0] == 400
        assert client.of(1, RST_STREAM) == (RST_STREAM, 0, 1, bytes(4))
        client.send(asking(3, "GET", "/"))
        assert client.answer(3)[0] == 200


@pytest.mark.parametrize(
    ("settings", "confirms"), [(b"\0\1\0\0\0\0", True), (b"\0\1\0\0\x0f\xff", True), (b"\0\1\0\0\x10\0", False)]
)
def test_a_smaller_table_of_a_client_is_confirmed_once(patient: int, settings: bytes, *, confirms: bool) -> None:
    """The first headers after the settings confirm it (RFC 7541 4.2). Other clients get no confirmation."""
    with Http2(patient) as client:
        client.send(asking(1, "GET", "/"), frame(SETTINGS, 0, settings), asking(3, "GET", "/"))
        first, second = client.of(1, HEADERS), client.of(3, HEADERS)
        assert first is not None
        assert second is not None
        assert [each.payload[0] == 0x20 for each in (first, second)] == [confirms, False]
        assert client.answer(3)[1] == b""
        client.send(frame(SETTINGS, 0, settings), asking(5, "GET", "/"))
        third = client.of(5, HEADERS)
        assert third is not None
        assert third.payload.startswith(b"\x20") is confirms


def test_requests_that_were_reset_count_until_their_work_ends(patient: int) -> None:
    """Otherwise a client could have work done without end by resetting what it has begun."""
    with Http2(patient) as client:
        for number in range(CALLS):
            client.send(asking(2 * number + 1, "GET", "/wait"), frame(RST_STREAM, 2 * number + 1, b"\0\0\0\x08"))
        last = 2 * CALLS + 1
        client.send(asking(last, "GET", "/"))
        assert client.answer(last) == (0, b"")
        threading.Event().wait(1.5)
        client.send(asking(last + 2, "GET", "/"))
        assert client.answer(last + 2)[0] == 200


def until_answered(port: int) -> None:
    """Asks until a request is answered: work that has lost its client ends soon."""
    status = 0
    while status != 200:
        with Http2(port) as client:
            client.send(asking(1, "GET", "/"))
            status = client.answer(1)[0]


def test_requests_of_all_connections_are_bounded_together(patient: int) -> None:
    """An answer counts until its client has taken it. Otherwise a few connections could fill the memory."""
    clients = [Http2(patient, window=0) for _ in range(CALLS // 100 + 1)]
    for client in clients:
        client.send(*(asking(2 * number + 1, "POST", "/", ends=False) for number in range(100)))
        client.send(*(data(2 * number + 1, b"answer") for number in range(100)))
        if client is not clients[-1]:
            assert client.of(199, HEADERS) is not None
    refused = clients[-1].of(199, RST_STREAM)
    assert refused is not None
    assert refused.payload == REFUSED
    for client in clients:
        client.socket.close()
    until_answered(patient)


def test_requests_behind_a_clients_goodbye_are_answered(port: int) -> None:
    """It is about streams that the server would begin (RFC 9113 6.8). The connection ends with the last answer."""
    for _ in range(3):
        with Http2(port) as client:
            client.send(asking(1, "GET", "/wait"), frame(GOAWAY, 0, bytes(8)))
            client.send(*(asking(2 * number + 3, "GET", "/") for number in range(100)))
            assert client.answer(201)[0] == 200
            assert client.answer(1)[0] == 200
            assert client.of(0, GOAWAY) is not None
            assert client.next() is None
    with Http2(port) as other:
        other.send(asking(1, "GET", "/"))
        assert other.answer(1)[0] == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_that_ends_finishes_requests_and_sends_clients_elsewhere(loop: str) -> None:
    """The client opens another connection for its next requests. The server also answers one that is on its way."""
    with ExitStack() as serves:
        port = serves.enter_context(serving(loop, Limits(10_000, 30, 30, 300_000, 20), EitherHttp))
        ending = threading.Thread(target=serves.pop_all().close)
    with Http2(port) as client:
        client.send(asking(1, "POST", "/", ends=False), frame(PING, 0, bytes(8)))
        assert client.of(0, PING) is not None
        ending.start()
        assert client.of(0, GOAWAY) == (GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
        client.send(asking(3, "GET", "/"))
        assert client.answer(3) == (200, b"")
        client.send(data(1, b"all of it"))
        assert client.answer(1) == (200, b"all of it")
        last = client.of(0, GOAWAY)
        assert last is not None
        assert last.payload == b"\0\0\0\x03" + bytes(4)
        assert client.next() is None
    ending.join()


def test_a_client_that_has_reset_many_requests_is_sent_elsewhere(patient: int) -> None:
    """The parser ends a connection at its 257th reset, with all calls under way, however long it has lived."""
    with Http2(patient) as client:
        for number in range(MOST_RESETS):
            client.send(asking(2 * number + 1, "POST", "/", ends=False), frame(RST_STREAM, 2 * number + 1, CANCEL))
            if number == MOST_RESETS - 2:
                client.send(frame(PING, 0, bytes(8)))
                assert client.of(0, PING, GOAWAY) == (PING, 1, 0, bytes(8))
        assert client.of(0, GOAWAY) == (GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
        last = 2 * MOST_RESETS + 1
        client.send(
            asking(last, "GET", "/"), asking(last + 2, "POST", "/", ends=False), frame(RST_STREAM, last + 2, CANCEL)
        )
        assert client.answer(last) == (200, b"")
    until_answered(patient)


def test_a_client_may_reset_all_that_it_begins(patient: int) -> None:
    """Its other requests have their answers. It may open one for each reset until it reads that the connection ends."""
    many = range(3, 2003, 2)
    with Http2(patient) as client:
        client.send(
            asking(1, "POST", "/", ends=False),
            *(asking(stream, "POST", "/", ends=False) + frame(RST_STREAM, stream, CANCEL) for stream in many),
        )
        assert client.of(0, GOAWAY) == (GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
        client.send(data(1, b"answer"))
        assert client.answer(1) == (200, b"answer")
        client.send(asking(2003, "GET", "/"))
        assert client.answer(2003)[0] == 200
    until_answered(patient)


@pytest.mark.parametrize("target", ["/refuse", "/large"])
def test_a_reset_that_the_parser_does_not_get_ends_the_request(patient: int, target: str) -> None:
    """It does so wherever the request is: before its answer has been read, or while the rest of its body is dropped."""
    with Http2(patient, window=PIECE) as client:
        client.send(
            asking(1, "POST", target, ends=False),
            data(1, b"x", ends=target == "/large"),
            *(asking(stream, "GET", "/") + frame(RST_STREAM, stream, CANCEL) for stream in range(3, 303, 2)),
        )
        assert client.of(1, HEADERS) is not None
        client.send(*(asking(stream, "GET", "/") + frame(RST_STREAM, stream, CANCEL) for stream in range(303, 603, 2)))
        client.send(frame(RST_STREAM, 1, CANCEL))
        client.take(2**30)
        client.send(asking(603, "GET", "/"), frame(GOAWAY, 0, bytes(8)))
        assert client.answer(603)[0] == 200
        assert client.next() == (GOAWAY, 0, 0, (603).to_bytes(4) + bytes(4))  # nothing is under way
        assert client.next() is None


def test_resets_of_what_has_ended_or_never_was_do_nothing(patient: int) -> None:
    """They may be more than the requests that a connection can have."""
    last = 2 * MOST_RESETS + 1
    with Http2(patient) as client:
        client.send(*(asking(stream, "GET", "/") + frame(RST_STREAM, stream, CANCEL) for stream in range(1, last, 2)))
        client.send(frame(RST_STREAM, last + 2, CANCEL), asking(last, "GET", "/"))  # the first one never was
        assert client.answer(last)[0] == 200
        client.send(frame(RST_STREAM, 1, CANCEL) * 2 * MOST_REQUESTS, asking(last + 4, "GET", "/"))
        assert client.answer(last + 4)[0] == 200
    until_answered(patient)


def test_little_of_an_answer_waits_in_the_parser(patient: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits there is moved for each frame that permits a byte, and a client can send thousands a second."""
    kept, drain = [], StreamFlow._drain

    async def noted(flow: StreamFlow) -> None:
        kept.append(flow._cycle.stream.pending_bytes or 0)
        await drain(flow)

    monkeypatch.setattr(StreamFlow, "_drain", noted)
    with Http2(patient, window=10) as client:
        client.send(asking(1, "GET", "/large"))
        size = 0
        while size < 50_000:
            client.take(1000, 1)
            taken = client.of(1, DATA)
            assert taken is not None
            size += len(taken.payload)
    assert 0 < max(kept) <= 2 * PARKED


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_is_not_idle_before_its_answers_were_taken(loop: str) -> None:
    """A client that reads slowly gets the end of a small answer, too."""
    body = bytes(100)
    with serving(loop, Limits(10_000, 30, 30, 300_000, 20), EitherHttp, idle=0.1) as port, Http2(port, 10) as client:
        client.send(asking(1, "POST", "/", ends=False), data(1, body))
        assert client.of(1, DATA) is not None
        threading.Event().wait(0.5)
        client.take(1000, 1)
        assert client.answer(1)[1] == body[10:]
        assert client.of(0, GOAWAY) is not None


@pytest.mark.parametrize("path", ["/é", "/?é"])
def test_a_path_that_is_not_ascii_is_refused(patient: int, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """Its stream is reset, and other requests of the connection are answered."""
    with Http2(patient) as client:
        client.send(asking(1, "GET", "/wait"), asking(3, "GET", path), asking(5, "GET", "/"))
        assert client.answer(5)[0] == 200
        assert client.answer(1)[0] == 200
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_answers_to_a_connection_that_broke_are_dropped(patient: int, caplog: pytest.LogCaptureFixture) -> None:
    """They are under way while the connection closes, because its client has reset too many requests."""
    with Http2(patient) as client:
        client.send(asking(1, "GET", "/"), frame(RST_STREAM, 1, CANCEL) * MOST_REQUESTS)  # zttp gets those behind them
        for first in (3, 303):
            streams = range(first, first + 300, 2)
            client.send(
                *(asking(each, "GET", "/stream") + frame(RST_STREAM, each, CANCEL) for each in streams),
                frame(PING, 0, bytes(8)),
            )
            answered = client.of(0, PING) is not None
    assert not answered
    with Http2(patient) as later:
        later.send(asking(1, "GET", "/"))
        assert later.answer(1)[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("broken", [b"\xff" * 100, frame(PING, 0, b"short"), asking(2, "GET", "/")])
def test_bytes_that_are_not_http_2_fill_no_log(patient: int, caplog: pytest.LogCaptureFixture, broken: bytes) -> None:
    """Their client learns from a GOAWAY that its connection ends."""
    with Http2(patient) as client:
        client.send(broken)
        assert client.of(0, GOAWAY) is not None
        while client.next() is not None:
            pass
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


class Pipe(asyncio.Transport):
    """Notes whether it is read from."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.reads = True

    def write(self, data: object) -> None: ...

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def test_other_connections_have_their_turn() -> None:
    """After many frames of one, an event loop would have read on for a second."""

    async def run() -> list[bool]:
        config = Config(application, loop="none", log_config=None)
        limits = Limits(10_000, 30, 30, 300_000, 20)
        connection, pipe = BoundedHttp2(config, ServerState(), {}, asyncio.get_running_loop(), limits), Pipe()
        connection.connection_made(pipe)
        connection.data_received(PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, b"\0\0\0\1") * 10_000)
        seen = [pipe.reads]
        await asyncio.sleep(0)
        connection.connection_lost(None)
        return [*seen, pipe.reads]

    assert asyncio.run(run()) == [False, True]


def test_new_connections_take_the_place_of_idle_ones(port: int) -> None:
    """The limit is 20, of both versions together. One with a request under way is not idle."""
    with Http2(port) as busy, crowd(port, 10) as others:
        busy.send(asking(1, "GET", "/wait"))
        idle = [Http2(port) for _ in range(9)]
        for client in idle:
            client.send(asking(1, "GET", "/"))
            assert client.answer(1)[0] == 200
        for connection in others:
            connection.sendall(head("POST", "/", "Content-Length: 1", "Expect: 100-continue"))
            assert connection.recv(100).startswith(b"HTTP/1.1 100")
        assert status(talk(port, closing("GET", "/"))) == 200
        assert sum(has_goaway(client) for client in idle) == 1
        assert busy.answer(1)[0] == 200
        for client in idle:
            client.socket.close()


STREAMS = st.sampled_from([0, 1, 3, 5, 2**31 - 1])
FRAMES = st.one_of(
    st.builds(
        frame,
        st.sampled_from([*range(10), 200]),
        STREAMS,
        st.one_of(st.binary(max_size=20), st.binary(min_size=16_384, max_size=16_384)),
        st.sampled_from([0, 1, 4, 5, 8, 0x28, 255]),
    ),
    st.builds(
        lambda stream, method, path, ends: asking(stream, method, path, CALL, ends=ends),
        st.sampled_from([1, 3, 5, 7]),
        st.sampled_from(["GET", "POST", "", "CONNECT"]),
        st.sampled_from(["/", "/large", "", "*"]),
        st.booleans(),
    ),
    st.builds(data, STREAMS, st.binary(max_size=50)),
    st.builds(lambda stream: frame(WINDOW_UPDATE, stream, b"\0\0\1\0"), STREAMS),
    st.builds(lambda stream: frame(RST_STREAM, stream, bytes(4)), STREAMS),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(FRAMES, max_size=12), window=st.sampled_from([0, 100, 2**31 - 1]))
def test_no_frames_hurt_the_server(
    port: int, caplog: pytest.LogCaptureFixture, frames: list[bytes], window: int
) -> None:
    """In any order they end their own connection at most. They fill no log, as over HTTP/1.1."""
    with Http2(port, window) as client, suppress(ConnectionError):
        client.send(*frames)
        client.socket.settimeout(0.01)
        with suppress(TimeoutError):
            client.next()
    until_answered(port)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
