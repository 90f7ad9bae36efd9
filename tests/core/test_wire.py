"""Tests of core.wire."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import pytest

from core.dialects import DIALECTS
from core.errors import InvalidInput, ModelNotFound, ModelUnavailable, TooLarge
from core.wire import (
    STATUS,
    Call,
    Header,
    HttpRequest,
    HttpResponse,
    MethodNotAllowed,
    Options,
    Route,
    RouteNotFound,
    Router,
    UnsupportedEncoding,
    headers_of,
    integer_header,
    status_of,
)

if TYPE_CHECKING:
    from core.operations import ServerLive


def nothing(_: Call) -> tuple[ServerLive, object]:
    """A decoder that is never called."""
    raise AssertionError


def route(method: str, pattern: str) -> Route:
    """A row of a table."""
    return Route(method, pattern, nothing, "")  # type: ignore[arg-type] # never called


ROUTER = Router([route("GET", "/a"), route("GET", "/a/b"), route("POST", "/a/{x}"), route("GET", "/a/{x}/c/{y}")])


@pytest.mark.parametrize(
    ("method", "path", "pattern", "values"),
    [
        ("GET", "/a", "/a", {}),
        ("GET", "/a/", "/a", {}),
        ("HEAD", "/a", "/a", {}),
        ("GET", "/a/b", "/a/b", {}),
        ("POST", "/a/b", "/a/{x}", {"x": "b"}),
        ("GET", "/a/1/c/2", "/a/{x}/c/{y}", {"x": "1", "y": "2"}),
    ],
)
def test_a_path_finds_its_route(method: str, path: str, pattern: str, values: dict[str, str]) -> None:
    """With or without a slash at its end; HEAD as GET."""
    found, path_values = ROUTER.find(method, path)
    assert (found.pattern, path_values) == (pattern, values)


def test_only_so_many_paths_of_bounded_length_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients make up must not fill the memory."""
    router = Router([route("GET", "/a/{x}")])
    monkeypatch.setattr("core.wire.REMEMBERED_PATHS", 2)
    for name in ("1", "2", "3", "x" * 300):
        assert router.find("GET", f"/a/{name}")[1] == {"x": name}
    assert len(router._found) == 2


@pytest.mark.parametrize("path", ["/", "/b", "/a//", "//a", "/a/b/c", "/a/1/d/2"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    """Empty segments are no segments."""
    with pytest.raises(RouteNotFound) as refusal:
        ROUTER.find("GET", path)
    assert status_of(refusal.value) == 404


def test_a_wrong_method_is_told_which_are_right() -> None:
    """Each once."""
    with pytest.raises(MethodNotAllowed) as refusal:
        ROUTER.find("DELETE", "/a/b")
    assert status_of(refusal.value) == 405
    assert headers_of(refusal.value) == [(b"allow", b"GET, HEAD, POST")]


def request(body: bytes = b"", *headers: Header, limit: int = 1000) -> HttpRequest:
    """A POST."""
    return HttpRequest("POST", "/", dict(headers), body, Options(limit))


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"gzip", gzip.compress(b"body")),
        (b"X-GZIP", gzip.compress(b"body")),
        (b"deflate", zlib.compress(b"body")),
        (b"identity", b"body"),
        (b"", b"body"),
        (b"deflate, gzip", gzip.compress(zlib.compress(b"body"))),
    ],
)
def test_the_content_is_decoded(coding: bytes, body: bytes) -> None:
    """In the reverse order of what was applied."""
    assert request(body, (b"content-encoding", coding)).content() == b"body"


def test_an_unknown_coding_is_refused_with_the_known_ones() -> None:
    """415 with Accept-Encoding (RFC 9110 15.5.16)."""
    with pytest.raises(UnsupportedEncoding, match="'br'") as refusal:
        request(b"x", (b"content-encoding", b"br")).content()
    assert status_of(refusal.value) == 415
    assert headers_of(refusal.value) == [(b"accept-encoding", b"gzip, deflate")]


def test_a_body_over_the_limit_is_refused_before_and_after_inflating() -> None:
    """A gateway may have read it already."""
    with pytest.raises(TooLarge):
        request(b"x" * 11, limit=10).content()
    with pytest.raises(TooLarge):
        request(gzip.compress(b"x" * 1000), (b"content-encoding", b"gzip"), limit=999).content()


@pytest.mark.parametrize("value", [b"-1", b"+1", b"1.0", b"", b" 1", b"0x1", b"9" * 19, b"\xb2"])
def test_a_number_in_a_header_is_decimal(value: bytes) -> None:
    """Nothing that int() would also read."""
    with pytest.raises(InvalidInput, match="x-n"):
        integer_header(request(b"", (b"x-n", value)), b"x-n")


def test_a_number_in_a_header_may_be_absent() -> None:
    """None, which is not 0."""
    assert integer_header(request(), b"x-n") is None
    assert integer_header(request(b"", (b"x-n", b"0")), b"x-n") == 0


def test_a_response_knows_its_length() -> None:
    """Of all its parts."""
    assert HttpResponse(200, (), (b"ab", memoryview(b"cde"))).length == 5


def test_a_passing_fault_says_when_to_come_back() -> None:
    """Whole seconds, at least one."""
    assert headers_of(ModelUnavailable("x", retry_after=0.2)) == [(b"retry-after", b"1")]
    assert headers_of(ModelUnavailable("x", retry_after=29.6)) == [(b"retry-after", b"30")]
    assert headers_of(ModelNotFound("x")) == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_fault_has_an_answer_in_every_dialect(dialect: object) -> None:
    """With the status of the table and a body that says it."""
    for kind in _leaves():
        response = dialect.refuse(kind("what went wrong"))  # type: ignore[attr-defined] # a Dialect
        assert response.status == STATUS[kind.fault]
        assert b"what went wrong" in b"".join(response.parts)


def _leaves() -> list[type]:
    from core.errors import ServingError  # noqa: PLC0415 - its subclasses are the point

    return [kind for kind in ServingError.__subclasses__() if kind.__module__ == "core.errors"]
