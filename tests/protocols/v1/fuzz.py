"""V1's attacks send anything to every route, correct requests with a change, and numbers as text."""

import gzip
import json
from http import HTTPStatus
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.asgi import Local
from tests.support.checks import INTERNALS, LONGEST_TEXT
from tests.support.strategies import (
    METHODS,
    Attack,
    blanks,
    codings,
    damaged,
    json_values,
    mutants,
    numbers,
    odd_names,
    odd_words,
    quoted,
    texts,
)  # fmt: skip
from tests.support.v1_client import alive
from tests.support.wire import Answer
from tests.support.zoo.v1 import SETTINGS

LIST: Final = "/v1/models"
MODELS: Final = [
    "half_plus_two", "identity_fp32", "identity_int64", "identity_bytes", "identity_bool", "seeds", "shapes", "offset",
    "photo", "person", "linear", "labelled", "py_explains", "py_untyped",
]  # fmt: skip
BROKEN: Final = ["broken_onnx", "broken_settings", "py_broken_import", "some_broken"]
PLACES: Final = [
    "", "/versions/1", "/versions/0", "/versions/2", "/labels/stable", "/labels/x", "/versions/x", "/metadata",
]  # fmt: skip
VERBS: Final = ["", ":predict", ":classify", ":regress", ":explain", "%3Apredict", "/metadata", ":", ":predict/"]
ASKING: Final = [":predict", ":classify", ":regress", ":explain"]

names = st.one_of(st.sampled_from([*MODELS, *BROKEN]), quoted, odd_names)
targets = st.one_of(
    st.sampled_from(["/v1", "/v1/", LIST, f"{LIST}/", f"{LIST}/:predict", f"{LIST}//versions/1", "/V1/MODELS"]),
    st.builds(lambda *parts: f"{LIST}/{''.join(parts)}", names, st.sampled_from(PLACES),
              st.one_of(st.sampled_from(VERBS), quoted.map(lambda text: f":{text}"))),
    st.builds(lambda name, version: f"{LIST}/{name}/versions/{version}:predict", names, quoted),
    st.builds(lambda name, label: f"{LIST}/{name}/labels/{label}:predict", names, quoted),
    quoted.map(lambda rest: f"/v1/{rest}"),
)  # fmt: skip
signatures = st.sampled_from(
    ["serving_default", "regress", "classify", "regress_x_to_y", "head", "uneven", "total", ""]
)
words = st.one_of(texts, signatures, odd_words, st.sampled_from(["x", "weight", "aGk=", "*"]))
keys = st.sampled_from(
    ["instances", "inputs", "signature_name", "examples", "context", "x", "y", "b64", "weight", "tag", "INPUT0"]
)
values = json_values(words, keys, words.map(lambda text: {"b64": text}))
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
    ("half_plus_two:predict", {"instances": [[1.0], [2.0]]}), ("half_plus_two:predict", {"inputs": [1.0, 2.0]}),
    ("half_plus_two:predict", {"inputs": {"x": 1.0}}), ("seeds:predict", {"instances": [_SEED, _SEED]}),
    ("seeds:predict", {"inputs": {name: [value] for name, value in _SEED.items()}}),
    ("shapes:predict", {"instances": [1.0, 2.0], "signature_name": "uneven"}),
    ("offset:predict", {"instances": [{"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 3.0}]}),
    ("offset:predict", {"inputs": {"x": [1.0], "y": 2.0}}),
    ("photo:predict", {"instances": [{"b64": "AAEC"}, {"b64": "AwQF"}]}),
    ("identity_bytes:predict", {"instances": ["a", {"b64": "aGk="}]}),
    ("identity_int64:predict", {"inputs": {"INPUT0": [1, 2]}}),
    ("person:regress", {"signature_name": "regress", "examples": [_PERSON, _PERSON], "context": {"count": 1}}),
    ("person:classify", {"signature_name": "classify", "examples": [_PERSON]}),
    ("linear:explain", {"instances": [[1.0, 2.0, 3.0]]}), ("py_explains:explain", {"instances": [[1.0, 2.0]]}),
]  # fmt: skip


mutated = mutants(VALID, values, keys)
KINDS: Final = ["bool", "uint8", "int16", "int64", "uint64", "fp16", "bf16", "fp32", "fp64", "bytes"]
FORMS: Final = [
    lambda value: {"instances": [value]}, lambda value: {"instances": [value, value]},
    lambda value: {"instances": [{"INPUT0": value}]}, lambda value: {"inputs": value},
    lambda value: {"inputs": [value]}, lambda value: {"inputs": [{"INPUT0": value}]},
    lambda value: {"inputs": {"INPUT0": value}}, lambda value: {"inputs": {"INPUT0": [value, value]}},
]  # fmt: skip
"""The places where a value may stand."""
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
    lambda signature, examples, context: (f"person:{'regress' if signature.startswith('regress') else 'classify'}",
                                          {"signature_name": signature, "examples": examples, **context}),
    st.sampled_from(list(SETTINGS["person"]["signatures"])), _examples,
    st.sampled_from([{}, {}, {"context": {"count": 5}}, {"context": {"weight": "x"}}]),
)  # fmt: skip
"""Examples that are mostly correct, for the verb of the signature."""
digits = st.text("0123456789", min_size=1, max_size=40)
decimals = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole.lstrip('0') or '0'}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: f".{text}")),
    st.one_of(st.just(""), st.integers(-400, 300).map(lambda power: f"e{power}")),
)
"""Numbers as JSON writes them."""

