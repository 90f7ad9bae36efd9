"""core.dialects.connect.protocol: what heads ask, compression, deadlines, and whole answers."""

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.connect import protocol as connect
from core.dialects.connect import requests
from core.dialects.connect.codes import (
    CODES,
    DeadlineExceeded,
    EdgeError,
    UnknownCompression,
    UnknownMethod,
    WrongType,
    WrongVerb,
    code_of,
)
from core.dialects.connect.envelopes import only
from core.dialects.rpcs import RPCS
from core.errors import Fault, InvalidInput, NotSupported, ServingError, TooLarge
from core.rpc import Form
from core.wire import HttpResponse
from tests.support.connect_client import envelope

METHODS = {method.rpc.name: method for method in RPCS}
PATH = "/inference.GRPCInferenceService/ModelInfer"
LIMIT = 1000
PROTO, JSON = b"application/proto", b"application/json"
STREAM, WEB, TEXT = b"application/connect+proto", b"application/grpc-web+proto", b"application/grpc-web-text"
GRPC_NUMBERS = {
    "invalid_argument": (3, 400),
    "deadline_exceeded": (4, 504),
    "not_found": (5, 404),
    "permission_denied": (7, 403),
    "resource_exhausted": (8, 429),
    "failed_precondition": (9, 400),
    "unimplemented": (12, 501),
    "internal": (13, 500),
    "unavailable": (14, 503),
    "unauthenticated": (16, 401),
    "unknown": (2, 500),
}  # fmt: skip
LATE = DeadlineExceeded("no answer within 5 ms")


def asked(
    method: str = "ModelInfer", content_type: bytes = PROTO, verb: str = "POST", query: bytes = b"", **headers: bytes
) -> connect.Question:
    """Returns what a request's head asks."""
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return connect.question(METHODS.get(method), verb, PATH, {b"content-type": content_type, **given}, query)


def got(query: str, method: str = "ModelMetadata", **headers: bytes) -> connect.Question:
    """Returns what the head of a GET asks."""
    return asked(method, b"", "GET", query.encode(), **headers)


def test_every_fault_and_every_refusal_has_a_code_of_grpcs() -> None:
    """The codes have the Connect protocol's names and its HTTP statuses."""
    assert {code.name: (code.number, code.status) for code in CODES.values()} == GRPC_NUMBERS
    for fault in Fault:
        error = ServingError("no")
        error.fault = fault  # type: ignore[misc] # for one of each
        assert code_of(error).name == fault.name.lower()
    assert code_of(LATE).name == "deadline_exceeded"


@pytest.mark.parametrize("content_type", [*connect.CALLS, b"Application/Proto", b"application/json; charset=utf-8"])
def test_a_method_with_one_answer_is_asked_in_these_types(content_type: bytes) -> None:
    """Upper and lower case and parameters do not matter."""
    question = asked(content_type=content_type)
    assert question.method.rpc.name == "ModelInfer"
    assert question.kind.json == (b"json" in content_type)
    assert (question.seconds, question.message, question.coding, question.deflates) == (None, None, b"", False)


def test_a_head_is_remembered_unless_it_is_long() -> None:
    """Heads that clients invent must not fill the memory."""
    remembered = connect._asked_before
    assert asked() is asked()
    size = len(remembered)
    long = b"application/json; x=" + b"y" * connect.LONGEST_REMEMBERED
    assert asked(content_type=long) == asked(content_type=long)
    assert len(remembered) == size


@pytest.mark.parametrize(
    ("content_type", "header", "text"), [(PROTO, "connect_timeout_ms", b"%d"), (WEB, "grpc_timeout", b"%dm")]
)
def test_a_head_is_remembered_whatever_its_deadline(content_type: bytes, header: str, text: bytes) -> None:
    """Clients with one deadline for many calls send a smaller value from call to call."""
    asked(content_type=content_type)
    size = len(connect._asked_before)
    for milliseconds in range(1, 9):
        assert asked(content_type=content_type, **{header: text % milliseconds}).seconds == milliseconds / 1e3
    assert len(connect._asked_before) == size


