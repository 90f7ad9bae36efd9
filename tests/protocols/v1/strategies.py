"""What the fuzzers of /v1 send: routes, JSON values, right requests with something changed, numbers as text."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.strategies import MEMBER_DEPTH, codings, nodes, numbers, quoted, texts
from tests.support.zoo.v1 import SETTINGS

LIST: Final = "/v1/models"
MODELS: Final = [
    "half_plus_two",
    "identity_fp32",
    "identity_int64",
    "identity_bytes",
    "identity_bool",
    "seeds",
    "shapes",
    "offset",
    "photo",
    "person",
    "linear",
    "labelled",
    "py_explains",
    "py_untyped",
]
BROKEN: Final = ["broken_onnx", "broken_settings", "py_broken_import", "some_broken"]
PLACES: Final = [
    "",
    "/versions/1",
    "/versions/0",
    "/versions/2",
    "/labels/stable",
    "/labels/x",
    "/versions/x",
    "/metadata",
]
VERBS: Final = ["", ":predict", ":classify", ":regress", ":explain", "%3Apredict", "/metadata", ":", ":predict/"]
ASKING: Final = [":predict", ":classify", ":regress", ":explain"]

names = st.one_of(st.sampled_from([*MODELS, *BROKEN]), quoted, st.text("abc./%-_\\~:@", max_size=9))
targets = st.one_of(
    st.sampled_from(["/v1", "/v1/", LIST, f"{LIST}/", f"{LIST}/:predict", f"{LIST}//versions/1", "/V1/MODELS"]),
    st.builds(
        lambda *parts: f"{LIST}/{''.join(parts)}",
        names,
        st.sampled_from(PLACES),
        st.one_of(st.sampled_from(VERBS), quoted.map(lambda text: f":{text}")),
    ),
    st.builds(lambda name, version: f"{LIST}/{name}/versions/{version}:predict", names, quoted),
    st.builds(lambda name, label: f"{LIST}/{name}/labels/{label}:predict", names, quoted),
    quoted.map(lambda rest: f"/v1/{rest}"),
)
signatures = st.sampled_from(
    ["serving_default", "regress", "classify", "regress_x_to_y", "head", "uneven", "total", ""]
)
words = st.one_of(texts, signatures, st.sampled_from(["x", "weight", "aGk=", "NaN", "\ud800", "\0", "x" * 3000, "*"]))
keys = st.sampled_from(
    ["instances", "inputs", "signature_name", "examples", "context", "x", "y", "b64", "weight", "tag", "INPUT0"]
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(keys, texts), inner, max_size=5),
        words.map(lambda text: {"b64": text}),
    ),
    max_leaves=12,
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.one_of(codings, st.sampled_from(["application/cloudevents+json", "application/json"])),
        "Content-Encoding": codings,
        "Accept": codings,
        **{f"ce-{name}": st.sampled_from(["1.0", "x", "", "\xe9"]) for name in ("id", "source", "type", "specversion")},
    },
)
bodies = st.one_of(st.binary(max_size=200), values.map(lambda value: json.dumps(value).encode()))
events = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "source", "type", "specversion", "data", "data_base64", "time"), values)
)

_SEED: Final = {"tag": "foo", "signal": [1.0, 2.0], "sensor": [[1.0, 2.0], [3.0, 4.0]]}
_PERSON: Final = {"weight": 1.5, "count": 2, "pair": [1, 2], "name": "a"}
VALID: Final[list[tuple[str, dict[str, Any]]]] = [
    ("half_plus_two:predict", {"instances": [1.0, 2.0, 5.0], "signature_name": "serving_default"}),
    ("half_plus_two:predict", {"instances": [[1.0], [2.0]]}),
    ("half_plus_two:predict", {"inputs": [1.0, 2.0]}),
    ("half_plus_two:predict", {"inputs": {"x": 1.0}}),
    ("seeds:predict", {"instances": [_SEED, _SEED]}),
    ("seeds:predict", {"inputs": {name: [value] for name, value in _SEED.items()}}),
    ("shapes:predict", {"instances": [1.0, 2.0], "signature_name": "uneven"}),
    ("offset:predict", {"instances": [{"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 3.0}]}),
    ("offset:predict", {"inputs": {"x": [1.0], "y": 2.0}}),
    ("photo:predict", {"instances": [{"b64": "AAEC"}, {"b64": "AwQF"}]}),
    ("identity_bytes:predict", {"instances": ["a", {"b64": "aGk="}]}),
    ("identity_int64:predict", {"inputs": {"INPUT0": [1, 2]}}),
    ("person:regress", {"signature_name": "regress", "examples": [_PERSON, _PERSON], "context": {"count": 1}}),
    ("person:classify", {"signature_name": "classify", "examples": [_PERSON]}),
    ("linear:explain", {"instances": [[1.0, 2.0, 3.0]]}),
    ("py_explains:explain", {"instances": [[1.0, 2.0]]}),
]


@st.composite
def mutants(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A right request of which up to three parts are replaced, removed, doubled or joined by another member."""
    target, document = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 3))):
        places = nodes(document)
        if not places:
            break
        members = [place for place in places if len(place) <= MEMBER_DEPTH]
        *way, last = draw(st.sampled_from(draw(st.sampled_from([places, members]))))
        parent: Any = document
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
    return target, document


