"""handler.stores.s3.http and answers: connections, proxies and TLS, on loopback."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from handler.stores.s3.http import BucketReader
from handler.stores.s3.session import Anonymous
from handler.stores.transfer import answers
from handler.stores.transfer.answers import Broken, Line, ObjectRequest, StoreRefused, whole
from tests.support import s3_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator


X = ObjectRequest("x")


def bucket(url: str, **more: Any) -> BucketReader:
    """Returns a bucket that is asked without a signature."""
    return BucketReader(f"{url}/bucket", "us-east-1", Anonymous(), **more)


def test_a_connection_is_kept_for_the_next_request(stand_in: s3_stand_in.StandIn) -> None:
    """It is kept for some seconds; a connection that the store has closed meanwhile is not a failure."""
    stand_in.put("x", b"content")
    asked = bucket(stand_in.url)
    assert whole(asked.get(X, 1).body, 1) == b"content"
    [(_, first)] = asked._idle
    assert whole(asked.get(X, 1).body, 1) == b"content"
    assert asked._idle[0][1] is first
    first.sock.shutdown(socket.SHUT_RDWR)
    assert whole(asked.get(X, 1).body, 1) == b"content"
    asked._idle[:] = [(time.time() - 10, asked._idle[0][1])]
    second = asked._idle[0][1]
    assert whole(asked.get(X, 1).body, 1) == b"content"
    assert asked._idle[0][1] is not second


@pytest.fixture
def speaks() -> Iterator[Any]:
    """A server that answers every request as it is told, and keeps the requests."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said: dict[str, Any] = {"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "text": b"", "requests": []}

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        said["requests"].append(connection.recv(65536))
                        connection.sendall(said["text"])

        thread = threading.Thread(target=serve)
        thread.start()
        yield said
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def drips() -> Iterator[Any]:
    """A server that sends a text at once, and then a byte at a time. `ended`: it has given up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said: dict[str, Any] = {"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "text": b""}
        said["ended"], left = threading.Event(), threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(said["text"])
                for _ in range(1000):
                    if left.wait(0.02):
                        return
                    connection.sendall(b"0")
                said["ended"].set()

        thread = threading.Thread(target=serve)
        thread.start()
        yield said
        left.set()
        thread.join()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "RemoteDisconnected"),
        (b"what?\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "without Content-Length"),
        (b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\nContent-Range: bytes 0-4/9\r\n\r\nab", "2 bytes for the range 0-4"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nab", "without Content-Length"),
        (b"HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n", "408"),
        (b"HTTP/1.1 429 Many\r\nContent-Length: 0\r\n\r\n", "429"),
        (b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n", "503"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 99\r\n\r\n<Error><Code>Inter", "500"),
    ],
)
def test_what_is_no_answer_may_be_tried_again(speaks: Any, text: bytes, message: str) -> None:
    """It raises Broken with a short reason."""
    speaks["text"] = text
    with pytest.raises(Broken, match=message):
        bucket(speaks["url"]).get(X, 1)


def test_a_range_of_a_number_that_nobody_reads_is_none(speaks: Any) -> None:
    """The answer counts as the whole object, whose length is then compared with the listing's."""
    speaks["text"] = b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\nContent-Range: bytes 0-1/" + b"9" * 5000 + b"\r\n\r\nab"
    answer = bucket(speaks["url"]).get(X, 1)
    answer.body.close()
    assert (answer.ranged, answer.size) == (False, 2)


def test_a_connection_that_the_store_ends_is_read_to_its_end(speaks: Any) -> None:
    """It is not kept; http.client forgets the socket before the body is read."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    asked = bucket(speaks["url"])
    body = asked.get(X, 1).body
    assert whole(body, 1) == b"abc"
    body.close()
    assert not asked._idle


def test_a_proxy_is_asked_with_the_whole_address(speaks: Any) -> None:
    """The request has the proxy's own login; the store itself gets no connection."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    asked = bucket("http://store.invalid", proxy=speaks["url"].replace("//", "//us%40er:pass@"))
    assert whole(asked.get(ObjectRequest("a b"), 1).body, 1) == b"ok"
    head = speaks["requests"][0].decode()
    assert head.startswith("GET http://store.invalid/bucket/a%20b HTTP/1.1\r\nHost: store.invalid\r\n")
    assert "Proxy-Authorization: Basic dXNAZXI6cGFzcw==" in head


def test_a_proxy_opens_a_tunnel_for_tls(speaks: Any) -> None:
    """The proxy gets the store's name and port, and TLS is spoken through the tunnel."""
    speaks["text"] = b"HTTP/1.1 407 Login\r\n\r\n"
    asked = bucket("https://store.invalid", proxy=speaks["url"], tls=ssl.create_default_context())
    with pytest.raises(Broken, match="OSError"):
        asked.get(X, 1)
    assert speaks["requests"][0].startswith(b"CONNECT store.invalid:443 HTTP/1")


