"""The tests ask what connectrpc's conformance suite asks of servers with unexpected requests, and more of it."""

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.support.connect_client import (
    GRPS,
    JSON,
    OIP,
    PROTO,
    STREAM,
    STREAM_JSON,
    TEXT,
    WEB,
    WEB_JSON,
    Caller,
    envelope,
    split,
)
from tests.support.remote import question, raw, tensors

X = np.array([0])
BODY = question("versions", raw("x", "INT64", X)).SerializeToString()
PATH = f"/{OIP}/ModelInfer"


@pytest.mark.parametrize("kind", ["image/jpeg", "", "application/connect+proto", "application/foo"])
def test_an_unexpected_content_type_is_415(caller: Caller, kind: str) -> None:
    """The answer lists the types that are accepted."""
    outcome = caller.post("ModelInfer", kind, b"12345678")
    assert (outcome.status, outcome.code) == (415, "unknown")
    assert PROTO in outcome.metadata["accept-post"]


@pytest.mark.parametrize("kind", [WEB_JSON, "application/grpc-web-text+json"])
@pytest.mark.parametrize("accept", ["", "application/grpc-web-text"])
def test_grpc_web_has_json(caller: Caller, kind: str, accept: str) -> None:
    """connect-web sends it without its binary format, and any client may ask for base64."""
    body = envelope(b'{"name": "versions"}')
    given = {"content-type": kind, "accept": accept}
    sent = base64.b64encode(body) if "text" in kind else body
    answer = caller.client.post(f"/{OIP}/ModelMetadata", content=sent, headers=given)
    is_text = "text" in kind + accept
    assert answer.headers["content-type"] == f"application/grpc-web{'-text' * is_text}+json"
    (_, found), (flags, end) = split(base64.b64decode(answer.content) if is_text else answer.content)
    assert json.loads(found)["versions"] == ["1", "2", "10"]
    assert (flags, end) == (128, b"grpc-status: 0\r\n")


@pytest.mark.parametrize("kind", [PROTO, STREAM, WEB])
@pytest.mark.parametrize("verb", ["DELETE", "PUT", "PATCH", "OPTIONS"])
def test_an_unexpected_verb_is_405(caller: Caller, verb: str, kind: str) -> None:
    """The answer lists the verbs that are accepted."""
    outcome = caller.ask(verb, PATH, BODY, {"content-type": kind})
    assert (outcome.status, outcome.code, outcome.metadata["allow"]) == (405, "unknown", "GET, HEAD, POST")


@pytest.mark.parametrize("kind", [PROTO, JSON, STREAM, STREAM_JSON, WEB, WEB_JSON])
@pytest.mark.parametrize("service", ["connectrpc.conformance.v1.UnknownService", OIP])
def test_an_unexpected_path_is_unimplemented(caller: Caller, service: str, kind: str) -> None:
    """Neither the service nor the method has to be known."""
    outcome = caller.post("UnknownMethod", kind, envelope(BODY), service)
    assert outcome.code == "unimplemented"
    assert outcome.status == (404 if kind in (PROTO, JSON) else 200)


@pytest.mark.parametrize("kind", [STREAM, STREAM_JSON, WEB, WEB_JSON])
@pytest.mark.parametrize("path", ["/Unknown/Method", "/unknown", "/a/b/c"])
def test_a_path_that_no_protocol_has_is_unimplemented_to_a_client_of_calls(
    caller: Caller, path: str, kind: str
) -> None:
    """A service may have no package. Such a client reads no JSON that V2 has for the path."""
    outcome = caller.ask("POST", path, envelope(BODY), {"content-type": kind})
    assert (outcome.status, outcome.code) == (200, "unimplemented")
    assert outcome.text == f"the server has no method at '{path}'"


@pytest.mark.parametrize(("method", "service", "kind", "coding"), [
    ("ModelInfer", OIP, PROTO, "content-encoding"),
    ("ModelInfer", OIP, WEB, "grpc-encoding"),
    ("PredictStreaming", GRPS, STREAM, "connect-content-encoding"),
])  # fmt: skip
def test_an_unexpected_compression_is_unimplemented(
    caller: Caller, method: str, service: str, kind: str, coding: str
) -> None:
    """The text lists what is supported."""
    outcome = caller.post(method, kind, envelope(BODY), service, **{coding: "zstd"})
    assert outcome.code == "unimplemented"
    assert "gzip" in outcome.text


@pytest.mark.parametrize(("method", "service", "kind"), [("ModelInfer", OIP, WEB), ("PredictStreaming", GRPS, STREAM)])
def test_a_compressed_message_that_no_header_announces_is_internal(
    caller: Caller, method: str, service: str, kind: str
) -> None:
    """A header that says identity does not announce it either."""
    body = envelope(gzip.compress(BODY), flags=1)
    for headers in ({}, {"grpc-encoding": "identity", "connect-content-encoding": "identity"}):
        assert caller.post(method, kind, body, service, **headers).code == "internal"


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize(("method", "service", "kind"), [("ModelInfer", OIP, WEB), ("PredictStreaming", GRPS, STREAM)])
def test_one_message_is_neither_none_nor_two(caller: Caller, method: str, service: str, kind: str, count: int) -> None:
    """A method with one answer and a method with many take exactly one."""
    assert caller.post(method, kind, envelope(*[BODY] * count), service).code == "unimplemented"


