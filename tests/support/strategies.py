"""What the fuzzers send: names, routes, headers, JSON values, and right requests with something changed."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from tests.protocols.v2.bad_requests import good
from tests.support.wire import HEADER_LENGTH, binary_input, json_input, pack

MODELS: Final = [
    "add_sub",
    "identity_fp32",
    "vector_bytes",
    "versions",
    "classifier",
    "three_types",
    "zero_dims",
    "scalar",
]
BROKEN: Final = ["broken_onnx", "broken_settings", "py_broken_import"]
VERBS: Final = [
    "",
    "/ready",
    "/infer",
    "/config",
    "/stats",
    "/versions/1",
    "/versions/2/infer",
    "/versions/1/ready",
    "/generate",
]
PLACES: Final = ["/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/stats"]
METHODS: Final = ["GET", "POST"] * 6 + ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"]
CANARY: Final = json.dumps(good()).encode()

texts = st.text(max_size=12)
quoted = texts.map(lambda text: "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "replace")))
names = st.one_of(st.sampled_from([*MODELS, *BROKEN]), quoted, st.text("abc./%-_\\~:@", max_size=9))
targets = st.one_of(
    st.sampled_from(PLACES),
    st.builds(lambda name, verb: f"/v2/models/{name}{verb}", names, st.one_of(st.sampled_from(VERBS), quoted)),
    st.builds(lambda name, version: f"/v2/models/{name}/versions/{version}/infer", names, quoted),
    st.builds(lambda name, verb: f"/v2/repository/models/{name}/{verb}", names, st.sampled_from(["load", "unload"])),
    st.just("/v2/repository/index"),
    quoted.map(lambda rest: f"/v2/{rest}"),
)
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 1.0, 1e300, -0.0]),
)
words = st.one_of(
    texts,
    st.sampled_from(["INPUT0", "OUTPUT0", "INT32", "FP32", "BYTES", "BF16", "NaN", "\ud800", "\0", "x" * 3000]),
)
keys = st.sampled_from(
    ["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id", "binary_data_size"]
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.one_of(keys, texts), inner, max_size=5)),
    max_leaves=12,
)
lengths = st.one_of(
    st.integers(-2, 3000).map(str), st.integers().map(str), st.text(st.characters(codec="latin-1"), max_size=8)
)
codings = st.one_of(
    st.sampled_from(["gzip", "deflate", "identity", "br", "gzip, gzip", "", "*", "gzip;q=0", "gzip;q=0.5, *;q=0.1"]),
    st.text(st.characters(codec="latin-1"), max_size=12),
)
headers = st.fixed_dictionaries(
    {},
    optional={HEADER_LENGTH: lengths, "Content-Encoding": codings, "Accept-Encoding": codings, "Content-Type": codings},
)
blanks = st.sampled_from([b"", b" " * 10_000])
"""Behind a document: long texts have readers of their own."""
bodies = st.one_of(st.binary(max_size=200), values.map(lambda value: json.dumps(value).encode()), st.just(CANARY))


def valid() -> list[dict[str, Any]]:
    """Right requests, as (model, document) to start from."""
    x = json_input("x", "INT64", np.array([0]))
    scores = json_input("features", "FP32", np.array([0.5, 1.5], np.float32))
    outputs = [{"name": "scores", "parameters": {"classification": 1, "binary_data": True}}]
    rest = {"id": "1", "parameters": {"binary_data_output": True}}
    three = [
        json_input("integers", "INT32", np.array([1], np.int32)),
        json_input("text", "BYTES", np.array([b"a"], object)),
        json_input("flags", "BOOL", np.array([True])),
    ]
    return [
        {"model": "add_sub", "document": {**good(), **rest, "outputs": [{"name": "OUTPUT1"}]}},
        {
            "model": "identity_fp32",
            "document": {"inputs": [json_input("INPUT0", "FP32", np.ones((2, 2), np.float32), nested=True)]},
        },
        {"model": "versions", "document": {"inputs": [x]}},
        {"model": "classifier", "document": {"inputs": [scores], "outputs": outputs}},
        {"model": "three_types", "document": {"inputs": three, **rest}},
    ]


VALID: Final = valid()


MEMBER_DEPTH: Final = 3
"""("inputs", 0, "shape")"""


def nodes(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every part of a document but itself."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [found for key, value in items for found in ((*path, key), *nodes(value, (*path, key)))]


@st.composite
def mutants(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A right request of which up to three parts are replaced, removed, doubled or joined by another member."""
    case = copy.deepcopy(draw(st.sampled_from(VALID)))
    document = case["document"]
    for _ in range(draw(st.integers(1, 3))):
        places = nodes(document)
        if not places:
            break
        # The members are more interesting than each of many elements.
        members = [place for place in places if len(place) <= MEMBER_DEPTH]
        *way, last = draw(st.sampled_from(draw(st.sampled_from([places, members, members]))))
        parent = document
        for step in way:
            parent = parent[step]
        change = draw(st.sampled_from(["replace", "replace", "remove", "double", "add"]))
        if change == "replace":
            parent[last] = draw(values)
        elif change == "remove":
            del parent[last]
        elif isinstance(parent, list):
            parent.append(parent[last] if change == "double" else draw(values))
        else:
            parent[draw(keys)] = draw(values) if change == "add" else parent[last]
    return case["model"], document


@st.composite
def binaries(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """A binary request of add_sub with another JSON, other parts or another length."""
    pairs = [binary_input(f"INPUT{i}", "INT32", np.arange(16, dtype=np.int32)) for i in (0, 1)]
    document: Any = {"inputs": [head for head, _ in pairs], "parameters": {"binary_data_output": draw(st.booleans())}}
    if draw(st.booleans()):
        *way, last = draw(st.sampled_from(nodes(document)))
        parent = document
        for step in way:
            parent = parent[step]
        parent[last] = draw(values)
    parts = [part for _, part in pairs]
    if draw(st.booleans()):
        parts[draw(st.integers(0, 1))] = draw(st.binary(max_size=100))
    body, more = pack(document, parts)
    if draw(st.booleans()):
        more[HEADER_LENGTH] = draw(lengths)
    return body, more


@st.composite
def element_lists(draw: st.DrawFn) -> tuple[str, bytes]:
    """Any elements, in any nesting, for any datatype and a shape that may fit."""
    kind = draw(st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "uint64", "fp16", "fp32", "fp64", "bytes"]))
    elements = draw(
        st.lists(st.one_of(numbers, words, st.booleans(), st.none(), st.lists(numbers, max_size=3)), max_size=5)
    )
    shape = draw(st.one_of(st.just([len(elements)]), st.lists(st.one_of(st.integers(0, 3), numbers), max_size=3)))
    head = {"name": "INPUT0", "datatype": kind.upper(), "shape": shape, "data": elements}
    return f"identity_{kind}", json.dumps({"inputs": [head]}).encode()
