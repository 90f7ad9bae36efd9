"""Anything to every route and method: the answer is one of the protocol, and the next request is answered right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.dialects.grps.rpc import GRPS_RPC
from core.errors import ServingError
from handler.edge.jobs import Job, Timing
from handler.edge.messages import MessageCodec
from tests.conformance.checks import INTERNALS
from tests.conformance.grps.client import JSON, OCTETS, Message, Reply, split
from tests.conformance.strategies import METHODS, blanks, codings, quoted, texts, values

if TYPE_CHECKING:
    from tests.conformance.asgi import Local

fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
MODELS = ["text", "add_sub", "identity_fp32", "identity_bytes", "singles", "octets", "untold", "my-model-2", "raw"]
ODD_MODELS = ["nope", "broken", "", "my-model-3", "text-"]
CANARY = json.dumps({"model": "text", "str_data": "alive"}).encode()
ALLOWED = {400, 404, 405, 413, 415, 500, 501, 503}

names = st.one_of(st.sampled_from([*MODELS, *ODD_MODELS]), texts)
queries = st.one_of(
    st.just(""),
    st.builds(
        lambda model, streaming, ndarray: f"?model={model}&streaming={streaming}&return-ndarray={ndarray}",
        st.one_of(st.sampled_from([*MODELS, *ODD_MODELS]), quoted),
        st.sampled_from(["true", "false", "1"]),
        st.sampled_from(["true", "false"]),
    ),
    quoted.map(lambda text: f"?{text}"),
)
paths = st.one_of(
    st.sampled_from(["infer/predict"] * 5),
    st.sampled_from(["metadata/model", "metadata/server", "health/live", "health/ready", "health/x", "", "infer"]),
    quoted,
)
kinds = st.one_of(st.sampled_from([JSON, OCTETS] * 3), codings)
keys = st.sampled_from(
    ["str_data", "strData", "ndarray", "gtensors", "tensors", "gmap", "s_s", "s_b", "s_i32", "s_f", "INPUT0", "INPUT1",
     "name", "dtype", "shape", "flat_int32", "flat_float32", "flat_string", "bin_data", "model"]
)  # fmt: skip
documents = st.recursive(
    st.one_of(values, st.sampled_from(["DT_INT32", "DT_FLOAT32", "DT_STRING", 4, 7, [2], [1, 2], ["a"], "AQ=="])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=10,
)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(["INPUT0", "INPUT1", "x", ""]), texts),
        "dtype": st.one_of(st.integers(-1, 11), st.sampled_from(["DT_INT32", "DT_FLOAT32", "DT_STRING"]), values),
        "shape": st.one_of(st.lists(st.integers(-1, 3), max_size=3), values),
        "flat_int32": st.one_of(st.lists(st.integers(-9, 9), max_size=4), values),
        "flat_float32": st.one_of(st.lists(st.floats(), max_size=4), values),
        "flat_string": st.one_of(st.lists(texts, max_size=4), values),
    },
)
near = st.one_of(
    st.builds(
        lambda model, listed: {"model": model, "gtensors": {"tensors": listed}}, names, st.lists(tensors, max_size=3)
    ),
    st.builds(lambda model, value: {"model": model, "ndarray": value}, names, values),
    st.builds(lambda model, value: {"model": model, "gmap": value}, names, documents),
    st.builds(lambda model, value: {"model": model, "str_data": value}, names, values),
)


def canary(local: Local) -> None:
    """The application answers right."""
    answer = local.call("POST", "/grps/v1/infer/predict", CANARY, {"Content-Type": JSON})
    assert json.loads(answer.body)["str_data"] == "alive"


def judge(answer: Any, method: str) -> None:
    """A success, or a failure whose code is the status of HTTP."""
    if method == "HEAD":
        assert answer.body == b""
        return
    if answer.status == 200 and answer.headers["content-type"] == OCTETS:
        return
    reply = Reply(answer.status, answer.headers, answer.body)
    if answer.status == 200:
        assert reply.json()["status"] == {"code": 200, "msg": "OK", "status": "SUCCESS"}
        return
    assert answer.status in ALLOWED, answer.body[:500]
    assert not INTERNALS.search(reply.refusal())


@fuzzed
@given(
    st.sampled_from(["POST"] * 12 + METHODS),
    paths,
    queries,
    kinds,
    st.one_of(st.binary(max_size=200), near.map(lambda d: json.dumps(d).encode())),
)
def test_any_request_is_answered_in_the_protocol(
    local: Local, method: str, path: str, query: str, kind: str, body: bytes
) -> None:
    """Nothing fits together."""
    judge(local.call(method, f"/grps/v1/{path}{query}", body, {"Content-Type": kind}), method)
    canary(local)


@fuzzed
@given(st.one_of(documents, near), blanks)
def test_any_document_is_answered_in_the_protocol(local: Local, document: Any, blank: bytes) -> None:
    """And the blank space behind it changes nothing."""
    body = json.dumps(document).encode()
    answers = [
        local.call("POST", "/grps/v1/infer/predict", text, {"Content-Type": JSON}) for text in (body, body + blank)
    ]
    for answer in answers:
        judge(answer, "POST")
    assert answers[0].status == answers[1].status
    canary(local)


@fuzzed
@given(st.sampled_from(MODELS), st.binary(min_size=1, max_size=300))
def test_any_bytes_are_answered_in_the_protocol(local: Local, model: str, body: bytes) -> None:
    """As bin_data."""
    judge(local.call("POST", f"/grps/v1/infer/predict?model={model}", body, {"Content-Type": OCTETS}), "POST")
    judge(local.call("POST", f"/grps/v1/infer/predict?model={model}", body, {"Content-Type": JSON}), "POST")
    canary(local)


def pieces() -> Any:
    """Parts of messages, which together are one that nearly fits."""
    made = [
        Message(model=model) for model in MODELS
    ] + [
        Message(str_data="a"), Message(bin_data=b"\xff"), Message(ndarray={}), Message(gmap={"s_i32": {"INPUT0": 1}}),
        Message(gtensors={"tensors": [{"name": "INPUT0", "dtype": 7, "shape": [2], "flat_float32": [1, 2]}]}),
        Message(gtensors={"tensors": [{"dtype": 4, "shape": [1], "flat_int32": [1]}] * 2}),
        Message(gtensors={"tensors": [{"name": "INPUT0", "dtype": 9, "shape": [1], "flat_string": ["a"]}]}),
    ]  # fmt: skip
    return st.lists(
        st.one_of(st.sampled_from([m.SerializeToString() for m in made]), st.binary(max_size=20)), max_size=5
    )


@fuzzed
@given(
    st.sampled_from(GRPS_RPC), pieces().map(b"".join), st.sampled_from([b"", b"\xa2\x06\x80\x80\x02" + bytes(32768)])
)
def test_any_bytes_are_a_message_or_refused(local: Local, method: Any, body: bytes, heavy: bytes) -> None:
    """In the status; a field that nobody knows makes it a large one."""
    if method.rpc.name in ("Online", "Offline"):
        return
    for message in _answers(local, method, heavy + body):
        found = Message.FromString(message)
        assert found.status.status in (1, 2)
        assert (found.status.code == 200) == (found.status.status == 1)
        assert not INTERNALS.search(found.status.msg)
    canary(local)


def _answers(local: Local, method: Any, body: bytes) -> list[bytes]:
    """The answer, or answers, or the refusal."""
    codec = MessageCodec(method, body)

    async def answered() -> Any:
        job: Job[Any] = Job(codec, local.app.registry, Timing())
        return await local.app.dispatcher.answer(job, method.rpc.waits)

    try:
        answer = local.run(answered())
        return [answer] if isinstance(answer, bytes) else list(answer)
    except ServingError as error:
        refused = codec.instead(error)
        assert refused is not None
        return [refused]


@pytest.mark.parametrize("depth", [10, 500, 990, 1010, 5000, 200_000])
@pytest.mark.parametrize(
    "write",
    [
        lambda n: b"[" * n,
        lambda n: b'{"gmap":' * n,
        lambda n: b'{"model":"identity_fp32","ndarray":' + b"[" * n + b"1" + b"]" * n + b"}",
        lambda n: b'{"gtensors":{"tensors":[{"dtype":7,"flat_float32":' + b"[" * n + b"1" + b"]" * n + b"}]}}",
    ],
    ids=["lists", "objects", "ndarray", "data"],
)
def test_any_depth_of_nesting_is_refused(local: Local, write: Any, depth: int) -> None:
    """No recursion ends the process."""
    answer = local.call("POST", "/grps/v1/infer/predict", write(depth), {"Content-Type": JSON})
    if answer.status != 200:
        judge(answer, "POST")
        assert answer.status == 400
    else:
        assert depth <= 32
    canary(local)


def test_documents_of_a_stream_are_split_where_they_end() -> None:
    """The oracle of the other tests."""
    assert split(b'{"a": "}{"}{"b": 1}') == [{"a": "}{"}, {"b": 1}]
