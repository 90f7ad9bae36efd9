"""Anything as any message of any method: the answer is one of the protocol, and the next call is answered right."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.dialects.grpc.health import health
from core.dialects.v2.rpc import V2_RPC
from core.rpc import Form, RpcMethod
from core.schema import open_inference as oip
from core.schema.pool import POOL
from tests.protocols.grpc.bad_messages import BAD_MESSAGES, both, both_typed, identity
from tests.support.checks import INTERNALS
from tests.support.remote import FIELD, SECONDS, Remote, alive, wanted
from tests.support.server import HOST
from tests.support.strategies import BROKEN, MODELS

if TYPE_CHECKING:
    from tests.support.server import Server

fuzzed = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
UNARY = [method for method in (*V2_RPC, *health([])) if method.form is Form.UNARY]
CLIENTS_FAULTS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}
DATATYPES = [*FIELD, "FP16", "BF16", "", "FP8"]

texts = st.one_of(
    st.sampled_from([*MODELS, *BROKEN, "1", "10", "INPUT0", "OUTPUT0", "\0", "../x"]), st.text(max_size=9)
)
parameters = st.builds(
    lambda kind, number: oip.InferParameter(**({} if kind is None else {kind: number})),
    st.sampled_from([None, "int64_param", "uint64_param", "double_param"]),
    st.integers(0, 2**63 - 1),
)
parameter_maps = st.dictionaries(
    st.one_of(st.sampled_from(["classification", "binary_data_output", "shared_memory_region"]), texts),
    parameters,
    max_size=2,
)
contents = st.builds(
    oip.InferTensorContents,
    bool_contents=st.lists(st.booleans(), max_size=3),
    int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    int64_contents=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
    uint_contents=st.lists(st.integers(0, 2**32 - 1), max_size=2),
    fp32_contents=st.lists(st.floats(width=32), max_size=3),
    bytes_contents=st.lists(st.binary(max_size=5), max_size=3),
)
inputs = st.builds(
    lambda name, datatype, shape, own, told: oip.ModelInferRequest.InferInputTensor(
        name=name, datatype=datatype, shape=shape, contents=own, parameters=told
    ),
    texts,
    st.sampled_from(DATATYPES),
    st.lists(st.one_of(st.integers(-2, 4), st.integers(-(2**63), 2**63 - 1)), max_size=4),
    st.one_of(st.none(), contents),
    parameter_maps,
)
requests = st.builds(
    lambda model, version, own, parts, names, told: oip.ModelInferRequest(
        model_name=model,
        model_version=version,
        inputs=own,
        raw_input_contents=parts,
        outputs=wanted(*names),
        parameters=told,
    ),
    texts,
    st.sampled_from(["", "", "1", "x"]),
    st.lists(inputs, max_size=3),
    st.lists(st.binary(max_size=70), max_size=3),
    st.lists(texts, max_size=2),
    parameter_maps,
)
VALID = [
    both(),
    both_typed(),
    both(outputs=wanted("OUTPUT1"), id="1"),
    identity("FP32", fp32_contents=[1, 2]),
    identity("BYTES", bytes_contents=[b"a", b""]),
    *(bad.message for bad in BAD_MESSAGES if isinstance(bad.message, oip.ModelInferRequest)),
]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """The bytes of a message of which some are others, gone, or doubled."""
    body = bytearray(draw(st.sampled_from(VALID)).SerializeToString())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        length = draw(st.integers(0, 4))
        body[at : at + length] = draw(st.one_of(st.binary(max_size=4), st.just(bytes(body[at : at + 12]))))
    return bytes(body)


def judged(remote: Remote, method: RpcMethod, body: bytes) -> None:
    """An answer that is of the method's message, or a fault of the client's, and a server that calculates."""
    descriptor = POOL.FindServiceByName(method.service).methods_by_name[method.rpc.name]
    try:
        answer = remote.call(method.rpc.name, method.service)(body, timeout=SECONDS)
    except grpc.RpcError as error:
        refused: Any = error
        assert refused.code() in CLIENTS_FAULTS, (refused.code(), refused.details(), body)
        assert refused.details().strip()
        assert not INTERNALS.search(refused.details())
    else:
        GetMessageClass(descriptor.output_type).FromString(answer)


@fuzzed
@given(st.sampled_from(UNARY), st.binary(max_size=100))
def test_any_bytes_to_any_method(server: Server, method: RpcMethod, body: bytes) -> None:
    """What never was a message."""
    with_remote(server, lambda remote: judged(remote, method, body))


@fuzzed
@given(requests)
def test_any_request_to_infer(server: Server, message: oip.ModelInferRequest) -> None:
    """A message whose parts do not fit together."""
    with_remote(server, lambda remote: judged(remote, INFER, message.SerializeToString()))


@fuzzed
@given(mutants())
def test_mutated_requests(server: Server, body: bytes) -> None:
    """Nearly right."""
    with_remote(server, lambda remote: judged(remote, INFER, body))


@fuzzed
@given(st.sampled_from(UNARY), texts, texts)
def test_any_names_to_any_method(server: Server, method: RpcMethod, name: str, version: str) -> None:
    """Most requests begin with them, whatever they are called."""
    body = oip.ModelReadyRequest(name=name, version=version).SerializeToString()
    with_remote(server, lambda remote: judged(remote, method, body))


@fuzzed
@given(st.lists(st.one_of(mutants(), st.binary(max_size=40), st.sampled_from(VALID)), max_size=6), st.integers(0, 6))
def test_any_messages_in_a_stream_that_may_be_cut(server: Server, messages: list[Any], read: int) -> None:
    """One answer for each as long as the client listens; then it goes, and nobody minds."""

    def exchange(remote: Remote) -> None:
        answers = remote.stream(iter(messages))
        found = [answer for answer, _ in zip(answers, range(read), strict=False)]
        assert len(found) == min(read, len(messages))
        for answer in found:
            assert bool(answer.error_message) != bool(answer.infer_response.outputs)
            assert not INTERNALS.search(answer.error_message)

    with_remote(server, exchange)


INFER = next(method for method in V2_RPC if method.rpc.name == "ModelInfer")
CHANNELS: dict[str, Remote] = {}


def with_remote(server: Server, work: Any) -> None:
    """Over one connection for all examples, which calculates afterwards."""
    remote = CHANNELS.get(server.rpc_netloc) or CHANNELS.setdefault(server.rpc_netloc, Remote(server.rpc_netloc))
    work(remote)
    alive(remote)


def test_a_connection_that_is_no_grpc_ends_and_hurts_nobody(server: Server, remote: Remote) -> None:
    """HTTP/1.1, noise, and a preface that is cut."""
    for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n"):
        with socket.create_connection((HOST, server.rpc_port), 10) as plain:
            plain.sendall(noise)
            with suppress(OSError):  # the server may have ended it already
                plain.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while plain.recv(4096):
                    pass
    alive(remote)
