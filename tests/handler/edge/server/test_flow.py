"""Joined writes: with a transport that keeps what is sent when, and over connections whose segments Linux counts."""

import asyncio
import select
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from handler.edge.server.flow import BODIES, JoinedWrites, PacedFlow, add
from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from tests.support.bounded import serving
from tests.support.http2 import Http2, asking
from tests.support.raw import answer, head, opened, rest

LIMITS = Limits(1000, 30, 30, 300_000, 20)
SEGMENTS = 152
"""Where Linux's struct tcp_info has the number of segments with data that came."""
Pieces = list[bytes | None]


class Transport(asyncio.Transport):
    """Keeps what is sent at once, and None for an end. It has six bytes to send, or as many as `waiting` says."""

    def __init__(self, connection: socket.socket | None = None, waiting: int = 6) -> None:
        super().__init__({"socket": connection})
        self.waiting = waiting
        self.pieces: Pieces = []

    def write(self, data: bytes) -> None:  # type: ignore[override] # as it is called
        self.pieces.append(data)

    def writelines(self, _: object) -> None:
        raise AssertionError("asyncio's has defects")

    def is_closing(self) -> bool:
        return None in self.pieces

    def close(self) -> None:
        self.pieces.append(None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """The client sends nothing."""

    def write_eof(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return self.waiting


def sent(work: Callable[[JoinedWrites], None]) -> tuple[Pieces, Pieces]:
    """Returns what has been sent right after the work, and what a turn of the event loop adds."""

    async def turn() -> tuple[Pieces, Pieces]:
        transport = Transport()
        work(JoinedWrites(transport, asyncio.get_running_loop()))
        at_once = list(transport.pieces)
        await asyncio.sleep(0)
        return at_once, transport.pieces[len(at_once) :]

    return asyncio.run(turn())


def joined_writes(transport: Transport) -> JoinedWrites:
    """Returns writes whose end of the turn does not come."""
    loop: Any = SimpleNamespace(call_soon=lambda _: None)
    return JoinedWrites(transport, loop)


def writing(*data: bytes, then: str = "flush") -> Callable[[JoinedWrites], None]:
    def work(joined: JoinedWrites) -> None:
        for piece in data:
            joined.write(piece)
        assert joined.get_write_buffer_size() == 6 + sum(map(len, data)) % BODIES
        getattr(joined, then)()

    return work


@pytest.mark.parametrize(("work", "at_once", "later"), [
    (writing(b"a", b"b", b"c"), [b"abc"], []),
    (writing(b"a", b"b", then="is_closing"), [], [b"ab"]),
    (writing(b"a", b"", b"b"), [b"ab"], []),
    (writing(then="flush"), [], []),
    (writing(b"a", bytes(BODIES - 1), then="is_closing"), [b"a", bytes(BODIES - 1)], []),
    (writing(b"a", b"b", then="close"), [b"ab", None], []),
    (writing(b"a", b"b", then="write_eof"), [b"ab", None], []),
    (writing(b"a", then="abort"), [None], []),
])  # fmt: skip
def test_what_is_written_in_a_turn_is_sent_together(
    work: Callable[[JoinedWrites], None], at_once: Pieces, later: Pieces
) -> None:
    assert sent(work) == (at_once, later)


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems count, or take, the bytes of a buffer in another way"
)
def test_what_the_system_has_kept_is_not_taken() -> None:
    """The client takes it as it reads, long before the system takes more: one that reads slowly makes progress."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.connect(listening.getsockname())
        connection, _ = listening.accept()
        connection.settimeout(0)
        while select.select([], [connection], [], 0.1)[1]:
            with suppress(BlockingIOError):
                connection.send(bytes(BODIES))
        joined = joined_writes(Transport(connection))
        before = taken = joined.taken()
        assert before is not None
        while taken == before:
            client.recv(1000)
            taken = joined.taken()
        assert taken is not None
        assert before < taken < -6
        assert not select.select([], [connection], [], 0)[1]
        connection.close()
        assert joined.taken() == -6


def test_what_the_client_takes_grows_with_what_is_sent() -> None:
    """A stream that is made as fast as it is read makes progress, though as many bytes wait as before."""
    joined = joined_writes(Transport())
    joined.send(bytes(100))
    assert joined.taken() == 94
    joined.send(bytes(100))
    assert joined.taken() == 194
    joined.write(bytes(10))
    joined.flush()
    assert joined.taken() == 204
    joined = joined_writes(Transport(waiting=0))
    assert joined.taken() is None
    joined.write(b"kept")
    assert joined.taken() == 0
    joined.flush()
    assert joined.taken() is None


def test_a_second_answer_of_a_turn_is_sent_too() -> None:
    def answers(joined: JoinedWrites) -> None:
        writing(b"a")(joined)
        writing(b"b", then="is_closing")(joined)

    assert sent(answers) == ([b"a"], [b"b"])


@pytest.mark.parametrize("size", [1, HIGH_WATER_LIMIT // 3 + 1])
def test_a_piece_that_is_alone_is_not_copied(size: int) -> None:
    """Further ones are joined, in linear time. Reading stops while there are too many."""
    flow = PacedFlow(Transport())
    cycle = SimpleNamespace(body=bytearray(), message_event=asyncio.Event())
    first = bytes([1]) * size
    add(first, cycle, flow)
    assert cycle.body is first
    assert cycle.message_event.is_set()
    assert not flow.read_paused
    add(first, cycle, flow)
    joined = cycle.body
    add(b"last" * size, cycle, flow)
    assert cycle.body is joined
    assert joined == first * 2 + b"last" * size
    assert flow.read_paused == (size > 1)


def segments(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGMENTS + 4)
    return int(struct.unpack_from("=I", info, SEGMENTS)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO counts the segments that were sent on Linux only")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_answer_is_one_segment(loop: str) -> None:
    with serving(loop, LIMITS, EitherHttp) as port:
        with opened(port) as connection:
            for count in (1, 2, 3):
                connection.sendall(head("POST", "/", "Content-Length: 3") + b"abc")
                assert answer(connection).endswith(b"abc")
                assert segments(connection) == count
        with Http2(port) as client:
            client.send(asking(1, "GET", "/?x"))
            client.answer(1)
            before = segments(client.socket)
            client.send(asking(3, "GET", "/?x"))
            client.answer(3)
            assert segments(client.socket) == before + 1


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_answers_without_a_body_are_sent(loop: str) -> None:
    with serving(loop, LIMITS) as port, opened(port) as connection:
        connection.sendall(head("HEAD", "/") * 2 + head("HEAD", "/", "Connection: close"))
        assert rest(connection).count(b"HTTP/1.1 200") == 3
