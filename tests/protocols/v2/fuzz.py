"""V2's attacks send anything to every route, and correct inferences with a change."""

import copy
import json
from http import HTTPStatus
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from tests.protocols.v2.bad_requests import good
from tests.support.asgi import Local
from tests.support.checks import INTERNALS
from tests.support.strategies import (
    BROKEN,
    METHODS,
    MODELS,
    Attack,
    blanks,
    codings,
    damaged,
    lengths,
    mutants,
    nodes,
    numbers,
    odd_names,
    parent_of,
    quoted,
    v2_keys,
    v2_words,
    values,
)  # fmt: skip
from tests.support.wire import COMPRESS, HEADER_LENGTH, Answer, binary_input, json_input, pack, same

VERBS: Final = [
    "", "/ready", "/infer", "/config", "/stats", "/versions/1", "/versions/2/infer", "/versions/1/ready", "/generate",
]  # fmt: skip
PLACES: Final = ["/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/stats"]
CANARY: Final = json.dumps(good()).encode()

names = st.one_of(st.sampled_from([*MODELS, *BROKEN]), quoted, odd_names)
targets = st.one_of(
    st.sampled_from(PLACES),
    st.builds(lambda name, verb: f"/v2/models/{name}{verb}", names, st.one_of(st.sampled_from(VERBS), quoted)),
    st.builds(lambda name, version: f"/v2/models/{name}/versions/{version}/infer", names, quoted),
    st.builds(lambda name, verb: f"/v2/repository/models/{name}/{verb}", names, st.sampled_from(["load", "unload"])),
    st.just("/v2/repository/index"),
    quoted.map(lambda rest: f"/v2/{rest}"),
)
header_maps = st.fixed_dictionaries(
    {},
    optional={HEADER_LENGTH: lengths, "Content-Encoding": codings, "Accept-Encoding": codings, "Content-Type": codings},
)
encoded = values.map(lambda value: json.dumps(value).encode())
bodies = st.one_of(st.binary(max_size=200), encoded, st.just(CANARY))
inferences = st.sampled_from(MODELS).map(lambda model: f"/v2/models/{model}/infer")


def valid() -> list[tuple[str, dict[str, Any]]]:
    """Returns correct requests, as (target, document) to start from."""
    x = json_input("x", "INT64", np.array([0]))
    scores = json_input("features", "FP32", np.array([0.5, 1.5], np.float32))
    outputs = [{"name": "scores", "parameters": {"classification": 1, "binary_data": True}}]
    rest = {"id": "1", "parameters": {"binary_data_output": True}}
    three = [
        json_input("integers", "INT32", np.array([1], np.int32)),
        json_input("text", "BYTES", np.array([b"a"], object)),
        json_input("flags", "BOOL", np.array([True])),
    ]
    matrix = json_input("INPUT0", "FP32", np.ones((2, 2), np.float32), nested=True)
    documents = {
        "add_sub": {**good(), **rest, "outputs": [{"name": "OUTPUT1"}]}, "identity_fp32": {"inputs": [matrix]},
        "versions": {"inputs": [x]}, "classifier": {"inputs": [scores], "outputs": outputs},
        "three_types": {"inputs": three, **rest},
    }  # fmt: skip
    return [(f"/v2/models/{model}/infer", document) for model, document in documents.items()]


mutated = mutants(valid(), values, v2_keys)


@st.composite
def compressed(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    """Returns a nearly correct compressed body with one flipped byte or a truncated end."""
    target, document = draw(mutated)
    coding = draw(st.sampled_from(["gzip", "deflate"]))
    packed = draw(damaged(st.just(COMPRESS[coding](json.dumps(document).encode()))))
    return "POST", target, packed, {"Content-Encoding": coding, "Accept-Encoding": draw(codings)}


@st.composite
def binaries(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    """Returns a binary request of add_sub with another JSON, other parts or another length."""
    pairs = [binary_input(f"INPUT{i}", "INT32", np.arange(16, dtype=np.int32)) for i in (0, 1)]
    heads = copy.deepcopy([head for head, _ in pairs])
    document: Any = {"inputs": heads, "parameters": {"binary_data_output": draw(st.booleans())}}
    if draw(st.booleans()):
        *way, last = draw(st.sampled_from(nodes(document)))
        parent_of(document, way)[last] = draw(values)
    parts = [part for _, part in pairs]
    if draw(st.booleans()):
        parts[draw(st.integers(0, 1))] = draw(st.binary(max_size=100))
    body, more = pack(document, parts)
    if draw(st.booleans()):
        more[HEADER_LENGTH] = draw(lengths)
    return "POST", "/v2/models/add_sub/infer", body, more


@st.composite
def element_lists(draw: st.DrawFn) -> tuple[str, bytes]:
    """Returns any elements, in any nesting, for any datatype and a shape that may fit."""
    kind = draw(st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "uint64", "fp16", "fp32", "fp64", "bytes"]))
    each = st.one_of(numbers, v2_words, st.booleans(), st.none(), st.lists(numbers, max_size=3))
    elements = draw(st.lists(each, max_size=5))
    shape = draw(st.one_of(st.just([len(elements)]), st.lists(st.one_of(st.integers(0, 3), numbers), max_size=3)))
    head = {"name": "INPUT0", "datatype": kind.upper(), "shape": shape, "data": elements}
    return f"/v2/models/identity_{kind}/infer", json.dumps({"inputs": [head]}).encode()


