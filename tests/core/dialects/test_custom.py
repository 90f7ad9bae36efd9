"""core.dialects.custom: whole requests to models, and whatever they answer."""

import gzip
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from core.dialects import custom
from core.errors import InvalidInput, ModelFailed
from core.operations import Custom, ModelRef
from core.wire import Call, HttpRequest, HttpResponse, HttpStream, MethodNotAllowed

PATH = "/v1/chat"


def asked(query: bytes = b"", models: Any = None, **headers: bytes) -> Custom:
    """Returns what a request asks for."""
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = HttpRequest("POST", PATH, named, b"body", query=query)
    route = custom.route("POST", PATH, models or {"m": ["POST", "GET"]})
    operation, _ = route.decode(Call(request, {}))
    assert isinstance(operation, Custom)
    return operation


def test_a_request_comes_whole() -> None:
    """What is text in HTTP stays text."""
    operation = asked(b"a=1&b=x%20y&b=&c&d=%ff", x_y=b"\xe9")
    assert operation.ref == ModelRef("m", dashed=True)
    assert operation.request == ("POST", PATH, {"a": "1", "b": "", "c": "", "d": "\ufffd"}, {"x-y": "\xe9"}, b"body")


def test_the_query_may_name_the_model() -> None:
    """It has to if several models answer on the path."""
    assert asked(b"model=n-2").ref == ModelRef("n-2", dashed=True)
    several = {"m": ["POST"], "n": ["POST", "GET"], "o": ["GET"]}
    assert asked(b"model=n", several).ref.name == "n"
    with pytest.raises(InvalidInput, match=r"'/v1/chat' is the path of \['m', 'n'\]: name one in the query"):
        asked(b"", several)


def test_one_model_that_takes_the_method_need_not_be_named() -> None:
    """Other models take other methods on its path."""
    assert asked(b"", {"m": ["GET"], "n": ["POST"]}).ref.name == "n"


def test_a_method_that_no_model_takes_is_not_allowed() -> None:
    """The refusal lists the methods that are allowed."""
    with pytest.raises(MethodNotAllowed) as refused:
        custom.route("PUT", PATH, {"m": ["POST"], "n": ["GET", "POST"]})
    assert refused.value.allowed == ["GET", "HEAD", "POST"]
    with pytest.raises(MethodNotAllowed) as refused:
        custom.route("HEAD", PATH, {"m": ["POST"]})
    assert refused.value.allowed == ["POST"]


def test_head_is_asked_as_get() -> None:
    """A model need not know it. Its stream is not begun, because nobody would take the pieces."""
    begun = []

    def pieces() -> Iterator[bytes]:
        begun.append(1)
        yield b"a"

    route = custom.route("HEAD", PATH, {"m": ["GET"]})
    operation, reply = route.decode(Call(HttpRequest("HEAD", PATH, {}, b""), {}))
    assert operation.request.method == "GET"
    streamed = reply((201, {"x-a": "b"}, pieces()))
    assert (streamed.status, (b"x-a", b"b") in streamed.headers, list(streamed.chunks), begun) == (201, True, [], [])
    assert reply("text") == custom.answer("text")


@pytest.mark.parametrize(("result", "status", "content_type", "body"), [
    (b"\x00\xff", 200, b"application/octet-stream", b"\x00\xff"),
    ("\u0645 \ud800", 200, b"text/plain; charset=utf-8", b"\xd9\x85 ?"),
    ({"a": [1, None]}, 200, b"application/json", b'{"a":[1,null]}'),
    ([1.5], 200, b"application/json", b"[1.5]"),
    (None, 200, b"application/json", b"null"),
    ((404, {}, "no"), 404, b"text/plain; charset=utf-8", b"no"),
    ((HTTPStatus.CREATED, {}, "made"), 201, b"text/plain; charset=utf-8", b"made"),
    ((201, {"Content-Type": "text/html", "Content-Length": "9"}, b"<p>"), 201, b"text/html", b"<p>"),
])  # fmt: skip
def test_an_answer_is_what_the_model_gave(result: Any, status: int, content_type: bytes, body: bytes) -> None:
    """A default type is sent if the model does not state one."""
    answer = custom.answer(result)
    assert isinstance(answer, HttpResponse)
    assert (answer.status, dict(answer.headers), b"".join(answer.parts)) == (
        status,
        {b"content-type": content_type},
        body,
    )


