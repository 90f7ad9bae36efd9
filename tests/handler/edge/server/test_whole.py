"""handler.edge.server.whole: heads that are compared, and connections to an application that answers at once."""

from __future__ import annotations

import random
import re
import threading
import tracemalloc
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.protocol import BoundedHttp
from handler.edge.server.whole import LONGEST_HEAD, MOST_NEW, Repeated, plain_path, repeatable, requests_of
from tests.support.bounded import MOST_WAITED, Whole, application, serving
from tests.support.raw import answer, head, opened, rest, status, talk

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = Limits(head=8000, head_seconds=30, pause=30, drain=300_000, connections=20)
POST = head("POST", "/", "Content-Length: 5", "A: b")


@pytest.fixture
def app() -> Whole:
    return Whole()


@pytest.fixture(params=[("asyncio", BoundedHttp), ("uvloop", EitherHttp)])
def port(request: pytest.FixtureRequest, app: Whole) -> Iterator[int]:
    """The port of a server of the application."""
    loop, http = request.param
    with serving(loop, LIMITS, http, app=app) as port:
        yield port


def known(wire: bytes, size: int) -> Repeated | None:
    found: Any = SimpleNamespace(headers={b"content-length": b"old"})
    return repeatable(wire, size, found)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (POST + b"12345", b"12345"),
        (head("POST", "/", "Content-Length: 12", "A: b") + b"123456789012", b"123456789012"),
        (head("POST", "/", "Content-Length: 0", "A: b"), b""),
        (head("POST", "/", "Content-Length: 005", "A: b") + b"12345", b"12345"),
        (POST + b"123456", None),
        (POST + b"12345" + POST + b"12345", None),
        (head("POST", "/", "Content-Length: ", "A: b"), None),
        (head("POST", "/", "Content-Length: +5", "A: b") + b"12345", None),
        (head("POST", "/", "Content-Length: 5, 5", "A: b") + b"12345", None),
        (head("POST", "/", "Content-Length: 5 ", "A: b") + b"12345", None),
        (head("POST", "/", "Content-Length: " + "0" * 19 + "5", "A: b") + b"12345", None),
        (head("POST", "/", "Content-Length: 5", "A: c") + b"12345", None),
        (head("PUT", "/", "Content-Length: 5", "A: b") + b"12345", None),
        (POST[:-20], None),
        (b"", None),
    ],
)
def test_a_head_is_known_by_its_bytes_but_for_the_length(data: bytes, body: bytes | None) -> None:
    """Everything else goes to the parser: bytes behind the body, too."""
    found = known(POST + b"12345", 5)
    assert found is not None
    begun = found.begun(data)
    assert begun == (None if body is None else (len(data) - len(body), len(body)))
    if body is not None:
        assert int(found.head.headers[b"content-length"]) == len(body)


@pytest.mark.parametrize("body", [b"", b"1", b"1234"])
def test_a_head_is_known_before_its_body_has_arrived(body: bytes) -> None:
    """The data ends inside the body."""
    found = known(POST + b"12345", 5)
    assert found is not None
    assert found.begun(POST + body) == (len(POST), 5)


def test_a_head_without_a_length_is_known_if_nothing_follows_it() -> None:
    """A client may repeat GET, too."""
    wire = head("GET", "/")
    found = known(wire, 0)
    assert found is not None
    assert found.begun(wire) == (len(wire), 0)
    assert [found.begun(each) for each in (wire + b"x", wire[:-1], wire + wire)] == [None, None, None]


@pytest.mark.parametrize(
    ("wire", "size"),
    [
        (head("POST", "/", "Content-Length: 5", "Content-Length: 5") + b"12345", 5),
        (head("POST", "/", "Transfer-Encoding: chunked") + b"5\r\n12345\r\n0\r\n\r\n", 5),
        (head("POST", "/", "Content-Length: 5", "A: " + "x" * LONGEST_HEAD) + b"12345", 5),
        (POST + b"12345" + POST + b"12345", 5),
        (head("POST", "/") + b"12345", 5),
    ],
)
def test_some_heads_are_not_remembered(wire: bytes, size: int) -> None:
    """The length of their bodies is not said once, they are long, or they are not the only request in their data."""
    assert known(wire, size) is None


