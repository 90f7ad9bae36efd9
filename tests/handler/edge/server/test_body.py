"""handler.edge.server.body: requests that begin when their bodies have arrived, and those that cannot wait for it."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import ServerBusy
from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.protocol import BoundedHttp
from tests.support.bounded import MOST_WAITED, Whole, serving
from tests.support.raw import answer, head, opened, rest, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = Limits(head=8000, head_seconds=30, pause=30, drain=300_000, connections=20)


@pytest.fixture
def app() -> Whole:
    return Whole()


@pytest.fixture(params=[("asyncio", BoundedHttp), ("uvloop", EitherHttp)])
def port(request: pytest.FixtureRequest, app: Whole) -> Iterator[int]:
    """The port of a server of the application."""
    loop, http = request.param
    with serving(loop, LIMITS, http, app=app) as port:
        yield port


def post(size: int, *headers: str) -> bytes:
    return head("POST", "/", *headers, f"Content-Length: {size}")


def until(holds: Callable[[], bool]) -> None:
    """Waits for the server."""
    while not holds():
        threading.Event().wait(0.001)


def begin(connection: socket.socket, app: Whole, wire: bytes) -> None:
    """Sends the beginning of a request, and waits until its body has a room."""
    rooms = app.rooms
    connection.sendall(wire)
    until(lambda: app.rooms > rooms)


@pytest.mark.parametrize("size", [1, 5000, 70_000, MOST_WAITED])
def test_a_body_behind_its_head_is_answered_at_once(port: int, app: Whole, size: int) -> None:
    """Once it is whole. The head is parsed for the first request only."""
    with opened(port) as connection:
        for number in range(3):
            body = b"%d" % number * size
            begin(connection, app, post(size) + body[: size // 2])
            assert app.answers == number
            connection.sendall(body[size // 2 :])
            assert answer(connection).endswith(b"\r\n\r\n" + body)
    assert (app.heads, app.answers, app.calls) == (1, 3, 0)


def test_heads_of_other_lengths_repeat(port: int, app: Whole) -> None:
    """Whether their bodies come with them or behind them."""
    with opened(port) as connection:
        for size in (5, 70_000, 0, 12, 5):
            begin(connection, app, post(size)) if size else connection.sendall(post(size))
            connection.sendall(b"x" * size)
            assert answer(connection).endswith(b"\r\n\r\n" + b"x" * size)
            connection.sendall(post(size) + b"y" * size)
            assert answer(connection).endswith(b"\r\n\r\n" + b"y" * size)
    assert (app.heads, app.answers, app.calls) == (1, 10, 0)


def test_a_body_that_gets_no_room_comes_by_asgi(port: int, app: Whole) -> None:
    """With a head that is known, too. The request begins before its body has arrived."""
    with opened(port) as connection:
        for size, calls in ((MOST_WAITED + 1, 1), (5, 1), (MOST_WAITED + 1, 2)):
            connection.sendall(post(size))
            if size > MOST_WAITED:
                until(lambda: app.calls == calls)  # noqa: B023 - it is called in its turn
            connection.sendall(b"x" * size)
            assert answer(connection).endswith(b"\r\n\r\n" + b"x" * size)
    assert app.answers == 1


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("body", [b"later" * 20_000, b"sent5" * 20_000, b"later", b"sent5"])
def test_what_is_not_answered_at_once_comes_by_asgi_with_its_body(
    port: int, app: Whole, body: bytes, *, is_known: bool
) -> None:
    """With the time at which its head came. The next request is answered at once."""
    with opened(port) as connection:
        if is_known:
            connection.sendall(post(1) + b"x")
            assert answer(connection).endswith(b"\r\n\r\nx")
        begin(connection, app, post(len(body)) + body[:3])
        connection.sendall(body[3:])
        assert answer(connection).endswith(b"\r\n\r\n" + (b"made:" if body.startswith(b"sent") else b"") + body)
        if app.calls:
            assert app.came == app.last_room.came
        begin(connection, app, post(5))
        connection.sendall(b"12345")
        assert answer(connection).endswith(b"\r\n\r\n12345")
    assert app.answers == 1 + is_known


def test_requests_behind_a_body_have_their_answers(port: int, app: Whole) -> None:
    """They come in the segment with which it ends."""
    got = b""
    with opened(port) as connection:
        for number in (1, 2):
            begin(connection, app, post(90_000) + b"x")
            connection.sendall(b"x" * 89_999 + post(1) + b"y" + head("GET", "/a") + post(2) + b"z")
            threading.Event().wait(0.01)
            connection.sendall(b"z")
            while got.count(b"zz") < number:  # a body has a room only if nothing is under way
                got += connection.recv(2**16)
        connection.shutdown(socket.SHUT_WR)
        bodies = re.findall(rb"content-length: \d+\r\n\r\n([^H]*)", got + rest(connection))
    assert bodies == [b"x" * 90_000, b"y", b"", b"zz"] * 2


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("size", [50, 100_000])
def test_a_client_that_leaves_inside_a_body_is_noticed(port: int, app: Whole, size: int, *, is_known: bool) -> None:
    """The request begins, and the application sees that."""
    with opened(port) as connection:
        if is_known:
            connection.sendall(post(1) + b"x")
            assert answer(connection).endswith(b"\r\n\r\nx")
        begin(connection, app, post(size) + b"y" * 20)
    until(lambda: app.gone == 1)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_client_that_ends_its_side_inside_a_body_is_noticed(port: int, app: Whole, *, is_known: bool) -> None:
    """It cannot send the rest."""
    with opened(port) as connection:
        if is_known:
            connection.sendall(post(1) + b"x")
            assert answer(connection).endswith(b"\r\n\r\nx")
        begin(connection, app, post(50) + b"y" * 20)
        connection.shutdown(socket.SHUT_WR)
        assert rest(connection) == b""
    until(lambda: app.gone == 1)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_body_that_does_not_go_on_is_refused(app: Whole, *, is_known: bool) -> None:
    """In the time of any body. The application sees that its client has gone."""
    with serving("uvloop", LIMITS._replace(pause=0.2), app=app) as port, opened(port) as connection:
        if is_known:
            connection.sendall(post(1) + b"x")
            assert answer(connection).endswith(b"\r\n\r\nx")
        begin(connection, app, post(50) + b"y" * 20)
        assert status(rest(connection)) == 408
        until(lambda: app.gone == 1)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_that_ends_waits_for_a_body_that_arrives(app: Whole, loop: str, *, is_known: bool) -> None:
    """Its request begins, and has its answer."""
    with ExitStack() as serves:
        port = serves.enter_context(serving(loop, LIMITS, app=app))
        ending = threading.Thread(target=serves.pop_all().close)
        with opened(port) as connection:
            if is_known:
                connection.sendall(post(1) + b"x")
                assert answer(connection).endswith(b"\r\n\r\nx")
            begin(connection, app, post(5) + b"12")
            ending.start()
            until(lambda: app.calls == 1)
            connection.sendall(b"345")
            assert answer(connection).endswith(b"\r\n\r\n12345")
            assert rest(connection) == b""
        ending.join()


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("most", [2, 80_000])
def test_a_body_that_is_too_much_meanwhile_comes_by_asgi(
    port: int, app: Whole, monkeypatch: pytest.MonkeyPatch, most: int, *, is_known: bool
) -> None:
    """The bytes in flight are many by then. The application decides."""
    with opened(port) as connection:
        if is_known:
            connection.sendall(post(1) + b"x")
            assert answer(connection).endswith(b"\r\n\r\nx")
        original, ended = app.room, []

        def room(known: Any, size: int) -> Any:
            made: Any = original(known, size)

            def grow(size: int) -> None:
                if size > most:
                    raise ServerBusy("full")

            made.grow, made.end = grow, lambda: ended.append(1)
            return made

        monkeypatch.setattr(app, "room", room)
        begin(connection, app, post(100_000) + b"y")
        connection.sendall(b"y" * 99_999)
        assert answer(connection).endswith(b"\r\n\r\n" + b"y" * 100_000)
    assert (app.calls, ended) == (1, [1])


def test_a_connection_that_waits_for_a_body_is_not_idle(app: Whole) -> None:
    """It is not closed for another one."""
    limits = LIMITS._replace(connections=1)
    with serving("uvloop", limits, app=app) as port, opened(port) as connection:
        connection.sendall(post(1) + b"x")
        assert answer(connection).endswith(b"\r\n\r\nx")
        begin(connection, app, post(5) + b"12")
        with opened(port) as other:
            assert status(rest(other)) == 503
        connection.sendall(b"345")
        assert answer(connection).endswith(b"\r\n\r\n12345")


@pytest.mark.parametrize("body", [b"12345", b"123"])
def test_the_rest_of_a_head_is_no_head(port: int, body: bytes) -> None:
    """A head that has come in two parts is not remembered."""
    start, tail = head("POST", "/", "A: b")[:-2], b"B: c\r\nContent-Length: 5\r\n\r\n"
    with opened(port) as connection:
        connection.sendall(start)
        threading.Event().wait(0.05)
        connection.sendall(tail + body)
        threading.Event().wait(0.05)
        connection.sendall(b"12345"[len(body) :])
        assert answer(connection).endswith(b"\r\n\r\n12345")
        connection.sendall(tail + b"12345")
        assert status(rest(connection)) == 400