def test_however_many_heads_there_were_the_next_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older heads are forgotten when there are too many."""
    monkeypatch.setattr(connect, "REMEMBERED", 2)
    monkeypatch.setattr(connect, "_asked_before", {})
    for number in range(5):
        told = b"a%d" % number
        assert asked(accept=told) is asked(accept=told)
        assert len(connect._asked_before) <= 2


@pytest.mark.parametrize("content_type", connect.MANY)
@pytest.mark.parametrize("method", ["ModelStreamInfer", "Watch", "PredictStreaming"])
def test_a_stream_is_asked_in_these_types(method: str, content_type: bytes) -> None:
    """Every form of stream has its types."""
    question = asked(method, content_type)
    assert question.method.form is not Form.UNARY
    assert question.kind.end is not None


@pytest.mark.parametrize(
    ("method", "content_type"),
    [("ModelInfer", b""), ("ModelInfer", b"application/connect+proto"), ("ModelStreamInfer", b"application/proto")],
)
def test_any_other_type_is_refused_with_those_that_would_do(method: str, content_type: bytes) -> None:
    """The refusal is 415, whatever protocol the type looked like."""
    with pytest.raises(WrongType) as refused:
        asked(method, content_type)
    answer = connect.kind_of({b"content-type": content_type}).refuse(refused.value)
    assert answer.status == 415
    accepted = connect.CALLS if method == "ModelInfer" else connect.MANY
    assert dict(answer.headers)[b"accept-post"].split(b", ") == list(accepted)
    assert json.loads(b"".join(answer.parts))["code"] == "unknown"


@pytest.mark.parametrize(("method", "verb", "allowed"), [
    ("ModelInfer", "DELETE", b"GET, HEAD, POST"),
    ("RepositoryModelLoad", "GET", b"POST"),
    ("RepositoryModelLoad", "HEAD", b"POST"),
    ("ModelStreamInfer", "GET", b"POST"),
])  # fmt: skip
def test_other_verbs_are_refused_with_those_that_would_do(method: str, verb: str, allowed: bytes) -> None:
    """The refusal is 405: a method that changes state does not accept GET, nor does a stream."""
    with pytest.raises(WrongVerb) as refused:
        asked(method, STREAM, verb)
    answer = connect.kind_of({b"content-type": STREAM}).refuse(refused.value)
    assert (answer.status, dict(answer.headers)[b"allow"]) == (405, allowed)


@pytest.mark.parametrize("content_type", [b"", PROTO, STREAM, WEB, TEXT])
def test_a_method_that_is_not_there_is_unimplemented(content_type: bytes) -> None:
    """The refusal has the protocol's own form: 404 for a unary call, the end of a stream for a streamed one."""
    with pytest.raises(UnknownMethod) as refused:
        asked("Nothing", content_type)
    answer = connect.kind_of({b"content-type": content_type}).refuse(refused.value)
    body = b"".join(answer.parts)
    if content_type in (b"", PROTO):
        assert (answer.status, json.loads(body)["code"]) == (404, "unimplemented")
    elif content_type == STREAM:
        assert (answer.status, json.loads(body[5:])["error"]["code"]) == (200, "unimplemented")
    else:
        plain = base64.b64decode(body) if content_type == TEXT else body
        assert (answer.status, plain[0], plain[5:21]) == (200, 128, b"grpc-status: 12\r")


def test_who_wants_text_gets_text() -> None:
    """The types that a client sends or accepts decide it."""
    text = connect.KINDS[TEXT]
    assert text.text
    assert connect.kind_of({b"content-type": TEXT + b"+proto"}) is text
    assert connect.kind_of({b"content-type": WEB, b"accept": TEXT}) is text
    assert connect.kind_of({b"content-type": WEB, b"accept": b"*/*"}) is connect.KINDS[WEB]
    assert connect.kind_of({b"content-type": PROTO, b"accept": TEXT}) is connect.KINDS[PROTO]
    assert [asked(content_type=kind, accept=TEXT).encoded for kind in (WEB, TEXT, PROTO)] == [False, True, False]


