"""The attacks on Connect and gRPC-Web send anything as any request to any method."""

import base64
import gzip
import json
from typing import Any, Final

from google.protobuf import json_format
from hypothesis import strategies as st

from core.dialects.rpcs import RPCS
from core.rpc import Form, RpcMethod
from core.schema import open_inference as oip
from tests.protocols.grpc.fuzz import BYTES, VALID
from tests.support.checks import INTERNALS
from tests.support.connect_client import (
    JSON,
    OIP,
    PROTO,
    STREAM,
    STREAM_JSON,
    TEXT,
    WEB,
    WEB_JSON,
    Caller,
    Outcome,
    alive,
    envelope,
    split,
)  # fmt: skip
from tests.support.strategies import Attack, byte_mutants

METHODS = [method for method in RPCS if method.form is not Form.WATCH]
BARE, FRAMED = [PROTO, JSON], [STREAM, STREAM_JSON, WEB, WEB_JSON]
CLIENTS_FAULTS = {
    "invalid_argument",
    "not_found",
    "failed_precondition",
    "unimplemented",
    "resource_exhausted",
    "internal",  # a compressed message that no header announces
    "unknown",  # 405, 415
}
PRINTED = [json_format.MessageToJson(message, indent=None).encode() for message in VALID]

messages = st.one_of(
    byte_mutants(BYTES), byte_mutants(PRINTED), st.binary(max_size=60), st.sampled_from(BYTES).map(gzip.compress)
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
    """Asserts an answer or a client's fault in the protocol's form, and that the server calculates."""
    if outcome.code is not None:
        assert outcome.code in CLIENTS_FAULTS, outcome
        assert outcome.text.strip()
        assert not INTERNALS.search(outcome.text)
        assert "internal error" not in outcome.text
    alive(connection)


parameters = st.sampled_from(["connect", "encoding", "message", "base64", "compression", "x"])
values = st.one_of(
    st.sampled_from(["v1", "v2", "json", "proto", "1", "gzip", "%7B%7D", "%ff", "e30", "%"]),
    st.text("ab%+&=1", max_size=5),
    messages.map(lambda message: base64.urlsafe_b64encode(message).decode()),
)


def post(caller: Caller, method: RpcMethod, kind: str, body: bytes, headers: dict[str, str]) -> None:
    """Posts bytes to a method, and judges the outcome."""
    judged(caller, caller.post(method.rpc.name, kind, body, method.service, **headers))


def exchange(caller: Caller, bodies: list[bytes], kind: str) -> None:
    """Asserts that each message has an answer with a result or with what is wrong about it."""
    outcome = caller.post("ModelStreamInfer", kind, envelope(*bodies))
    assert outcome.code is None
    assert len(outcome.messages) == len(bodies)
    for message in outcome.messages:
        answer = json_format.Parse(message, oip.ModelStreamInferResponse()) if kind == STREAM_JSON else message
        if isinstance(answer, bytes):
            answer = oip.ModelStreamInferResponse.FromString(answer)
        else:
            document = json.loads(message)
            assert ("errorMessage" in document) != ("outputs" in document.get("inferResponse", {}))
        assert bool(answer.error_message) != bool(answer.infer_response.outputs)
        assert not INTERNALS.search(answer.error_message)
    alive(caller)


def text(caller: Caller, body: bytes) -> None:
    """Asserts that text comes back, whatever was sent."""
    answer = caller.client.post(f"/{OIP}/ModelInfer", content=body, headers={"content-type": TEXT})
    assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT)
    pieces = [piece + b"=" * (-len(piece) % 4) for piece in answer.content.split(b"=") if piece]
    flags, last = split(b"".join(map(base64.b64decode, pieces)))[-1]
    assert flags == 128
    assert last.startswith(b"grpc-status: ")
    alive(caller)


def get(caller: Caller, method: RpcMethod, query: list[tuple[str, str]]) -> None:
    """Sends a GET to a method that permits it, or to another one."""
    target = f"{method.path}?" + "&".join(f"{name}={value}" for name, value in query)
    judged(caller, caller.ask("GET", target, b"", {}))


def path(caller: Caller, service: str, method: str, kind: str) -> None:
    """Asserts that a path with a dot is answered, though no route exists."""
    answer: Any = caller.client.post(f"/{service}.S/{method}", content=b"", headers={"content-type": kind})
    assert answer.status_code in (200, 404)
    alive(caller)


methods = st.sampled_from(METHODS)
near_text = st.one_of(
    streams.map(base64.b64encode), st.binary(max_size=30), st.text("AQ=/", max_size=16).map(str.encode)
)
printed = st.lists(st.one_of(byte_mutants(PRINTED), st.binary(max_size=20)), max_size=3)
services, words = st.text("ab.Z-_%", min_size=1, max_size=12), st.text("aZ_-", min_size=1, max_size=8)
ATTACKS: Final = {
    "any_bare_message": Attack(st.tuples(methods, st.sampled_from(BARE), messages, codings), post),
    "any_envelopes": Attack(st.tuples(methods, st.sampled_from(FRAMED), streams, codings), post),
    "an_exchange": Attack(st.tuples(st.lists(messages, max_size=4), st.sampled_from([STREAM, WEB])), exchange),
    "an_exchange_in_json": Attack(st.tuples(printed, st.just(STREAM_JSON)), exchange),
    "any_text": Attack(st.tuples(near_text), text),
    "any_query": Attack(st.tuples(methods, st.lists(st.tuples(parameters, values), max_size=6)), get),
    "any_path": Attack(st.tuples(services, words, st.sampled_from([*BARE, *FRAMED, "", "text/plain"])), path),
}
