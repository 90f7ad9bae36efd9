"""core.wire: routes, bodies and responses over HTTP."""

import gzip
import json
import zlib
from typing import Any

import pytest

from core.dialects import DIALECTS
from core.dialects.v1.http import V1
from core.dialects.v2.http import V2
from core.dialects.v2.infer import HEADER_LENGTH
from core.errors import Fault, InvalidInput, ModelNotFound, ModelUnavailable, ServingError, TooLarge
from core.operations import ServerLive
from core.wire import (
    STATUS,
    Call,
    Dialect,
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
    status_of,
)


def nothing(_: Call) -> tuple[ServerLive, object]:
    """A decoder that is never called."""
    raise AssertionError


def route(method: str, pattern: str) -> Route:
    """A row of a table."""
    return Route(method, pattern, nothing, "")  # type: ignore[arg-type] # never called


ROUTES = (route("GET", "/a"), route("GET", "/a/b"), route("POST", "/a/{x}"), route("GET", "/a/{x}/c/{y}"))
ROUTER = Router(V2._replace(routes=ROUTES))


VERBS = Router(V1._replace(routes=(route("GET", "/a/{x}"), route("POST", "/a/{x}:do"), route("POST", "/a/{x}/b:do"))))


@pytest.mark.parametrize(("router", "method", "path", "pattern", "values"), [
    (ROUTER, "GET", "/a", "/a", {}),
    (ROUTER, "GET", "/a/", "/a", {}),
    (ROUTER, "HEAD", "/a", "/a", {}),
    (ROUTER, "GET", "/a/b", "/a/b", {}),
    (ROUTER, "POST", "/a/b", "/a/{x}", {"x": "b"}),
    (ROUTER, "POST", "/a/m:do", "/a/{x}", {"x": "m:do"}),
    (ROUTER, "GET", "/a/1/c/2", "/a/{x}/c/{y}", {"x": "1", "y": "2"}),
    (VERBS, "GET", "/a/m", "/a/{x}", {"x": "m"}),
    (VERBS, "GET", "/A/M/", "/a/{x}", {"x": "M"}),
    (VERBS, "POST", "/a/m:do", "/a/{x}:do", {"x": "m"}),
    (VERBS, "POST", "/A/Do:do", "/a/{x}:do", {"x": "Do"}),
])  # fmt: skip
def test_a_path_finds_its_route(router: Router, method: str, path: str, pattern: str, values: dict[str, str]) -> None:
    """A slash at the end changes nothing, HEAD finds the route of GET, and only dialects with verbs split at a colon.

    In those, fixed segments match in any case, verbs in their own, and names keep theirs.
    """
    found, path_values = router.find(method, path)
    assert (found.pattern, path_values) == (pattern, values)