@pytest.mark.parametrize("content_type", [b"application/grpc", b"application/grpc+proto", b"application/grpc;x=1"])
def test_native_grpc_is_told_where_to_go(content_type: bytes) -> None:
    """The refusal has a status in the headers, where gRPC clients read it."""
    assert connect.is_native({b"content-type": content_type})
    headers = dict(connect.trailers_only(NotSupported(connect.NO_HTTP2)).headers)
    assert headers[b"grpc-status"] == b"12"
    assert b"HTTP/2" in headers[b"grpc-message"]
    assert not connect.is_native({b"content-type": WEB})
    assert not connect.is_native({})


@pytest.mark.parametrize(("content_type", "coding", "accepts"), [
    (PROTO, "content_encoding", "accept_encoding"),
    (STREAM, "connect_content_encoding", "connect_accept_encoding"),
    (WEB, "grpc_encoding", "grpc_accept_encoding"),
])  # fmt: skip
def test_compression_is_negotiated_in_the_protocols_own_headers(content_type: bytes, coding: str, accepts: str) -> None:
    """A client that does not say what it accepts gets what it sends. An unknown one is refused with the known ones."""
    method = "ModelStreamInfer" if content_type == STREAM else "ModelInfer"

    def found(**headers: bytes) -> tuple[bool, bool]:
        question = asked(method, content_type, **headers)
        return bool(question.coding), question.deflates

    assert found(**{coding: b"gzip"}) == (True, True)
    assert found(**{coding: b"gzip", accepts: b"identity"}) == (True, False)
    assert found(**{coding: b"identity", accepts: b"br, gzip"}) == (False, True)
    assert found(**{coding: b"", accepts: b"br"}) == (False, False)
    assert found(**{coding: b"GZip", accepts: b"Identity"}) == (True, False)
    assert found(**{coding: b"IDENTITY", accepts: b"GZIP"}) == (False, True)
    with pytest.raises(UnknownCompression, match="'br'.*gzip and identity") as refused:
        found(**{coding: b"br"})
    answer = connect.KINDS[content_type].refuse(refused.value)
    assert (accepts.replace("_", "-").encode(), b"gzip") in answer.headers
    assert answer.status == (501 if content_type == PROTO else 200)


@pytest.mark.parametrize(("text", "seconds"), [(b"0", 0.0), (b"1500", 1.5), (b"9999999999", 9999999.999), (b"", None)])
def test_connects_deadline_is_in_milliseconds(text: bytes, seconds: float | None) -> None:
    """It has up to ten digits."""
    assert asked(connect_timeout_ms=text).seconds == seconds
    assert asked("ModelStreamInfer", STREAM, connect_timeout_ms=text).seconds == seconds


@pytest.mark.parametrize(("text", "seconds"), [
    (b"2H", 7200), (b"3M", 180), (b"4S", 4), (b"5m", 0.005), (b"6u", 6e-6), (b"7n", 7e-9), (b"99999999S", 99999999),
])  # fmt: skip
def test_grpc_webs_deadline_has_a_unit(text: bytes, seconds: float) -> None:
    """The unit follows up to eight digits."""
    assert asked(content_type=WEB, grpc_timeout=text).seconds == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"-1", b"+1", b"1.5", b"1s", b"12345678901", b" 1", b"\xd9\xa1", b"x"])
def test_a_deadline_that_is_none_is_refused(text: bytes) -> None:
    """Both protocols refuse it."""
    with pytest.raises(InvalidInput, match="connect-timeout-ms is"):
        asked(connect_timeout_ms=text)
    with pytest.raises(InvalidInput, match="grpc-timeout is"):
        asked(content_type=WEB, grpc_timeout=text)


