"""Anything as any request to any method: the answer is one of the protocol, and the next call is answered right."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.dialects.rpcs import RPCS
from core.rpc import Form, RpcMethod
from core.schema import open_inference as oip
from tests.protocols.grpc.bad_messages import BAD_MESSAGES, both, both_typed, identity
from tests.support.checks import INTERNALS
from tests.support.connect_client import (
    JSON,
    PROTO,
    STREAM,
    STREAM_JSON,
    TEXT,
    WEB,
    Caller,
    Outcome,
    alive,
    envelope,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import Server

fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
METHODS = [method for method in RPCS if method.form is not Form.WATCH]
BARE, FRAMED = [PROTO, JSON], [STREAM, STREAM_JSON, WEB]
CLIENTS_FAULTS = {
    "invalid_argument",
    "not_found",
    "failed_precondition",
    "unimplemented",
    "resource_exhausted",
    "internal",  # a compressed message that no header announces
    "unknown",  # 405, 415
}
VALID = [
    both(),
    both_typed(),
    identity("FP32", fp32_contents=[1, 2]),
    identity("BYTES", bytes_contents=[b"a", b""]),
    *(bad.message for bad in BAD_MESSAGES if isinstance(bad.message, oip.ModelInferRequest)),
]
PRINTED = [json_format.MessageToJson(message, indent=None).encode() for message in VALID]
BYTES = [message.SerializeToString() for message in VALID]


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[Caller]:
    """One for all examples."""
    made = Caller(server.netloc)
    yield made
    made.close()


@st.composite
def mutants(draw: st.DrawFn, valid: list[bytes]) -> bytes:
    """The bytes of a message of which some are others, gone, or doubled."""
    body = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        length = draw(st.integers(0, 4))
        body[at : at + length] = draw(st.one_of(st.binary(max_size=4), st.just(bytes(body[at : at + 12]))))
    return bytes(body)


messages = st.one_of(
    mutants(BYTES), mutants(PRINTED), st.binary(max_size=60), st.sampled_from(BYTES).map(gzip.compress)
)
envelopes = st.builds(
    lambda message, flags, length: bytes([flags]) + max(0, len(message) + length).to_bytes(4) + message,
    messages,
    st.sampled_from([0, 0, 0, 0, 1, 2, 128, 255]),
    st.sampled_from([0, 0, 0, 0, 1, -1, 2**31]),
)
streams = st.one_of(st.lists(envelopes, max_size=4).map(b"".join), st.binary(max_size=40))
codings = st.dictionaries(
    st.sampled_from(["content-encoding", "connect-content-encoding", "grpc-encoding"]),
    st.sampled_from(["gzip", "identity", "br", ""]),
    max_size=2,
)


def judged(connection: Caller, outcome: Outcome) -> None:
    """An answer, or a fault of the client's in words of this protocol, and a server that calculates."""
    if outcome.code is not None:
        assert outcome.code in CLIENTS_FAULTS, outcome
        assert outcome.text.strip()
        assert not INTERNALS.search(outcome.text)
        assert "internal error" not in outcome.text
    alive(connection)


@fuzzed
@given(st.sampled_from(METHODS), st.sampled_from(BARE), messages, codings)
def test_any_bytes_as_a_bare_message(
    connection: Caller, method: RpcMethod, kind: str, body: bytes, headers: dict[str, str]
) -> None:
    """To every method, in both codecs, compressed or not."""
    judged(connection, connection.post(method.rpc.name, kind, body, method.service, **headers))


@fuzzed
@given(st.sampled_from(METHODS), st.sampled_from(FRAMED), streams, codings)
def test_any_bytes_as_envelopes(
    connection: Caller, method: RpcMethod, kind: str, body: bytes, headers: dict[str, str]
) -> None:
    """Wrong flags, lengths, compression; streams that are cut."""
    judged(connection, connection.post(method.rpc.name, kind, body, method.service, **headers))


@fuzzed
@given(st.lists(messages, max_size=4), st.sampled_from([STREAM, WEB]))
def test_any_messages_in_an_exchange_are_answered_one_by_one(
    connection: Caller, bodies: list[bytes], kind: str
) -> None:
    """Each with a result or with what is wrong about it."""
    outcome = connection.post("ModelStreamInfer", kind, envelope(*bodies))
    assert outcome.code is None
    assert len(outcome.messages) == len(bodies)
    for message in outcome.messages:
        answer = oip.ModelStreamInferResponse.FromString(message)
        assert bool(answer.error_message) != bool(answer.infer_response.outputs)
        assert not INTERNALS.search(answer.error_message)
    alive(connection)


@fuzzed
@given(st.lists(st.one_of(mutants(PRINTED), st.binary(max_size=20)), max_size=3))
def test_any_documents_in_an_exchange_are_answered_one_by_one(connection: Caller, bodies: list[bytes]) -> None:
    """In JSON."""
    outcome = connection.post("ModelStreamInfer", STREAM_JSON, envelope(*bodies))
    assert outcome.code is None
    assert len(outcome.messages) == len(bodies)
    for message in outcome.messages:
        answer = json.loads(message)
        assert ("errorMessage" in answer) != ("outputs" in answer.get("inferResponse", {}))
    alive(connection)


@fuzzed
@given(st.one_of(streams.map(base64.b64encode), st.binary(max_size=30), st.text("AQ=/", max_size=16).map(str.encode)))
def test_any_bytes_as_text(connection: Caller, body: bytes) -> None:
    """Text comes back, whatever it was."""
    headers = {"content-type": TEXT}
    answer = connection.client.post("/inference.GRPCInferenceService/ModelInfer", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT)
    pieces = [piece + b"=" * (-len(piece) % 4) for piece in answer.content.split(b"=") if piece]
    flags, last = split(b"".join(map(base64.b64decode, pieces)))[-1]
    assert flags == 128
    assert last.startswith(b"grpc-status: ")
    alive(connection)


parameters = st.sampled_from(["connect", "encoding", "message", "base64", "compression", "x"])
values = st.one_of(
    st.sampled_from(["v1", "v2", "json", "proto", "1", "gzip", "%7B%7D", "%ff", "e30", "%"]),
    st.text("ab%+&=1", max_size=5),
    messages.map(lambda message: base64.urlsafe_b64encode(message).decode()),
)


@fuzzed
@given(st.sampled_from(METHODS), st.lists(st.tuples(parameters, values), max_size=6))
def test_any_query_as_a_get(connection: Caller, method: RpcMethod, query: list[tuple[str, str]]) -> None:
    """Of methods that may be one, and of others."""
    target = f"{method.path}?" + "&".join(f"{name}={value}" for name, value in query)
    judged(connection, connection.ask("GET", target, b"", {}))


@fuzzed
@given(
    st.text("ab.Z-_%", min_size=1, max_size=12),
    st.text("aZ_-", min_size=1, max_size=8),
    st.sampled_from([*BARE, *FRAMED, "", "text/plain"]),
)
def test_any_path_with_a_dot_is_answered(connection: Caller, service: str, method: str, kind: str) -> None:
    """Nobody has to be there."""
    answer: Any = connection.client.post(f"/{service}.S/{method}", content=b"", headers={"content-type": kind})
    assert answer.status_code in (200, 404)
    alive(connection)