@pytest.mark.parametrize("body", [b"a", "a", {}, None])
def test_a_headers_value_has_no_blanks_at_its_edges(body: Any) -> None:
    """They are not a part of it (RFC 9110 5.5). Other characters are, such as the no-break space."""
    given = {"a": " \tb c\t ", "d": "\t", "e": "\xa0f\xa0"}
    assert custom.answer((200, given, body)).headers[1:] == ((b"a", b"b c"), (b"d", b""), (b"e", b"\xa0f\xa0"))


def chunks(*given: str) -> Iterator[str]:
    """A model's generator."""
    yield from given


@pytest.mark.parametrize("body", [b"a", "a", {}, chunks("a")], ids=["bytes", "text", "json", "stream"])
def test_how_a_body_is_sent_is_for_who_sends_it_to_say(body: Any) -> None:
    """Proxies may disagree about a message that has both a length and a coding."""
    framing = {"Content-Length": "9", "Transfer-Encoding": "chunked", "Connection": "close", "x": "y"}
    assert {name for name, _ in custom.answer((200, framing, body)).headers} == {b"content-type", b"x"}


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("body", [b"", b"a", None, chunks("a")], ids=["none", "bytes", "json", "stream"])
def test_a_status_without_a_body_has_none_and_no_length(status: int, body: Any) -> None:
    """It has no type either, unless the model states one."""
    assert custom.answer((status, {}, body)) == HttpStream(status, (), ())
    told: Any = custom.answer((status, {"etag": "1", "content-type": "text/html", "content-length": "0"}, body))
    assert told == HttpStream(status, ((b"etag", b"1"), (b"content-type", b"text/html")), ())


def test_a_generator_is_a_stream() -> None:
    """It yields bytes and text; its end is the model's end."""
    ended = []

    def events() -> Iterator[str | bytes]:
        try:
            yield "data: 1\n\n"
            yield b"data: 2\n\n"
        finally:
            ended.append(1)

    answer = custom.answer((200, {"content-type": "text/event-stream"}, events()))
    assert isinstance(answer, HttpStream)
    assert answer.headers == ((b"content-type", b"text/event-stream"),)
    assert list(answer.chunks) == [b"data: 1\n\n", b"data: 2\n\n"]
    left: Any = custom.answer(events())
    assert left.headers == ((b"content-type", b"application/octet-stream"),)
    next(left.chunks)
    left.chunks.close()
    assert ended == [1, 1]


@pytest.mark.parametrize(("result", "words"), [
    ((199, {}, b""), "the status 199; expected 200 to 599"),
    ((True, {}, b""), "the status true"),
    ((200, [], b""), "headers a Python list; expected a dict"),
    ((200, [Path(__file__)], b""), "headers a Python list; expected a dict"),
    ((200, {"a": Path(__file__)}, b""), "the header 'a': a Python PosixPath, which"),
    ((200, {Path(__file__): "a"}, b""), "the header a Python PosixPath: 'a', which"),
    ((Path(__file__), {}, b""), "the status a Python PosixPath; expected"),
    ((200, {"a b": "c"}, b""), "the header 'a b'"),
    ((200, {"a": "b\r\nc: d"}, b""), "which HTTP cannot carry"),
    ((200, {"a": 1}, b""), "the header 'a': 1"),
    (object(), "http answered with object, which JSON cannot carry"),
    ((1, 2), None),
])  # fmt: skip
def test_what_http_cannot_carry_is_the_models_failure(result: Any, words: str | None) -> None:
    """A pair is valid, however: it is JSON."""
    if words is None:
        assert custom.answer(result).status == 200
        return
    with pytest.raises(ModelFailed, match=words):
        custom.answer(result)


def test_a_stream_of_anything_else_breaks_off() -> None:
    """The status line has been sent by then."""

    def pieces(last: Any) -> Iterator[Any]:
        yield b"1"
        yield last

    for last, told in ((2, "2"), ({}, "a Python dict"), (Path(__file__), "a Python PosixPath")):
        answer: Any = custom.answer(pieces(last))
        assert next(answer.chunks) == b"1"
        with pytest.raises(ModelFailed, match=f"http yielded {told}; expected bytes or text"):
            next(answer.chunks)


def test_a_compressed_body_is_the_models_without_its_coding() -> None:
    """A model that read the coding would inflate the body again."""
    body = gzip.compress(b"to be")
    headers = {b"content-encoding": b"gzip", b"content-length": b"%d" % len(body), b"x-a": b"b"}
    request = HttpRequest("POST", PATH, headers, body)
    operation, _ = custom.route("POST", PATH, {"m": ["POST"]}).decode(Call(request, {}))
    assert operation.request.body == b"to be"
    assert operation.request.headers == {"content-length": "5", "x-a": "b"}