def test_the_version_may_be_said_and_must_be_one() -> None:
    """GRPC-Web does not have a version."""
    assert asked(connect_protocol_version=b"1").kind.content_type == PROTO
    with pytest.raises(InvalidInput, match="connect-protocol-version is '2'"):
        asked(connect_protocol_version=b"2")
    assert asked(content_type=WEB, connect_protocol_version=b"2").kind.content_type == WEB


MESSAGE = b'{"name":"m~\xc3\xa9"}'
BASE64 = base64.b64encode(MESSAGE).decode()


@pytest.mark.parametrize("query", [
    f"connect=v1&encoding=json&message={quote(MESSAGE)}",
    f"message={quote(MESSAGE)}&encoding=json&other=1&base64=0",
    f"encoding=json&base64=1&message={quote(BASE64)}",
    f"encoding=json&base64=1&message={BASE64}",
    f"encoding=json&base64=1&message={BASE64.rstrip('=').replace('+', '-').replace('/', '_')}",
    f"encoding=json&message={quote(MESSAGE)}&encoding=proto",
])  # fmt: skip
def test_a_get_has_its_message_in_the_query(query: str) -> None:
    """The message is percent-encoded, or base64 of any kind. Of two equal parameters, the first counts."""
    question = got(query)
    assert question.message == MESSAGE
    assert question.kind is connect.KINDS[JSON]
    (frame,) = question.frames(b"", LIMIT)
    assert frame.message(LIMIT) == MESSAGE


def test_a_get_may_be_compressed_and_have_a_deadline() -> None:
    """The compression stands in the query, the deadline in a header."""
    text = base64.urlsafe_b64encode(gzip.compress(MESSAGE)).decode()
    question = got(f"encoding=proto&base64=1&compression=gzip&message={text}", connect_timeout_ms=b"5")
    assert only(question.frames(b"", LIMIT)).message(LIMIT) == MESSAGE
    assert question.deflates
    assert question.seconds == 0.005
    answer = question.answer(b"x" * 50, 10)
    assert dict(answer.headers)[b"content-encoding"] == b"gzip"


@pytest.mark.parametrize(("query", "told"), [
    ("", "needs the parameter encoding"),
    ("encoding=json", "needs the parameter message"),
    ("message=x", "needs the parameter encoding"),
    ("connect=v2&encoding=json&message=x", "connect is 'v2'"),
    ("encoding=json&message=%21&base64=1", "not base64"),
    ("encoding=json&message=%ff&base64=1", "not base64"),
    ("encoding=json&message=x&compression=br", "'br'"),
    ("encoding=xml&message=x", "encoding is 'xml'"),
    ("encoding=connect%2Bjson&message=x", "encoding is"),
])  # fmt: skip
def test_a_get_without_what_it_needs_is_refused(query: str, told: str) -> None:
    """The refusal names the parameter."""
    with pytest.raises(ServingError, match=told):
        got(query)


def test_caches_are_told_that_a_gets_answer_varies() -> None:
    """Answers vary with what the client accepts, whether they are compressed or not."""
    plain = dict(got("encoding=json&message={}").answer(b"x", 10).headers)
    assert plain == {b"content-type": JSON, b"vary": b"accept-encoding"}


def test_an_answer_of_connect_is_bare() -> None:
    """The content type is the request's. A large answer is compressed for clients that accept that."""
    assert asked().answer(b"x" * 50, 10) == HttpResponse(200, ((b"content-type", PROTO),), (b"x" * 50,))
    question = asked(accept_encoding=b"gzip")
    assert question.answer(b"x", 10) == HttpResponse(200, ((b"content-type", PROTO),), (b"x",))
    compressed = question.answer(b"x" * 50, 10)
    assert dict(compressed.headers)[b"content-encoding"] == b"gzip"
    assert gzip.decompress(compressed.parts[0]) == b"x" * 50


