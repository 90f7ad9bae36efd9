"""handler.edge.server.protocol is tested with one connection to uvicorn in this process, on either event loop.

The protocol that knows HTTP/2, too, treats HTTP/1.1 alike, and so does one whose application answers at once.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.protocol import BoundedHttp
from tests.support.bounded import Whole, application, serving
from tests.support.raw import answer, crowd, head, opened, poured, rest, status, talk

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOSE = "Connection: close"


SERVERS = [
    ("asyncio", BoundedHttp, application),
    ("asyncio", BoundedHttp, Whole()),
    ("uvloop", BoundedHttp, application),
    ("uvloop", EitherHttp, Whole()),
]


@pytest.fixture(scope="module", params=SERVERS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server with small limits."""
    limits = Limits(head=1000, head_seconds=0.3, pause=0.4, drain=300_000, connections=20)
    loop, http, app = request.param
    with serving(loop, limits, http, app=app) as port:
        yield port


@pytest.fixture(scope="module", params=SERVERS)
def patient(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that waits for clients on a busy machine."""
    limits = Limits(head=1000, head_seconds=30, pause=30, drain=300_000, connections=20)
    loop, http, app = request.param
    with serving(loop, limits, http, app=app) as port:
        yield port


def closing(method: str, target: str, *headers: str) -> bytes:
    return head(method, target, CLOSE, *headers)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((closing("GET", "/", "A: " + "x" * 900),), 200),
        ((closing("GET", "/", "A: " + "x" * 1000),), 431),
        ((closing("GET", "/", "A: ")[:-4], b"x" * 300_000), 431),
        ((head("GET", "/", *["a: 1"] * 257),), 431),
        ((closing("GET", "/" + "x" * 1000),), 414),
        ((b"GET /" + b"x" * 300_000,), 414),
        ((b"\r\n" * 1000,), 431),
        ((b"GET /\r\n\r\n",), 505),
        ((b"\0\r\n\r\n",), 400),
        ((b"\x16\x03\x01 ",), 400),
        ((head("FOO", "/"),), 501),
        ((head("get", "/"),), 501),
        ((b"GET",), 408),
        ((), 0),
        ((head("POST", "/", "Content-Length: 9"), b"x"), 408),
        ((head("POST", "/", "Content-Length: 9", "Transfer-Encoding: chunked"),), 400),
        ((head("POST", "/", "Transfer-Encoding: gzip, chunked"),), 501),
        ((head("POST", "/", "Transfer-Encoding: gzip, chunked", "Upgrade: websocket"),), 501),
        ((head("POST", "/", "Upgrade: websocket", "Transfer-Encoding: gzip, chunked"),), 501),
        ((head("POST", "/", "Transfer-Encoding: chunked"), b"1\r\nx\r\nz"), 400),
        ((head("POST", "/", "Transfer-Encoding: chunked"), b"1\r\nx\r\n0\r\nA: ", b"x" * 300_000), 431),
        ((closing("GET", "/", "Upgrade: websocket", "Connection: upgrade"),), 403),
        ((closing("GET", "/", "Upgrade: websocket"),), 200),
        ((head("CONNECT", "/"),), 200),
        ((b"GET / HTTP/1.1\r\n\r\n",), 400),
        ((b"GET / HTTP/1.1\r\nConnection: close\r\nhost:\r\n\r\n",), 200),
        ((b"GET / HTTP/1.0\r\n\r\n",), 200),
        ((closing("GET", "/", "Host: y"),), 400),
        ((head("GET", "/", "Host: y", version="1.0"),), 400),
        ((head("POST", "/", "Content-Length: 1") + b"x" + b"GET / HTTP/1.1\r\n\r\n",), 200),
    ],
)
def test_what_goes_beyond_a_limit_is_refused(port: int, pieces: tuple[bytes, ...], expected: int) -> None:
    """Its connection ends. There is an answer unless no request had begun."""
    got = talk(port, *pieces)
    assert status(got) == expected
    assert not got or b"\r\nconnection: close\r\n" in got


@pytest.mark.parametrize(("path", "member"), [
    ("/", "error"), ("/v1/models/m", "error"), ("/grps/v1/x", "status"), ("/v1/embeddings", "error"),
])  # fmt: skip
@pytest.mark.parametrize(("line", "more", "code"), [
    ("GET {}", "A: " + "x" * 1000, 431), ("GET {}", "A: " + "x" * 300_000, 431), ("GET {}?" + "x" * 1000, "", 414),
    ("POST {}", "Content-Length: 9", 408), ("GET {}", "Host: y", 400), ("POST {}", "Upgrade: websocket", 403),
    ("FOO {}", "", 501), ("post {}", "", 501), ("POST {}", "Transfer-Encoding: gzip", 400),
])  # fmt: skip
def test_a_refusal_has_the_format_of_its_paths_protocol(
    port: int, path: str, member: str, line: str, more: str, code: int
) -> None:
    """It is the same as for requests that the application gets."""
    method, target = line.format(path).split(" ")
    upgrade = ["Connection: upgrade"] if "Upgrade" in more else []
    got = talk(port, head(method, target, *([more] if more else []), *upgrade))
    told = json.loads(got.partition(b"\r\n\r\n")[2])
    assert (status(got), [*told]) == (code, [member])
    assert member == "error" or told["status"] == {"code": code, "msg": told["status"]["msg"], "status": "FAILURE"}
    assert isinstance(told[member], str) is (path in ("/", "/v1/models/m"))


@pytest.mark.parametrize(("line", "more", "code", "name"), [
    ("GET {}", "A: " + "x" * 1000, 431, "resource_exhausted"), ("GET {}?" + "x" * 1000, "", 414, "resource_exhausted"),
    ("POST {}", "Content-Length: 9", 408, "deadline_exceeded"), ("GET {}", "Host: y", 400, "invalid_argument"),
    ("POST {}", "Transfer-Encoding: gzip, chunked", 501, "unimplemented"), ("FOO {}", "", 501, "unimplemented"),
    ("POST {}", "Transfer-Encoding: xchunked", 400, "invalid_argument"),
])  # fmt: skip
def test_a_refusal_of_a_remote_call_is_connects(port: int, line: str, more: str, code: int, name: str) -> None:
    """Its clients show the message of such an object alone."""
    method, target = line.format("/inference.GRPCInferenceService/ModelInfer").split(" ")
    got = talk(port, head(method, target, *([more] if more else [])))
    told = json.loads(got.partition(b"\r\n\r\n")[2])
    assert (status(got), told.pop("code")) == (code, name)
    assert [*told] == ["message"]


@pytest.mark.parametrize(("request_head", "told"), [
    (closing("GET", "/?" + "x" * 1000), "the URL is too long: with the headers it can have 1000 bytes; send long"),
    (closing("GET", "/", "A: " + "x" * 1000), "the headers are too large: with the URL they can have 1000 bytes"),
])  # fmt: skip
def test_the_refusal_of_a_long_head_has_the_limit(port: int, request_head: bytes, told: str) -> None:
    """A client of Connect's GET learns how long its messages can be."""
    assert json.loads(talk(port, request_head).partition(b"\r\n\r\n")[2])["error"].startswith(told)


@pytest.mark.parametrize("line", ["A:b c", "A:  b c", "A: b c \t", "A:\t b c  "])
def test_the_space_around_a_value_is_not_part_of_it(port: int, line: str) -> None:
    """The application gets the value as a client means it (RFC 9110 5.5)."""
    assert b"\r\nx-values: |b c|\r\n" in talk(port, closing("GET", "/", line))


@pytest.mark.parametrize("host", [
    b"a b", b"a/b@c", b"a@b", b"[::1", b"::1", b"a:b", b"a:99999", b"a:65536", b"a:80:80", b"a\xff", b"a%2", b"[a.b]c",
    "ü".encode(), b"a#b", b'a"b', b"[]", b"a, b",
])  # fmt: skip
@pytest.mark.parametrize("more", [b"", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"Upgrade: websocket\r\n"])
def test_a_malformed_host_is_refused(port: int, host: bytes, more: bytes) -> None:
    """Also behind a request with a valid one (RFC 9112 3.2)."""
    got = talk(port, head("GET", "/") + b"GET / HTTP/1.1\r\n" + more + b"Host: " + host + b"\r\n\r\n")
    assert got.count(b"HTTP/1.1 200") == 1
    refusal = got[got.index(b"HTTP/1.1 400") :]
    told = "the request's Host header is malformed; expected HOST or HOST:PORT"
    assert json.loads(refusal.partition(b"\r\n\r\n")[2]) == {"error": told}


@pytest.mark.parametrize("host", [
    b"", b"a", b"A.b-c_d~", b"a.", b"a:", b"a:0", b"a:65535", b"a:00080", b"1.2.3.4:80", b"[::1]",
    b"[::ffff:1.2.3.4]:80", b"[fe80::1%25eth0]", b"[v1.a:b]", b"%2Fa%2fb", b"a!$&'()*+,;=",
])  # fmt: skip
def test_a_valid_host_is_not_refused(port: int, host: bytes) -> None:
    assert status(talk(port, b"GET / HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")) == 200


def test_pipelined_requests_are_answered_in_order_however_they_are_cut(patient: int) -> None:
    """The last of them is refused behind them, unless an answer is due when it comes: then the connection ends."""
    wire = b"".join(head("POST", "/", "Content-Length: 5") + b"%05d" % number for number in range(40))
    for size in (7, 100, 10_000):
        pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
        got = talk(patient, *pieces, b"\0\r\n\r\n").partition(b"HTTP/1.1 400")[0]
        assert [part[-5:] for part in got.split(b"HTTP/1.1 200 OK")[1:]] == [b"%05d" % number for number in range(40)]


def test_a_request_behind_a_body_begins_anew(patient: int) -> None:
    """It arrives, complete or in part, in the same piece of data as the end of the body before it."""
    first = head("POST", "/", "Content-Length: 4000")
    second = head("GET", "/", "A: " + "x" * 800)
    for cut in (0, 10, len(second)):
        pieces = first + b"x", b"x" * 3999 + second[:cut], second[cut:], closing("GET", "/")
        with opened(patient) as connection:
            for piece in pieces:
                connection.sendall(piece)
                threading.Event().wait(0.02)
            assert rest(connection).count(b"HTTP/1.1 200") == 3


def test_a_request_behind_a_body_that_nobody_reads_begins_anew(patient: int) -> None:
    """Its own body counts as its own: it may be longer than what a connection may send unread."""
    with opened(patient) as connection:
        connection.sendall(head("POST", "/refuse", "Transfer-Encoding: chunked") + b"1\r\nx\r\n")
        assert status(answer(connection)) == 400
        connection.sendall(b"0\r\n\r\n" + head("POST", "/", "Content-Length: 400000") + b"x" * 100)
        for _ in range(3):
            threading.Event().wait(0.01)
            connection.sendall(b"x" * 133_300)
        assert answer(connection).endswith(b"\r\n\r\n" + b"x" * 400_000)


def test_a_connection_whose_last_request_was_answered_at_once_is_idle(port: int) -> None:
    """It came with the end of a body whose answer was sent. A 408 would be taken for the answer to the next request."""
    with opened(port) as connection:
        connection.sendall(head("POST", "/refuse", "Transfer-Encoding: chunked") + b"1\r\nx\r\n")
        assert status(answer(connection)) == 400
        connection.sendall(b"0\r\n\r\n" + head("GET", "/"))
        assert status(answer(connection)) == 200
        threading.Event().wait(1)  # three times as long as a head may take
        connection.sendall(closing("GET", "/"))
        assert [status(b"HTTP/1.1" + part) for part in rest(connection).split(b"HTTP/1.1")[1:]] == [200]


def test_a_request_may_expect_100_behind_another_one(patient: int) -> None:
    """It gets it after the answer before (RFC 9110 10.1.1)."""
    with opened(patient) as connection:
        expecting = head("POST", "/", "Content-Length: 2", "Expect: 100-continue")
        connection.sendall(head("POST", "/stream?wait", "Content-Length: 1") + b"x" + expecting)
        got = b""
        while not got.endswith(b"100 Continue\r\n\r\n"):
            got += connection.recv(1)
        assert got.count(b"HTTP/1.1 200") == 1
        connection.sendall(b"ok")
        assert answer(connection).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("target", ["http://a:99999/", "http://", "http:///x", "http://a@b@c/"])
def test_a_target_that_is_no_url_is_refused_before_its_body_comes(port: int, target: str) -> None:
    """The parser of heads takes it, the parser of URLs does not."""
    with opened(port) as connection:
        connection.sendall(head("POST", target, "Content-Length: 5"))
        assert status(rest(connection)) == 400


def test_a_body_of_any_framing_comes_whole(patient: int) -> None:
    """The cases are chunks of a byte, chunks with extensions, and a body after 100-continue."""
    chunks = b"".join(b"1;ext=1\r\n%c\r\n" % letter for letter in b"abc" * 3000) + b"0\r\ntrailer: 1\r\n\r\n"
    with opened(patient) as connection:
        connection.sendall(head("POST", "/", "Transfer-Encoding: chunked") + chunks)
        assert answer(connection).endswith(b"abc" * 3000)
        connection.sendall(head("POST", "/", "Content-Length: 2", "Expect: 100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ok")
        got = answer(connection)
    assert got.endswith(b"ok")
    assert b"x-headers: 3\r\n" in got  # the trailer does not count


@pytest.mark.parametrize("close", [True, False])
def test_a_body_whose_answer_was_sent_is_read_for_a_while(port: int, *, close: bool) -> None:
    """Its client can read the answer after sending everything; then the connection ends or is used again."""
    length = "Content-Length: 200000"
    request = closing("POST", "/refuse", length) if close else head("POST", "/refuse", length)
    got = talk(port, request, b"x" * 200_000, closing("GET", "/"))
    assert status(got) == 400
    assert got.count(b"HTTP/1.1 200") == (not close)


@pytest.mark.parametrize("request_", [head("POST", "/refuse", "Content-Length: 90000000"), closing("GET", "/large")])
def test_a_client_that_only_sends_is_left(port: int, request_: bytes) -> None:
    """It sends without end after its answer, or does not read it."""
    with opened(port) as connection:
        connection.sendall(request_)
        assert not poured(connection, b"x" * 10_000, 90_000_000)


@pytest.mark.parametrize("request_", [head("POST", "/refuse", "Content-Length: 9"), head("GET", "/large")])
def test_a_client_that_does_nothing_is_left(port: int, request_: bytes) -> None:
    """Neither an unfinished body nor an unread answer keeps a connection open. A slow machine takes longer."""

    def got_after(seconds: float) -> int:
        with opened(port) as connection:
            connection.sendall(request_)
            threading.Event().wait(seconds)
            return len(rest(connection))

    assert any(got_after(seconds) < 50_000_000 for seconds in (1.5, 6, 20))


def test_a_client_that_was_refused_instead_of_100_cannot_go_on(port: int) -> None:
    """Its next bytes could be the body or another request."""
    got = talk(port, head("POST", "/refuse", "Content-Length: 9", "Expect: 100-continue"))
    assert status(got) == 400


def test_a_client_of_http_1_0_gets_no_100(port: int) -> None:
    """It would take it for the answer (RFC 9110 15.2)."""
    with opened(port) as connection:
        connection.sendall(head("POST", "/", "Content-Length: 1", "Expect: 100-continue", version="1.0"))
        threading.Event().wait(0.1)
        connection.sendall(b"x")
        assert status(rest(connection)) == 200


@pytest.mark.parametrize(("version", "framed"), [("1.1", True), ("1.0", False)])
def test_a_stream_has_chunks_only_for_clients_that_know_them(port: int, version: str, *, framed: bool) -> None:
    """HTTP/1.0 clients read to the end of the connection; both understand a Content-Length."""
    got = talk(port, head("POST", "/stream?wait", CLOSE, "Content-Length: 3", version=version), b"abc")
    assert got.endswith(b"3\r\nabc\r\n0\r\n\r\n" if framed else b"\r\n\r\nabc")
    assert (b"transfer-encoding" in got) is framed
    assert talk(port, head("POST", "/", CLOSE, "Content-Length: 3", version=version), b"abc").endswith(b"\r\n\r\nabc")


def test_a_broken_body_ends_a_request_that_others_wait_behind(port: int) -> None:
    """The parser cannot know where the next request begins."""
    broken = head("POST", "/stream", "Transfer-Encoding: chunked") + b"1\r\nx\r\nz"
    assert talk(port, head("GET", "/stream?wait") + broken).count(b"HTTP/1.1 ") <= 1


def test_new_connections_take_the_place_of_idle_ones(port: int) -> None:
    """The limit is 20; the server is full while all are busy."""
    with crowd(port, 20) as clients:
        for connection in clients:
            connection.sendall(head("POST", "/", "Content-Length: 1", "Expect: 100-continue"))
            assert connection.recv(100).startswith(b"HTTP/1.1 100")
        assert status(talk(port, closing("GET", "/"))) == 503
        for connection in clients:
            connection.sendall(b"x")
            assert status(answer(connection)) == 200
        while status(talk(port, closing("GET", "/"))) != 200:
            pass