ANSWERS = [
    {"predictions"}, {"outputs"}, {"predictions", "outputs"}, {"results"}, {"predictions", "explanations"}, {"models"},
    {"model_version_status"}, {"name", "ready", "model_version_status"}, {"model_spec", "metadata"},
]  # fmt: skip
EVENT = {"specversion", "id", "source", "type", "time"}


def judge(answer: Answer, method: str) -> None:
    """Asserts 2xx or 4xx of the protocol, and 501 and 503 where a model cannot answer."""
    allowed = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.SERVICE_UNAVAILABLE}
    assert answer.status < HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in allowed, answer.content[:500]
    assert not HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
    if method == "HEAD":
        assert answer.body == b""
        return
    document = json.loads(answer.content.decode("utf-8"))
    if answer.headers["content-type"] == "application/cloudevents+json":
        assert set(document) >= EVENT
        document = document["data"]
    else:
        assert answer.headers["content-type"] == "application/json"
    if "error" not in document:
        assert answer.status in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}
        assert set(document) in ANSWERS
        return
    assert answer.status >= HTTPStatus.BAD_REQUEST
    assert list(document) == ["error"]
    assert document["error"].strip()
    assert len(document["error"]) < LONGEST_TEXT
    assert not INTERNALS.search(document["error"]), document


def ask(local: Local, method: str, target: str, body: bytes, more: dict[str, str]) -> Answer:
    """Returns the answer, which is judged; afterwards the application answers correctly."""
    target = target if target.startswith("/") else f"{LIST}/{target}"
    answer = local.call(method, target, body, more)
    judge(answer, method)
    alive(local)
    return answer


def in_both_lengths(local: Local, case: tuple[str, dict[str, Any]], blank: bytes) -> None:
    """Asserts that trailing blank space changes nothing, not even a refusal's text; results are as many as examples."""
    target, document = case
    body = json.dumps(document).encode()
    answer, short = (ask(local, "POST", target, text, {}) for text in (body + blank, body))
    assert (answer.status, answer.content) == (short.status, short.content)  # NaN is not equal to itself: the text
    if target.startswith("person:") and answer.status == HTTPStatus.OK and isinstance(document.get("examples"), list):
        assert len(json.loads(answer.content)["results"]) == len(document["examples"])


def event(local: Local, mutant: tuple[str, dict[str, Any]], members: dict[str, Any]) -> None:
    """Sends a structured event with some missing or wrong attributes."""
    right = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": mutant[1]}
    headers = {"Content-Type": "application/cloudevents+json"}
    ask(local, "POST", mutant[0], json.dumps(right | members).encode(), headers)


@st.composite
def compressed(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    """Makes a nearly correct compressed body with one flipped byte or a truncated end."""
    target, document = draw(mutated)
    packed = draw(damaged(st.just(gzip.compress(json.dumps(document).encode()))))
    return "POST", target, packed, {"Content-Encoding": "gzip"}


def documents(target: Any, document: Any) -> Any:
    """Returns posts of documents with blank space behind them."""
    return st.builds(
        lambda to, value, blank: ("POST", to, json.dumps(value).encode() + blank, {}), target, document, blanks
    )


verbs = st.builds(lambda model, verb: model + verb, st.sampled_from(MODELS), st.sampled_from(ASKING))
keyed = st.builds(lambda key, value: {key: value}, st.sampled_from(["instances", "inputs"]), values)
predicted = st.sampled_from(MODELS).map(lambda model: f"{model}:predict")
regressed = st.sampled_from(MODELS).map(lambda model: f"{model}:regress")
ATTACKS: Final = {
    "any_method_route_body_and_header": Attack(st.tuples(st.sampled_from(METHODS), targets, bodies, headers), ask),
    "any_bytes": Attack(st.tuples(st.just("POST"), verbs, st.binary(max_size=500), headers), ask),
    "any_json": Attack(documents(verbs, values), ask),
    "any_json_under_the_right_key": Attack(
        st.one_of(documents(predicted, keyed), documents(predicted, keyed),
                  documents(regressed, values.map(lambda value: {"examples": value}))), ask),
    "mutated_documents": Attack(st.tuples(mutated, blanks), in_both_lengths),
    "any_value_in_any_place_of_any_datatype": Attack(st.tuples(placed, blanks), in_both_lengths),
    "any_features_for_any_signature": Attack(st.tuples(asked, blanks), in_both_lengths),
    "mutated_compressed": Attack(compressed(), ask),
    "mutated_events": Attack(st.tuples(mutated, events), event),
}  # fmt: skip
DEEP: Final = {
    "lists": lambda n: b"[" * n,
    "objects": lambda n: b'{"instances":' * n,
    "rows": lambda n: b'{"instances": ' + b"[" * n + b"1.5" + b"]" * n + b"}",
    "columns": lambda n: b'{"inputs": {"x": ' + b"[" * n + b"1.5" + b"]" * n + b"}}",
    "examples": lambda n: b'{"examples": [{"x": ' + b"[" * n + b"1.5" + b"]" * n + b"}]}",
}


def dive(local: Local, body: bytes, depth: int) -> None:
    """Asserts that both verbs refuse a document that is deeper than a tensor."""
    for verb in (":predict", ":regress"):
        answer = ask(local, "POST", f"half_plus_two{verb}", body, {})
        assert answer.status == HTTPStatus.BAD_REQUEST or depth <= 10