@pytest.mark.parametrize("path", ["/", "/b", "/a//", "//a", "/a/b/c", "/a/1/d/2"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    """An empty segment matches no placeholder."""
    with pytest.raises(RouteNotFound) as refusal:
        ROUTER.find("GET", path)
    assert status_of(refusal.value) == 404


def test_a_wrong_method_is_refused_with_the_right_ones() -> None:
    """The header Allow names each method once."""
    with pytest.raises(MethodNotAllowed) as refusal:
        ROUTER.find("DELETE", "/a/b")
    assert status_of(refusal.value) == 405
    assert headers_of(refusal.value) == [(b"allow", b"GET, HEAD, POST")]


@pytest.mark.parametrize("path", ["/a/m:do/", "/a/m:DO", "/a/:do", "/a/m:n:do", "/a/m:", "/a/:", "/a/do"])
def test_a_colon_belongs_to_no_name(path: str) -> None:
    """A path with a stray colon or with a slash after its verb is not found."""
    with pytest.raises((RouteNotFound, MethodNotAllowed)):
        VERBS.find("POST", path)


LABELS = Router(V1._replace(routes=(route("GET", "/a/{label}"), route("POST", "/{x}/{label}/b:do"))))


@pytest.mark.parametrize(("method", "path", "values"), [
    ("GET", "/a/m%2fn", {"label": "m/n"}),
    ("GET", "/a/m%3Ado%2Fb/", {"label": "m:do/b"}),
    ("POST", "/%C3%A9/m%2Fb%252F/b:do", {"x": "\u00e9", "label": "m/b%2F"}),
])  # fmt: skip
def test_a_label_is_decoded_once_its_path_is_split(method: str, path: str, values: dict[str, str]) -> None:
    """It is decoded once only."""
    assert LABELS.find_encoded(method, path)[1] == values


@pytest.mark.parametrize("path", ["/%2Fa/m/b:do", "/a%3A/m/b:do", "/%61/m/b/do", "/a%2Fm/b:do"])
def test_only_a_label_holds_a_separator(path: str) -> None:
    """Fixed segments are not decoded."""
    with pytest.raises((RouteNotFound, MethodNotAllowed)):
        LABELS.find_encoded("POST", path)


@pytest.mark.parametrize(("dialect", "path", "owned"), [
    (V1, "/v1", True), (V1, "/V1/models", True), (V1, "/v1x", False), (V2, "/v2/models", True),
    (V2, "/V2/models", False), (V2, "/v22", False), (V2, "/", False),
])  # fmt: skip
def test_a_dialect_owns_what_is_below_its_prefix(dialect: Dialect, path: str, *, owned: bool) -> None:
    """The prefix matches in any case where the dialect's segments do."""
    assert dialect.owns(path) is owned


def request(body: bytes = b"", *headers: Header, limit: int = 1000) -> HttpRequest:
    return HttpRequest("POST", "/", dict(headers), body, Options(limit))


@pytest.mark.parametrize(("coding", "body"), [
    (b"gzip", gzip.compress(b"body", mtime=0)),
    (b"X-GZIP", gzip.compress(b"body", mtime=0)),
    (b"deflate", zlib.compress(b"body")),
    (b"identity", b"body"),
    (b"", b"body"),
    (b"deflate, gzip", gzip.compress(zlib.compress(b"body"), mtime=0)),
])  # fmt: skip
def test_the_content_is_decoded(coding: bytes, body: bytes) -> None:
    """The codings are undone in the reverse order of their application."""
    assert request(body, (b"content-encoding", coding)).content() == b"body"


def test_an_unknown_coding_is_refused_with_the_known_ones() -> None:
    """The refusal is a 415 with Accept-Encoding (RFC 9110 15.5.16)."""
    with pytest.raises(UnsupportedEncoding, match="'br'") as refusal:
        request(b"x", (b"content-encoding", b"br")).content()
    assert status_of(refusal.value) == 415
    assert headers_of(refusal.value) == [(b"accept-encoding", b"gzip, deflate")]


def test_a_body_over_the_limit_is_refused_before_and_after_inflating() -> None:
    """The limit counts for the body as it came and for its content."""
    with pytest.raises(TooLarge):
        request(b"x" * 11, limit=10).content()
    with pytest.raises(TooLarge):
        request(gzip.compress(b"x" * 1000), (b"content-encoding", b"gzip"), limit=999).content()


def raw_request(*headers: Header) -> Any:
    """The operation of a V2 inference whose body is one empty object."""
    path = "/v2/models/m/infer"
    found, values = Router(V2).find("POST", path)
    return found.decode(Call(request(b'{"inputs": []}', *headers), values))[0]


@pytest.mark.parametrize("value", [b"-1", b"+1", b"1.0", b"", b" 1", b"0x1", b"9" * 19, b"\xb2"])
def test_a_number_in_a_header_is_decimal(value: bytes) -> None:
    """Texts that only int() would read are refused with the header's name."""
    with pytest.raises(InvalidInput, match="header inference-header-content-length is .*; expected a decimal number"):
        raw_request((HEADER_LENGTH, value))


def test_a_number_in_a_header_may_be_absent() -> None:
    """A header of 0 differs from an absent header."""
    assert raw_request().raw is None
    assert raw_request((HEADER_LENGTH, b"0")).raw == b'{"inputs": []}'


def test_a_response_knows_its_length() -> None:
    """The length is that of all parts."""
    assert HttpResponse(200, (), (b"ab", memoryview(b"cde"))).length == 5


def test_a_passing_fault_says_when_to_come_back() -> None:
    """Retry-After is a whole number of seconds, at least one."""
    assert headers_of(ModelUnavailable("x", retry_after=0.2)) == [(b"retry-after", b"1")]
    assert headers_of(ModelUnavailable("x", retry_after=29.6)) == [(b"retry-after", b"30")]
    assert headers_of(ModelNotFound("x")) == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_fault_has_an_answer_in_every_dialect(dialect: Dialect) -> None:
    """The answer has the table's status and the text, or TF Serving's own words for a missing model."""
    for kind in _leaves():
        path = f"{dialect.prefix}/models/m"
        response = dialect.refuse(kind("what went wrong"), "GET", path)
        assert response.status == STATUS[kind.fault]
        said = json.loads(b"".join(response.parts))
        if dialect.name == "grps":
            assert said["status"] == {"code": STATUS[kind.fault], "msg": "what went wrong", "status": "FAILURE"}
            continue
        text = said["error"]["message"] if dialect.name == "openai" else said["error"]
        own = dialect.name == "v1" and kind.fault is Fault.NOT_FOUND
        assert text == ("Servable not found for request: Latest(m)" if own else "what went wrong")


def _leaves() -> list[type]:
    every, found = [ServingError], []
    while every:
        kinds = [kind for kind in every.pop().__subclasses__() if kind.__module__ == "core.errors"]
        every += kinds
        found += kinds
    return found