@pytest.mark.parametrize(
    ("url", "path"),
    [(b"/v2", "/v2"), (b"/a?b", None), (b"/a%41", None), (b"/a#b", None), (b"/\xc3\xa4", None), (b"http://x/", None)],
)
def test_a_path_stands_for_itself_or_is_parsed(url: bytes, path: str | None) -> None:
    """The application gets the paths of others by ASGI."""
    assert plain_path(url) == path


def test_long_urls_are_not_kept() -> None:
    """A thousand of them would fill the memory, and no model has such a name."""
    tracemalloc.start()
    try:
        for number in range(200):
            assert plain_path(b"/%d" % number + b"x" * 60_000) is not None
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, True),
        ({"proxy_headers": False}, True),
        ({"access_log": True}, False),
        ({"limit_concurrency": 1}, False),
        ({"root_path": "/x"}, False),
    ],
)
def test_an_application_is_asked_unless_the_server_does_more(app: Whole, options: Any, *, asked: bool) -> None:
    """Uvicorn counts tasks, writes lines about them, and mounts applications."""
    config = uvicorn.Config(app, log_config=None, **({"access_log": False} | options))
    config.load()
    assert requests_of(config) is (app if asked else None)


def test_an_application_without_whole_requests_has_all_by_asgi() -> None:
    """Another application may run on this server's protocol."""
    config = uvicorn.Config(application, access_log=False, log_config=None)
    config.load()
    assert requests_of(config) is None


def test_repeated_heads_are_parsed_once(port: int, app: Whole) -> None:
    """Each request has its own body, and its own length among its headers."""
    with opened(port) as connection:
        for size in (5, 0, 12, 4000, 5):
            connection.sendall(head("POST", "/", "A: b", f"Content-Length: {size}") + b"x" * size)
            got = answer(connection)
            assert got.endswith(b"\r\n\r\n" + b"x" * size)
            assert re.search(rb"\r\ndate: [^\r]+GMT\r\n", got)
    assert (app.heads, app.answers) == (1, 5)


def test_a_connection_whose_heads_all_differ_remembers_so_many(port: int, app: Whole) -> None:
    """It compares none after that, but answers at once."""
    with opened(port) as connection:
        for number in range(MOST_NEW + 3):
            for _ in range(2 if number > MOST_NEW else 1):
                connection.sendall(head("POST", "/", f"A: {number}", "Content-Length: 1") + b"x")
                assert status(answer(connection)) == 200
    assert app.heads == app.answers == MOST_NEW + 5


def test_what_is_not_answered_at_once_comes_by_asgi_with_its_body(port: int, app: Whole) -> None:
    """On a head that is known and on a new one; and the next request has its answer at once again."""
    with opened(port) as connection:
        for body in (b"later 1", b"at once", b"later 2", b"sent 34", b"at once", b"sent 56"):
            connection.sendall(head("POST", "/", "Content-Length: 7") + body)
            expected = b"made:" + body if body.startswith(b"sent") else body
            assert answer(connection).endswith(b"\r\n\r\n" + expected)
    assert app.answers == 2


def test_an_answer_that_is_made_goes_to_the_request_that_it_is_made_for(port: int, app: Whole) -> None:
    """Its head is known, but it is parsed in parts, and begins with the first of them."""
    app.most_waited = 0
    long = b"sent" + b"x" * 10_000
    with opened(port) as connection:
        for body in (b"at once", long, b"at once", b"later 1", long, b"later 2"):
            connection.sendall(head("POST", "/", f"Content-Length: {len(body)}") + body)
            expected = b"made:" + body if body is long else body
            assert answer(connection).endswith(b"\r\n\r\n" + expected)


def test_a_request_behind_the_end_of_a_connection_does_not_begin(port: int, app: Whole) -> None:
    """The body of the last request came after its head, and in its piece of data a whole request and a part of one."""
    with opened(port) as connection:
        connection.sendall(head("POST", "/", "Content-Length: 5", "Connection: keep-alive", version="1.0"))
        while not app.calls:
            threading.Event().wait(0.001)
        connection.sendall(b"12345" + POST + b"23456" + POST + b"3")
        got = connection.recv(1000)
        connection.sendall(b"4567")
        got += rest(connection)
    assert (got.count(b"HTTP/1.1 200"), got[-5:]) == (1, b"12345")
    assert (app.calls, app.answers) == (1, 0)


