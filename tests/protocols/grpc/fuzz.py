"""The attacks on gRPC send anything as any message of any method."""

from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from core.dialects.grpc.health import health
from core.dialects.v2.rpc import V2_RPC
from core.rpc import Form, RpcMethod
from core.schema import open_inference as oip
from core.schema.pool import POOL
from tests.protocols.grpc.bad_messages import BAD_MESSAGES, both, both_typed, identity
from tests.support.checks import INTERNALS
from tests.support.remote import FIELD, SECONDS, Remote, alive, wanted
from tests.support.strategies import BROKEN, MODELS, Attack, byte_mutants, of_clients

UNARY = [method for method in (*V2_RPC, *health([])) if method.form is Form.UNARY]
CLIENTS_FAULTS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,  # a repository of a name
}
DATATYPES = [*FIELD, "FP16", "BF16", "", "FP8"]

texts = st.one_of(
    st.sampled_from([*MODELS, *BROKEN, "1", "10", "INPUT0", "OUTPUT0", "\0", "../x"]),
    st.text(max_size=9).filter(of_clients),
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
    both(), both_typed(), both(outputs=wanted("OUTPUT1"), id="1"), identity("FP32", fp32_contents=[1, 2]),
    identity("BYTES", bytes_contents=[b"a", b""]),
    *(bad.message for bad in BAD_MESSAGES if isinstance(bad.message, oip.ModelInferRequest)),
]  # fmt: skip


BYTES = [message.SerializeToString() for message in VALID]


def judged(remote: Remote, method: RpcMethod, body: bytes) -> None:
    """Asserts an answer with the method's message or a client's fault, and that the server calculates."""
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


INFER = next(method for method in V2_RPC if method.rpc.name == "ModelInfer")


def call(remote: Remote, method: RpcMethod, body: bytes) -> None:
    """Calls a method, judges its answer, and calculates afterwards."""
    judged(remote, method, body)
    alive(remote)


def exchange(remote: Remote, messages: list[Any], read: int) -> None:
    """Reads one answer for each message while the client listens. The client then leaves, and the server lives."""
    answers = remote.stream(iter(messages))
    found = [answer for answer, _ in zip(answers, range(read), strict=False)]
    assert len(found) == min(read, len(messages))
    for answer in found:
        assert bool(answer.error_message) != bool(answer.infer_response.outputs)
        assert not INTERNALS.search(answer.error_message)
    alive(remote)


named = st.builds(lambda name, version: oip.ModelReadyRequest(name=name, version=version), texts, texts)
mutated = byte_mutants(BYTES, 1)
one_message = st.one_of(mutated, st.binary(max_size=40), st.sampled_from(BYTES))
ATTACKS: Final = {
    "any_bytes": Attack(st.tuples(st.sampled_from(UNARY), st.binary(max_size=100)), call),
    "any_request": Attack(st.tuples(st.just(INFER), requests.map(lambda each: each.SerializeToString())), call),
    "mutated_requests": Attack(st.tuples(st.just(INFER), mutated), call),
    "any_names": Attack(st.tuples(st.sampled_from(UNARY), named.map(lambda each: each.SerializeToString())), call),
    "a_stream_that_may_be_cut": Attack(st.tuples(st.lists(one_message, max_size=6), st.integers(0, 6)), exchange),
}