def judge(answer: Answer, target: str, method: str) -> None:
    """Asserts 2xx or 4xx of the protocol, and 503 only for a model that cannot load."""
    assert answer.status < HTTPStatus.INTERNAL_SERVER_ERROR or (
        answer.status == HTTPStatus.SERVICE_UNAVAILABLE and target.startswith(("/v2/models/", "/v2/repository/"))
    ), (answer.status, answer.content[:500])
    assert not HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
    if method == "HEAD":
        assert answer.body == b""
        return
    kind = answer.headers["content-type"]
    if HEADER_LENGTH.lower() in answer.headers:
        assert (answer.status, kind) == (HTTPStatus.OK, "application/octet-stream")
        answer.tensors()
        return
    assert kind == "application/json"
    document = answer.json()
    if answer.status >= HTTPStatus.BAD_REQUEST:
        assert isinstance(document["error"], str)
        assert document["error"].strip()
        assert not INTERNALS.search(document["error"]), document
    elif target.partition("?")[0].endswith("/infer"):
        answer.tensors()


def ask(local: Local, method: str, target: str, body: bytes, more: dict[str, str]) -> Answer:
    """Returns the answer, which is judged; afterwards the application answers correctly."""
    answer = local.call(method, target, body, more)
    judge(answer, target, method)
    right = local.call("POST", "/v2/models/add_sub/infer", CANARY)
    assert right.tensors()["OUTPUT0"].tolist() == [2 * i for i in range(16)]
    return answer


def in_both_lengths(local: Local, asked: tuple[str, Any], blank: bytes) -> None:
    """Asserts that the blank space behind a document changes no status."""
    body = json.dumps(asked[1]).encode()
    answer = ask(local, "POST", asked[0], body + blank, {})
    assert answer.status == local.call("POST", asked[0], body).status


def through_both_readers(local: Local, asked: tuple[str, bytes], blank: bytes) -> None:
    """Asserts that both readers of JSON take the same elements, as many as the shape says."""
    answer = ask(local, "POST", asked[0], asked[1] + blank, {})
    short = local.call("POST", *asked)
    assert (answer.status, short.status) in {(200, 200), (400, 400)}
    if short.status == HTTPStatus.OK:
        assert same(answer.tensor(), short.tensor())


repository = st.sampled_from(["index", "models/versions/load", "models/versions/unload", "models/broken_onnx/load"])
ATTACKS: Final = {
    "any_method_route_body_and_header": Attack(st.tuples(st.sampled_from(METHODS), targets, bodies, header_maps), ask),
    "any_bytes": Attack(st.tuples(st.just("POST"), inferences, st.binary(max_size=500), header_maps), ask),
    "any_json": Attack(st.tuples(inferences, values, blanks).map(
        lambda each: ("POST", each[0], json.dumps(each[1]).encode() + each[2], {})), ask),
    "any_json_to_the_repository": Attack(st.tuples(
        st.just("POST"), repository.map(lambda place: f"/v2/repository/{place}"), encoded, st.just({})), ask),
    "mutated_documents": Attack(st.tuples(mutated, blanks), in_both_lengths),
    "mutated_compressed": Attack(compressed(), ask),
    "mutated_binaries": Attack(binaries(), ask),
    "any_elements_for_any_datatype": Attack(st.tuples(element_lists(), blanks), through_both_readers),
}  # fmt: skip
PATH: Final = "/v2/models/add_sub/infer"
DEEP: Final = {
    "lists": lambda n: b"[" * n,
    "objects": lambda n: b'{"inputs":' * n,
    "data": lambda n: b'{"inputs": [{"data": ' + b"[" * n + b"1" + b"]" * n + b"}]}",
}


def dive(local: Local, body: bytes, depth: int) -> None:
    """Asserts that a document of this depth is refused."""
    assert ask(local, "POST", PATH, body, {}).status == HTTPStatus.BAD_REQUEST