def test_a_body_that_comes_later_is_awaited(port: int) -> None:
    """Its head was complete, and it comes in pieces."""
    with opened(port) as connection:
        for cuts in ((4, 5), (0, 5), (1, 2, 3)):
            pieces = [b"12345"[start:end] for start, end in zip((0, *cuts), (*cuts, 5), strict=True)]
            connection.sendall(POST)
            for piece in pieces:
                connection.sendall(piece)
                threading.Event().wait(0.01)
            assert answer(connection).endswith(b"\r\n\r\n12345")


def test_a_connection_is_closed_as_its_client_says(port: int) -> None:
    """In HTTP/1.0 by saying nothing."""
    assert status(talk(port, head("POST", "/", "Content-Length: 5", "Connection: close") + b"12345")) == 200
    assert status(talk(port, head("POST", "/", "Content-Length: 5", version="1.0") + b"12345")) == 200


@pytest.mark.parametrize("header", ["A: 1", "A: {}"])
def test_a_request_comes_by_asgi_while_earlier_answers_are_not_read(port: int, app: Whole, header: str) -> None:
    """With a head that is known, and with new ones. ASGI waits, and the answers keep their order."""
    with opened(port) as connection:
        for number in range(400):
            connection.sendall(head("POST", "/", header.format(number), "Content-Length: 8") + b"long%04d" % number)
            while app.answers + app.calls == number:
                threading.Event().wait(0.001)
            if app.calls:
                break
        assert app.answers == number > 0
        connection.sendall((head("POST", "/", header, "Content-Length: 8") + b"longlast") * 20)
        with connection.makefile("rb") as stream:
            for body in [*(b"long%04d" % each for each in range(number + 1)), *[b"longlast"] * 20]:
                while stream.readline() != b"\r\n":
                    pass
                assert stream.read(50_000) == body.ljust(50_000)


def test_requests_cut_anywhere_have_the_answers_that_asgi_gives(app: Whole) -> None:
    """The requests and the cuts are random; one application is asked for answers at once, the other one is not."""
    numbers = random.Random(7)  # noqa: S311 - cuts, not secrets
    with serving("uvloop", LIMITS, app=app) as port, serving("uvloop", LIMITS) as other:
        for _ in range(250):  # fewer are answered at once where pieces arrive late
            requests = [_request(numbers) for _ in range(numbers.randint(1, 6))]
            wire, ends = b"".join(requests), [*accumulate(map(len, requests))]
            cuts = sorted([*numbers.choices(range(len(wire)), k=numbers.randint(0, 3)), *numbers.choice([ends, []])])
            pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
            pause = numbers.choice([0, 0.002])
            app.most_waited = numbers.choice([0, MOST_WAITED])
            assert _told(port, pieces, pause) == _told(other, pieces, pause), pieces
    assert app.answers > 30


def _request(numbers: random.Random) -> bytes:
    body = numbers.choice([b"", b"x", b"later", b"12345" * 100, b"later" * 100, b"12345" * 2000, b"later" * 2000])
    method = numbers.choice(["POST", "POST", "POST", "GET", "HEAD"])
    path = numbers.choice(["/", "/", "/", "/a%20b", "/stream", "/refuse", "/?a=b"])
    odd = ("Expect: 100-continue",), ("Connection: close",)
    headers = numbers.choice([(), (), ("A: 1",), ("A: 1", "a: 2"), odd[numbers.random() < 0.5]])
    if numbers.random() < 0.1:
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return head(method, path, *headers, "Transfer-Encoding: chunked") + chunk + b"0\r\n\r\n"
    return head(method, path, *headers, f"Content-Length: {len(body)}") + body


def _told(port: int, pieces: list[bytes], pause: float) -> bytes:
    """Returns the answers without what differs by the second, and how the connection ended."""
    with opened(port) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                threading.Event().wait(pause)
            connection.sendall(head("GET", "/last", "Connection: close"))
        except ConnectionError:
            pass
        return re.sub(rb"date: [^\r]*\r\n|HTTP/1.1 100 Continue\r\n\r\n", b"", rest(connection))
