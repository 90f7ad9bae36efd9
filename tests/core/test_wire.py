"""core.wire: bodies and responses over HTTP."""

import gzip
import json
import zlib
from typing import Any

import pytest

from core.dialects import DIALECTS, V1, V2
from core.dialects.v2.infer import HEADER_LENGTH
from core.errors import Fault, InvalidInput, ModelNotFound, ModelUnavailable, ServingError, TooLarge
from core.router import Router
from core.wire import (
    STATUS,
    Call,
    Dialect,
    Header,
    HttpRequest,
    HttpResponse,
    Options,
    UnsupportedEncoding,
    by_name,
    headers_of,
    status_of,
)


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


def test_lines_of_one_name_are_one_list() -> None:
    """A list may be cut into lines anywhere (RFC 9110 5.3), so their order is that of the list."""
    lines = [(b"content-encoding", b"deflate"), (b"accept", b"*/*"), (b"content-encoding", b"gzip")]
    assert by_name(lines) == {b"content-encoding": b"deflate, gzip", b"accept": b"*/*"}
    packed = gzip.compress(zlib.compress(b"body"))
    assert HttpRequest("POST", "/", by_name(lines), packed).content() == b"body"


@pytest.mark.parametrize(("size", "headers", "expected"), [
    (65_536, (), False), (65_537, (), True), (1, ((b"content-encoding", b"gzip"),), True),
])  # fmt: skip
def test_a_long_body_is_one_that_can_cost_much_to_read(
    size: int, headers: tuple[Header, ...], *, expected: bool
) -> None:
    """A compressed one can be long, whatever its size. The model of a long one is looked for before it is read."""
    assert request(bytes(size), *headers).is_long is expected


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