KINDS: Final = ["bool", "uint8", "int16", "int64", "uint64", "fp16", "bf16", "fp32", "fp64", "bytes"]
FORMS: Final = [
    lambda value: {"instances": [value]},
    lambda value: {"instances": [value, value]},
    lambda value: {"instances": [{"INPUT0": value}]},
    lambda value: {"inputs": value},
    lambda value: {"inputs": [value]},
    lambda value: {"inputs": [{"INPUT0": value}]},
    lambda value: {"inputs": {"INPUT0": value}},
    lambda value: {"inputs": {"INPUT0": [value, value]}},
]
"""Where a value may stand."""
elements = st.one_of(numbers, words, st.booleans(), st.none(), words.map(lambda text: {"b64": text}))
placed = st.builds(
    lambda kind, form, value: (f"identity_{kind}:predict", form(value)),
    st.sampled_from(KINDS),
    st.sampled_from(FORMS),
    st.one_of(elements, st.lists(elements, max_size=3), st.lists(st.lists(numbers, max_size=2), max_size=2)),
)
_right = {
    "weight": st.one_of(st.floats(width=32), st.integers(-9, 9), st.floats(width=32).map(lambda value: [value])),
    "count": st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.just([])),
    "pair": st.lists(st.integers(-9, 9), min_size=2, max_size=2),
    "name": st.one_of(texts, texts.map(lambda text: [text]), st.just({"b64": "aGk="})),
}
_wrong = st.dictionaries(
    st.sampled_from([*_right, "other"]), st.one_of(elements, st.lists(elements, max_size=3)), min_size=1, max_size=1
)
_example = st.fixed_dictionaries(
    {"weight": _right["weight"]}, optional={name: right for name, right in _right.items() if name != "weight"}
)
_examples = st.lists(st.one_of(_example, _example, st.builds(dict.__or__, _example, _wrong)), min_size=1, max_size=3)
asked = st.builds(
    lambda signature, examples, context: (
        f"person:{'regress' if signature.startswith('regress') else 'classify'}",
        {"signature_name": signature, "examples": examples, **context},
    ),
    st.sampled_from(list(SETTINGS["person"]["signatures"])),
    _examples,
    st.sampled_from([{}, {}, {"context": {"count": 5}}, {"context": {"weight": "x"}}]),
)
"""Examples that are mostly right, for the verb that the signature is for."""
digits = st.text("0123456789", min_size=1, max_size=40)
decimals = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole.lstrip('0') or '0'}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: f".{text}")),
    st.one_of(st.just(""), st.integers(-400, 300).map(lambda power: f"e{power}")),
)
"""Numbers as JSON writes them."""