@pytest.mark.parametrize("content_type", [WEB, TEXT])
def test_an_answer_of_grpc_web_is_an_envelope_and_trailers(content_type: bytes) -> None:
    """The whole is in base64 if the type is text."""
    answer = asked(content_type=content_type, grpc_accept_encoding=b"gzip").answer(b"y" * 50, 10)
    body = b"".join(answer.parts)
    plain = base64.b64decode(body) if content_type == TEXT else body
    (size,) = struct.unpack_from(">I", plain, 1)
    assert plain[0] == 1
    assert gzip.decompress(plain[5 : 5 + size]) == b"y" * 50
    assert plain[5 + size :] == envelope(b"grpc-status: 0\r\n", flags=128)
    headers = dict(answer.headers)
    assert headers[b"grpc-encoding"] == b"gzip"
    assert headers[b"content-type"].removesuffix(b"+proto") == content_type.removesuffix(b"+proto")
    assert b"".join(asked(content_type=WEB).answer(b"y", 10).parts[:2]) == envelope(b"y")


@pytest.mark.parametrize(("size", "found"), [(0, True), (9, True), (10, True), (11, False)])
def test_the_only_message_of_a_request_has_so_many_bytes(size: int, *, found: bool) -> None:
    """Compressed messages and plain ones have the same limit."""
    question, body = asked("ModelInfer", WEB), envelope(b"x" * size)
    if found:
        assert bytes(question.only(body, 10).content) == b"x" * size
    else:
        with pytest.raises(TooLarge, match="an envelope announces 11 bytes; at most 10 are accepted"):
            question.only(body, 10)


@pytest.mark.parametrize(("body", "kind", "text"), [
    (b"", NotSupported, "no message"),
    (bytes(4), InvalidInput, "ends inside an envelope's head, at byte 4"),
    (b"\0\0\0\0\2x", InvalidInput, "announces 2 bytes; 1 follow"),
    (b"\0\0\0\0\1x\0", InvalidInput, "ends inside an envelope's head, at byte 7"),
    (envelope(b"x") * 2, NotSupported, "more than one message"),
    (envelope(b"x", flags=2), InvalidInput, "flags 2"),
])  # fmt: skip
def test_any_other_body_than_one_envelope_is_refused(body: bytes, kind: type[Exception], text: str) -> None:
    """The refusal says what is wrong with it."""
    with pytest.raises(kind, match=text):
        asked("ModelInfer", WEB).only(body, 10)


def test_a_stream_says_how_it_is_compressed_before_it_begins() -> None:
    """Each envelope then says whether it is compressed."""
    question = asked("ModelStreamInfer", STREAM, connect_accept_encoding=b"gzip")
    assert (b"connect-content-encoding", b"gzip") in question.head
    assert question.part(b"z", 10) == envelope(b"z")
    assert question.part(b"z" * 50, 10)[0] == 1


def test_grpc_itself_ends_with_trailers() -> None:
    """It answers in gzip to clients that compress and accept gzip, and says UNIMPLEMENTED to an unknown coding."""
    question = asked("ModelInfer", b"application/grpc", grpc_accept_encoding=b"identity, deflate, gzip")
    answer = question.answer(b"x" * 50, 10)
    assert (b"".join(answer.parts), answer.trailers) == (envelope(b"x" * 50), ((b"grpc-status", b"0"),))
    question = asked("ModelInfer", b"application/grpc+proto", grpc_encoding=b"deflate")
    (frame,) = question.frames(envelope(zlib.compress(b"abc"), flags=1), LIMIT)
    assert (frame.message(LIMIT), question.answer(b"x" * 50, 10).parts[0][:1]) == (b"abc", b"\x01")
    wishes = {b"identity, deflate, gzip": True, b"identity": False, b"identity,deflate": False}
    for accepted, deflates in wishes.items():
        question = asked("ModelInfer", b"application/grpc", grpc_encoding=b"deflate", grpc_accept_encoding=accepted)
        assert (question.deflates, (b"grpc-encoding", b"gzip") in question.head) == (deflates, deflates)
    with pytest.raises(UnknownCompression, match="supported are gzip, deflate and identity") as refused:
        asked("ModelInfer", b"application/grpc", grpc_encoding=b"br")
    refusal = question.kind.refuse(refused.value)
    assert (b"".join(refusal.parts), dict(refusal.trailers)[b"grpc-status"]) == (b"", b"12")