@pytest.mark.parametrize("tls", [False, True])
def test_cutting_a_line_ends_a_read_that_waits(
    stand_in: s3_stand_in.StandIn, secure: tuple[str, str], *, tls: bool
) -> None:
    """A second cut is not an error, and later requests on that line break off, too."""
    stand_in.put("x", bytes(100_000))
    stand_in.rate = 1.0
    url, certificate = secure
    asked = bucket(url, tls=ssl.create_default_context(cafile=certificate)) if tls else bucket(stand_in.url)
    line = Line()
    body = asked.get(X, 5, line).body
    cutting = threading.Thread(target=line.cut)
    cutting.start()
    with pytest.raises(Broken):
        whole(body, 5)
    cutting.join()
    line.cut()
    with pytest.raises(Broken):
        asked.get(X, 5, line)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the stand-in silent about objects."""
    end = threading.Event()
    monkeypatch.setattr(s3_stand_in.Handler, "_object", lambda *_: end.wait())
    yield
    end.set()


@pytest.mark.parametrize(("seconds", "stall"), [(0.1, 20.0), (math.inf, 0.1)])
def test_a_kept_connection_that_stalls_is_not_asked_again(
    stand_in: s3_stand_in.StandIn,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    seconds: float,
    stall: float,
) -> None:
    """The time for an answer is over; the caller decides."""
    stand_in.put("x", b"content")
    asked = bucket(stand_in.url)
    assert whole(asked.get(X, 5).body, 5) == b"content"
    request.getfixturevalue("silence")
    monkeypatch.setattr(answers, "STALL", stall)
    monkeypatch.setattr(asked, "_connection", lambda _: pytest.fail("asked again"))
    with pytest.raises(Broken, match="TimeoutError"):
        asked.get(X, seconds)
    assert not asked._idle


def test_no_time_is_no_answer(stand_in: s3_stand_in.StandIn) -> None:
    """Without time, no request is sent and nothing more is read."""
    stand_in.put("x", bytes(1_000_000))  # more than a reader has at once
    asked = bucket(stand_in.url)
    with pytest.raises(Broken, match="TimeoutError"):
        asked.get(X, 0)
    assert not stand_in.asked
    with pytest.raises(Broken, match="TimeoutError"):
        whole(asked.get(X, 5).body, 0)


@pytest.mark.parametrize(("at_once", "error", "message"), [
    (b"HTTP/1.1 200 OK\r\nx-note: ", Broken, "TimeoutError"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", Broken, "TimeoutError"),
    (b"HTTP/1.1 403 No\r\nContent-Length: 65536\r\n\r\n", StoreRefused, "403"),
    (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n1;", Broken, "500"),
])  # fmt: skip
@pytest.mark.parametrize(("seconds", "stall"), [(0.3, 20.0), (math.inf, 0.3)])
def test_an_answer_that_drips_has_no_more_time_than_others(
    drips: Any, monkeypatch: pytest.MonkeyPatch, at_once: bytes, error: Any, message: str, seconds: float, stall: float
) -> None:
    """A socket's timeout begins anew with each byte: such a store held a thread for hours."""
    if b"200" in at_once and seconds == math.inf and b"chunked" in at_once:
        seconds = 0.6  # a body that moves has all the time of its caller
    monkeypatch.setattr(answers, "STALL", stall)
    drips["text"] = at_once
    with pytest.raises(error, match=f"^{message}$"):
        bucket(drips["url"]).list({}, seconds)
    assert not drips["ended"].is_set()


def test_a_listing_may_come_in_chunks(stand_in: s3_stand_in.StandIn) -> None:
    """AWS sends it so; the connection is kept."""
    stand_in.put("x", b"content")
    plain = bucket(stand_in.url).list({}, 5)
    stand_in.chunked = True
    asked = bucket(stand_in.url)
    assert asked.list({}, 5) == plain
    [(_, first)] = asked._idle
    assert asked.list({}, 5) == plain
    assert asked._idle[0][1] is first


def test_a_refusal_may_come_in_chunks(stand_in: s3_stand_in.StandIn) -> None:
    """The refusal is for an object, which itself must have a length."""
    stand_in.chunked = True
    with pytest.raises(StoreRefused, match="404 NoSuchKey"):
        bucket(stand_in.url).get(X, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "IncompleteRead"),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "IncompleteRead"),
        (b"Transfer-Encoding: chunked\r\n\r\nwhat?\r\n", "IncompleteRead"),
        (b"Content-Length: 5\r\n\r\nab", "3 bytes are missing"),
    ],
)
def test_a_listing_that_breaks_off_may_be_tried_again(speaks: Any, text: bytes, message: str) -> None:
    """The rule holds for every kind of end."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\n" + text
    with pytest.raises(Broken, match=message):
        bucket(speaks["url"]).list({}, 5)


def test_a_listing_without_end_is_refused(speaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit comes before it fills the memory."""
    monkeypatch.setattr(answers, "SMALL", 10)
    speaks["text"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"a\r\n0123456789\r\n" * 2
    with pytest.raises(StoreRefused, match="200 TooLong"):
        bucket(speaks["url"]).list({}, 5)
