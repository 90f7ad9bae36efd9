"""handler.edge.server.offers is tested with connections to uvicorn in this process, over each of its protocols."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.protocol import BoundedHttp
from tests.support.bounded import Whole, application, serving
from tests.support.raw import answer, head, opened, status, talk

if TYPE_CHECKING:
    from collections.abc import Iterator

# The headers of Java's HttpClient.
OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA")
CHUNKS = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
WHOLE = head("POST", "/", *OFFER, "Content-Length: 5") + b"abcde"


@pytest.fixture(scope="module", params=[(BoundedHttp, application), (EitherHttp, application), (EitherHttp, Whole())])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that waits for clients on a busy machine."""
    limits = Limits(head=1000, head_seconds=30, pause=30, drain=300_000, connections=20)
    http, app = request.param
    with serving("uvloop", limits, http, app=app) as port:
        yield port


@pytest.mark.parametrize("wire", [WHOLE, head("POST", "/", *OFFER, "Transfer-Encoding: chunked") + CHUNKS])
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_a_request_that_offers_another_protocol_has_its_body(port: int, wire: bytes, size: int) -> None:
    """The connection goes on with HTTP/1.1, however the bytes are cut."""
    with opened(port) as connection:
        for _ in range(3):
            for start in range(0, len(wire), size):
                connection.sendall(wire[start : start + size])
            got = answer(connection)
            assert status(got) == 200
            assert got.endswith(b"abcde")
            assert b"connection: close" not in got


def test_offers_in_a_row_are_answered_in_order(port: int) -> None:
    """Offers arrive behind bodies, behind each other, and among requests without an offer."""
    plain = head("POST", "/", "Content-Length: 5")
    offers = [head("POST", "/", "Upgrade: h2c", "Connection: upgrade", "Content-Length: 5")] * 3
    wire = b"".join((offers[number % 3] if number % 4 else plain) + b"%05d" % number for number in range(1500))
    got = talk(port, wire, head("GET", "/", "Connection: upgrade, close", "Upgrade: h2c"))
    bodies = [part.rpartition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [*(b"%05d" % number for number in range(1500)), b""]


def test_an_offer_behind_a_large_body_is_declined(port: int) -> None:
    """The head of the next request arrives in the piece that ends the body."""
    with opened(port) as connection:
        connection.sendall(head("POST", "/", "Content-Length: 200000") + b"x" * 150_000)
        threading.Event().wait(0.02)
        connection.sendall(b"x" * 50_000 + WHOLE[:60])
        assert answer(connection).endswith(b"x" * 200_000)
        connection.sendall(WHOLE[60:])
        assert answer(connection).endswith(b"abcde")


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (head("GET", "/", *OFFER, "A: " + "x" * 1000), 431),
        (head("GET", "/" + "x" * 1000, *OFFER), 414),
        (head("POST", "/", *OFFER, "Transfer-Encoding: gzip, chunked"), 501),
        (head("GET", "/", *OFFER, "Host: y"), 400),
        (head("GET", "/", *OFFER, version="2.0"), 505),
        (head("POST", "/", *OFFER, "Transfer-Encoding: chunked") + b"z", 400),
        (head("GET", "/", "Connection: upgrade", "Upgrade: websocket"), 403),
    ],
)
def test_an_offer_does_not_change_what_is_refused(port: int, wire: bytes, expected: int) -> None:
    """Requests with an offer have the same bounds of head and body."""
    got = talk(port, wire)
    assert status(got) == expected
    assert got.count(b"\r\nconnection: close\r\n") == 1


def test_an_offer_waits_for_the_server_before_its_body(port: int) -> None:
    """The server sends 100-continue as it does without the offer."""
    with opened(port) as connection:
        connection.sendall(head("POST", "/", *OFFER, "Content-Length: 2", "Expect: 100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ok")
        assert answer(connection).endswith(b"ok")


def test_the_application_sees_all_headers_but_the_offer(port: int) -> None:
    """A header is what its client has sent: with bytes beyond ASCII, empty, and twice."""
    got = talk(port, head("GET", "/", "Upgrade: h2c", "Connection: upgrade, close", "A: \xe9 b", "A:", "A: c: d"))
    assert b"\r\nx-values: |\xc3\xa9 b||c: d|\r\n" in got
    assert b"\r\nx-headers: 5\r\n" in got