@pytest.mark.parametrize("content_type", [b"application/grpc+json", b"Application/gRPC+Thrift"])
def test_another_codec_of_grpc_is_refused_as_grpc_does(content_type: bytes) -> None:
    """The refusal is 415, with gRPC's status in the headers: its clients cannot read a refusal in JSON."""
    with pytest.raises(WrongType) as refused:
        asked("ModelInfer", content_type)
    answer = connect.kind_of({b"content-type": content_type}).refuse(refused.value, b"own")
    headers = dict(answer.headers)
    assert (answer.status, headers[b"grpc-status"], b"".join(answer.parts), answer.trailers) == (415, b"12", b"", ())
    assert (headers[b"content-type"], b"grpc-status-details-bin" in headers) == (b"application/grpc", True)
    assert headers[b"accept-post"].split(b", ") == list(connect.CALLS)


@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT"])
@pytest.mark.parametrize("content_type", [b"application/grpc", b"application/grpc+proto", b"Application/gRPC"])
def test_grpc_has_one_verb(verb: str, content_type: bytes) -> None:
    """The refusal is 405. A GET of a gRPC client is not one of Connect's, also where Connect's method has one."""
    with pytest.raises(WrongVerb) as refused:
        asked("ModelMetadata", content_type, verb, b"encoding=json&message=%7B%7D")
    answer = connect.kind_of({b"content-type": content_type}).refuse(refused.value)
    headers = dict(answer.headers)
    assert (answer.status, headers[b"allow"], headers[b"grpc-status"]) == (405, b"POST", b"12")


@given(st.binary(max_size=60), st.sampled_from([*connect.KINDS.values()]), st.sampled_from([b"", b"gzip", b"deflate"]))
def test_any_bytes_as_any_body_are_frames_or_refused(body: bytes, kind: connect.CallKind, coding: bytes) -> None:
    """Only the protocol's own errors are raised."""
    question = connect.Question(METHODS["ModelInfer"], kind, None, None, coding, deflates=False)
    try:
        plain = requests.from_text(body) if kind.text else body
        for frame in question.frames(plain, LIMIT):
            frame.message(LIMIT)
    except ServingError as error:
        answer = kind.refuse(error)
        assert answer.status in (200, 400, 429, 500)


HEADERS = [
    b"content-type", b"connect-timeout-ms", b"grpc-timeout", b"content-encoding", b"accept-encoding", b"grpc-encoding",
    b"connect-protocol-version", b"accept",
]  # fmt: skip
VALUES = st.one_of(st.sampled_from([*connect.KINDS, b"gzip", b"1", b"1S", b"identity"]), st.binary(max_size=9))


@given(
    st.sampled_from([None, *METHODS.values()]),
    st.sampled_from(["GET", "POST", "PUT"]),
    st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=6),
    st.one_of(
        st.binary(max_size=40), st.sampled_from([b"encoding=json&message=", b"encoding=proto&message=%&base64=1"])
    ),
)
def test_any_head_asks_something_or_is_refused(
    method: Any, verb: str, headers: dict[bytes, bytes], query: bytes
) -> None:
    """The refusal has the form of the client's protocol."""
    kind = connect.kind_of(headers)
    try:
        question = connect.question(method, verb, PATH, headers, query)
    except ServingError as error:
        answer = kind.refuse(error)
        assert answer.parts or b"grpc-status" in dict(answer.headers)
        assert all(b"\n" not in value for _, value in answer.headers)
    else:
        assert question.seconds is None or question.seconds >= 0


def test_every_refusal_of_the_protocol_has_one_of_its_codes() -> None:
    """A new refusal without a code fails this test."""
    kinds: list[Callable[[str], EdgeError]] = EdgeError.__subclasses__()
    assert {code_of(kind("x")).name for kind in kinds} == {"deadline_exceeded", "unimplemented", "internal", "unknown"}