def test_an_exchange_may_be_of_nothing(caller: Caller) -> None:
    """Without a question there is no answer and no error."""
    for kind in (STREAM, STREAM_JSON, WEB, WEB_JSON):
        outcome = caller.post("ModelStreamInfer", kind)
        assert (outcome.code, outcome.messages) == (None, [])


@pytest.mark.parametrize("kind", [STREAM, WEB])
@pytest.mark.parametrize(
    "body", [b"\0\0", envelope(BODY)[:-1], envelope(BODY, flags=2), envelope(BODY, flags=128), b"\0\xff\xff\xff\xff"]
)
def test_an_envelope_that_is_none_ends_the_exchange(caller: Caller, kind: str, body: bytes) -> None:
    """The answers to those before it are sent first."""
    outcome = caller.post("ModelStreamInfer", kind, envelope(BODY) + body)
    assert len(outcome.messages) == 1
    assert outcome.code in ("invalid_argument", "resource_exhausted")


@pytest.mark.parametrize("kind", [PROTO, JSON])
def test_a_get_needs_no_header(caller: Caller, kind: str) -> None:
    """A link is enough."""
    message = json.dumps({"name": "versions"}).encode()
    encoding = "json"
    if kind == PROTO:
        message, encoding = oip.ModelMetadataRequest(name="versions").SerializeToString(), "proto"
    text = base64.urlsafe_b64encode(message).decode().rstrip("=")
    target = f"/{OIP}/ModelMetadata?connect=v1&encoding={encoding}&base64=1&message={text}"
    outcome = caller.ask("GET", target, b"", {})
    assert outcome.metadata["content-type"] == kind
    assert outcome.metadata["vary"] == "accept-encoding"
    (found,) = outcome.messages
    if kind == JSON:
        assert json.loads(found)["versions"] == ["1", "2", "10"]
    else:
        assert oip.ModelMetadataResponse.FromString(found).versions == ["1", "2", "10"]


def test_text_comes_back_as_text(caller: Caller) -> None:
    """It comes in pieces that a browser may decode one by one."""
    given = {"content-type": TEXT, "accept": TEXT}
    body = base64.b64encode(envelope(BODY)) + base64.b64encode(envelope(BODY))
    answer = caller.client.post(f"/{OIP}/ModelStreamInfer", content=body, headers=given)
    assert answer.headers["content-type"] == TEXT
    pieces = [piece + b"=" * (-len(piece) % 4) for piece in answer.content.split(b"=") if piece]
    first, second, (flags, end) = split(b"".join(map(base64.b64decode, pieces)))
    assert first == second
    read = oip.ModelStreamInferResponse.FromString(first[1])
    assert tensors(read.infer_response)["y"].tolist() == [10]
    assert (flags, end) == (128, b"grpc-status: 0\r\n")


def test_native_grpc_is_told_where_to_go(caller: Caller) -> None:
    """Only the headers say it, as in gRPC when no body follows."""
    headers = {"content-type": "application/grpc", "te": "trailers"}
    answer = caller.client.post(PATH, content=envelope(BODY), headers=headers)
    assert (answer.status_code, answer.headers["grpc-status"], answer.content) == (200, "12", b"")


@pytest.mark.parametrize(("kind", "headers"), [
    (PROTO, {"connect-timeout-ms": "1s"}),
    (PROTO, {"connect-timeout-ms": "12345678901"}),
    (WEB, {"grpc-timeout": "1"}),
    (PROTO, {"connect-protocol-version": "2"}),
])  # fmt: skip
def test_headers_that_say_nothing_are_refused(caller: Caller, kind: str, headers: dict[str, Any]) -> None:
    """They are not ignored."""
    assert caller.post("ModelInfer", kind, envelope(BODY), **headers).code == "invalid_argument"


@pytest.mark.parametrize(
    ("kind", "header", "value"), [(PROTO, "connect-timeout-ms", "9999999999"), (WEB, "grpc-timeout", "99999999H")]
)
@pytest.mark.parametrize(("method", "message"), [("ModelInfer", BODY), ("RepositoryIndex", b"")])
def test_the_longest_deadlines_are_deadlines(
    caller: Caller, kind: str, header: str, value: str, method: str, message: bytes
) -> None:
    """The cases are days and centuries. The index waits for a lock, whose time has a limit."""
    body = envelope(message) if kind == WEB else message
    assert caller.post(method, kind, body, **{header: value}).code is None
