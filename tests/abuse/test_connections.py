"""Heads of any size, clients that stop, and any number of connections cost the server little, and they end."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.raw import SECONDS, answer, crowd, head, opened, poured, rest, status, talk
from tests.support.server import Server, serve

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIVE = "/v2/health/live"
INFER = "/v2/models/vector_fp32/infer"
LIMIT = 65536
CHUNKED = head("POST", INFER, "Transfer-Encoding: chunked")
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: MTIzNDU2Nzg5MA==",
)


@pytest.fixture(scope="module")
def server(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts a megabyte, and waits for no client longer than a second."""
    log = tmp_path_factory.mktemp("server") / "log"
    settings = {"HEAD_TIMEOUT": "0.4", "PAUSE_TIMEOUT": "0.8", "MAX_BODY_BYTES": "1000000"}
    with serve(log, REPOSITORY=str(zoo), **settings) as server:
        yield server


@pytest.fixture(scope="module")
def patient(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default times."""
    with serve(tmp_path_factory.mktemp("patient") / "log", REPOSITORY=str(zoo)) as server:
        yield server


def is_reset(connection: socket.socket) -> bool:
    """Sends a byte. Returns whether the server has closed the connection."""
    try:
        connection.sendall(b"x")
    except ConnectionError:
        return True
    return False


def closing(*headers: str, path: str = LIVE) -> bytes:
    return head("GET", path, "Connection: close", *headers)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((closing("A: " + "x" * (LIMIT - 200)),), 200),
        ((closing("A: " + "x" * LIMIT),), 431),
        ((closing()[:-2], b"A: ", b"x" * 50_000_000), 431),
        ((closing()[:-2], (b"A: " + b"x" * 1000 + b"\r\n") * 1000), 431),
        ((head("GET", LIVE, *["a: 1"] * 300),), 431),
        ((b"\r\n" * LIMIT,), 431),
        ((head("GET", "/" + "x" * (LIMIT - 100), "Connection: close"),), 404),
        ((head("GET", "/" + "x" * LIMIT),), 414),
        ((b"GET /", b"x" * 20_000_000), 414),
        ((CHUNKED, b"1\r\n{\r\n0\r\nA: ", b"x" * 20_000_000), 431),
        ((CHUNKED, b"1;", b"x" * 20_000_000), 431),
        ((CHUNKED, b"0\r\n", b"a: 1\r\n" * 200_000, b"\r\n"), 431),
    ],
)
def test_a_head_has_a_largest_size(patient: Server, pieces: tuple[bytes, ...], expected: int) -> None:
    """URL, headers, trailers and extensions of chunks are refused beyond it, and the connection ends."""
    got = talk(patient.port, *pieces)
    assert status(got) == expected
    assert b"connection: close\r\n" in got
    assert expected in (200, 404) or got.split(b"\r\n\r\n")[1].startswith(b'{"error":')


@pytest.mark.parametrize(
    ("begin", "expected"), [(b"GET /", 414), (closing()[:-2] + b"A: ", 431), (b"nonsense\r\n", 400)]
)
def test_a_refused_client_that_sends_on_gets_its_refusal(patient: Server, begin: bytes, expected: int) -> None:
    """A reset would take the refusal away. Clients send everything before they read."""
    with opened(patient.port) as connection:
        connection.sendall(begin)
        connection.sendall(b"x" * 20_000_000)
        assert status(connection.recv(4096)) == expected
        assert connection.recv(1) == b""


def test_a_refused_client_that_never_stops_is_left(server: Server) -> None:
    """The server does not wait for its end."""
    with opened(server.port) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert status(rest(connection)) == 400
        until = time.monotonic() + SECONDS
        while not is_reset(connection):
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((), 0),
        ((b"GET /v2/health",), 408),
        ((b"\r\n",), 408),
        ((head("GET", LIVE)[:-2],), 408),
        ((head("POST", INFER, "Content-Length: 100"), b"{"), 408),
        ((CHUNKED, b"5\r\n{"), 408),
        ((CHUNKED, b"1\r\n{\r\n"), 408),
    ],
)
def test_a_request_that_stops_is_given_up(server: Server, pieces: tuple[bytes, ...], expected: int) -> None:
    """It may stop in its head or in its body. There is an answer if the request had begun."""
    assert status(talk(server.port, *pieces)) == expected


@pytest.mark.parametrize("begin", [b"GET /v2/health/live HTTP/1.1\r\nA: ", head("POST", INFER, "Content-Length: 999")])
def test_a_request_that_trickles_is_given_up(server: Server, begin: bytes) -> None:
    """A byte every 0.05 s does not extend the time limit."""
    with opened(server.port) as connection:
        connection.sendall(begin)
        connection.settimeout(0.05)
        got = b""
        for _ in range(400):
            try:
                connection.sendall(b"x")
                got = connection.recv(1000)
                break
            except TimeoutError:
                continue
        assert status(got) == 408


def test_an_idle_connection_ends_after_the_servers_time(launch: Callable[..., Server], tmp_path: Path) -> None:
    """One with a shorter time ends first."""
    long, short = (launch(rpc=True, REPOSITORY=str(tmp_path), IDLE_TIMEOUT=seconds).port for seconds in ("3600", "0.2"))
    with opened(long) as kept, opened(short) as ended:
        for connection in (kept, ended):
            connection.sendall(head("GET", LIVE))
            assert status(answer(connection)) == 200
        assert rest(ended) == b""
        kept.sendall(closing())
        assert status(rest(kept)) == 200


def test_an_answered_connection_that_begins_again_is_given_up(server: Server) -> None:
    """The second head has as much time as the first."""
    with opened(server.port) as connection:
        connection.sendall(head("GET", LIVE))
        assert status(answer(connection)) == 200
        connection.sendall(b"GET")
        assert status(rest(connection)) == 408


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (head("GET", LIVE, version="1.0"), 200),
        (b"GET /v2/health/live\r\n\r\n", 505),
        (head("GET", LIVE, version="2.0"), 505),
        (head("POST", INFER, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
        (head("POST", INFER, "Transfer-Encoding: gzip", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 501),
        (head("POST", INFER, "Transfer-Encoding: identity") + b"", 400),
        (head("GET", LIVE, *UPGRADE), 403),
        (head("GET", "/", *UPGRADE), 403),
        (b"\0\r\n\r\n", 400),
    ],
)
def test_other_versions_and_codings_end_the_connection(server: Server, request_: bytes, expected: int) -> None:
    """HTTP/1.0 is answered; what the server would misunderstand is refused."""
    got = talk(server.port, request_)
    assert status(got) == expected
    assert b"\r\nconnection: close\r\n" in got
    assert b"chunked\r\n" not in got


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(server: Server) -> None:
    """The end of the connection ends the stream."""
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    headers = ("Content-Type: application/connect+json", "Content-Length: 0")
    got = talk(server.port, head("POST", path, *headers, version="1.0"))
    start, _, body = got.partition(b"\r\n\r\n")
    assert status(got) == 200
    assert b"transfer-encoding" not in start
    assert body[:1] == b"\2"


def test_a_refusal_comes_after_the_answers_that_are_due(server: Server) -> None:
    """A pipelined request behind good ones does not take their answers away."""
    good = head("GET", LIVE)
    for bad in (b"\0\r\n\r\n", head("GET", "/", *UPGRADE), b"A" * 300_000):
        got = talk(server.port, good + good, good + bad)
        assert got.startswith(b"HTTP/1.1 200")
        assert got.count(b"HTTP/1.1 200") == 3


def test_requests_that_are_not_http_or_upgrade_leave_no_line_in_the_log(server: Server) -> None:
    """A log cannot be filled from outside. Lines are written after the answers, also those of the tests before."""
    for request in (
        closing(path="/first"),
        b"\0\r\n\r\n",
        head("GET", LIVE, *UPGRADE),
        head("GET", "/", "Connection: Upgrade, close", "Upgrade: h2c"),
        closing(path="/last"),
    ):
        talk(server.port, request)
    while " GET /last 404 " not in (log := server.log.read_text()):
        time.sleep(0.01)
    assert len(log[log.index(" GET /first 404 ") : log.index(" GET /last 404 ")].splitlines()) == 2


def test_trailers_are_not_headers(server: Server) -> None:
    """A trailer that names another coding changes nothing."""
    with opened(server.port) as connection:
        body = b"2\r\n{}\r\n0\r\ncontent-encoding: zstd\r\n\r\n"
        connection.sendall(head("POST", INFER, "Transfer-Encoding: chunked") + body)
        assert b"inputs" in answer(connection)
        connection.sendall(head("GET", LIVE))
        assert status(answer(connection)) == 200


@pytest.mark.parametrize("close", [(), ("Connection: close",)])
def test_a_client_that_sends_all_of_a_refused_body_reads_its_answer(server: Server, close: tuple[str, ...]) -> None:
    """The server reads on for a while, whether or not it closes afterwards."""
    got = talk(server.port, head("POST", INFER, "Content-Length: 1900000", *close), b"x" * 1_900_000, closing())
    assert status(got) == 413
    assert got.count(b"HTTP/1.1 200") == (0 if close else 1)


@pytest.mark.parametrize("framing", ["Content-Length: 99999999999", "Transfer-Encoding: chunked"])
def test_a_refused_body_is_not_read_for_ever(server: Server, framing: str) -> None:
    """The connection ends soon after as many bytes again as the limit."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with opened(server.port) as connection:
        connection.sendall(head("POST", INFER, framing))
        assert not poured(connection, chunk, 100_000_000)


def test_a_client_that_waited_for_100_and_was_refused_cannot_go_on(server: Server) -> None:
    """The server could not know whether the body follows or the next request."""
    request = head("POST", INFER, "Content-Length: 2000000", "Expect: 100-continue")
    got = talk(server.port, request)
    assert status(got) == 413


def hold(connection: socket.socket) -> None:
    """Begins a request whose body the server waits for."""
    connection.sendall(head("POST", INFER, "Content-Length: 2", "Expect: 100-continue"))
    assert connection.recv(100).startswith(b"HTTP/1.1 100")


def welcome(server: Server, request: bytes) -> int:
    """Returns the status for a client that comes back after 503."""
    while (got := status(talk(server.port, request))) in (0, 503):
        time.sleep(0.1)
    return got


def test_idle_connections_make_room_for_new_ones(zoo: Path, tmp_path: Path) -> None:
    """Connections that were answered are closed, the oldest first. Busy ones stay."""
    with serve(tmp_path / "log", REPOSITORY=str(zoo), CONNECTIONS="4") as server, crowd(server.port, 4) as clients:
        *idle, first, second = clients
        for connection in idle:
            connection.sendall(head("GET", LIVE))
            assert status(answer(connection)) == 200
        for connection in (first, second):
            hold(connection)
        for _ in idle:
            assert status(talk(server.port, closing())) == 200
        for connection in (first, second):
            connection.sendall(b"{}")
            assert status(answer(connection)) == 400


def test_a_crowd_of_busy_connections_gets_503(zoo: Path, tmp_path: Path) -> None:
    """The answer says when the client should retry."""
    with serve(tmp_path / "log", REPOSITORY=str(zoo), CONNECTIONS="3") as server, crowd(server.port, 3) as busy:
        for connection in busy:
            hold(connection)
        got = talk(server.port)
        assert status(got) == 503
        assert b"\r\nretry-after: 1\r\n" in got
        busy[0].sendall(b"{}")
        assert status(answer(busy[0])) == 400
        assert welcome(server, closing()) == 200


def test_half_heads_do_not_keep_others_out(zoo: Path, tmp_path: Path) -> None:
    """There are as many of them as the server accepts, and then a client that wants an answer."""
    settings = {"CONNECTIONS": "9", "HEAD_TIMEOUT": "600"}
    with serve(tmp_path / "log", REPOSITORY=str(zoo), **settings) as server, crowd(server.port, 9) as halves:
        for connection in halves:
            connection.sendall(b"GET /v2/health")
        assert welcome(server, closing()) == 200


def test_connections_leave_descriptors_for_files(zoo: Path, tmp_path: Path) -> None:
    """With more clients than descriptors, a model that was never used can still be read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with serve(tmp_path / "log", REPOSITORY=str(zoo)) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            with crowd(server.port, 300):
                assert welcome(server, head("POST", INFER, "Content-Length: 2", "Connection: close") + b"{}") == 400
            assert "Too many open files" not in server.log.read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
