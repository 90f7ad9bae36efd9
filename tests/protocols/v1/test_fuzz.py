"""Anything to every route of /v1: the answer is one of the protocol, and the next request is answered right."""

from __future__ import annotations

import gzip
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocols.v1.strategies import (
    ASKING,
    MODELS,
    asked,
    bodies,
    events,
    headers,
    mutants,
    placed,
    targets,
    values,
)
from tests.support.checks import INTERNALS, LONGEST_TEXT
from tests.support.strategies import METHODS, blanks
from tests.support.v1_client import MODELS as PREFIX
from tests.support.v1_client import alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.asgi import Local
    from tests.support.wire import Answer

fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
ANSWERS = [
    {"predictions"}, {"outputs"}, {"predictions", "outputs"}, {"results"}, {"predictions", "explanations"}, {"models"},
    {"model_version_status"}, {"name", "ready", "model_version_status"}, {"model_spec", "metadata"},
]  # fmt: skip
EVENT = {"specversion", "id", "source", "type", "time"}


def judge(answer: Answer, method: str) -> None:
    """2xx or 4xx of the protocol; 501 and 503 for what a model cannot do."""
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
    """Ask, judge, ask something right."""
    answer = local.call(method, target, body, more)
    judge(answer, method)
    alive(local)
    return answer


@fuzzed
@given(st.sampled_from(METHODS), targets, bodies, headers)
def test_any_method_any_route_any_body_any_header(
    local: Local, method: str, target: str, body: bytes, more: dict[str, str]
) -> None:
    """Nothing fits together."""
    ask(local, method, target, body, more)


@fuzzed
@given(st.sampled_from(MODELS), st.sampled_from(ASKING), st.binary(max_size=500), headers)
def test_any_bytes(local: Local, model: str, verb: str, body: bytes, more: dict[str, str]) -> None:
    """What never was a document."""
    ask(local, "POST", f"{PREFIX}/{model}{verb}", body, more)


@fuzzed
@given(st.sampled_from(MODELS), st.sampled_from(ASKING), values, blanks)
def test_any_json(local: Local, model: str, verb: str, document: Any, blank: bytes) -> None:
    """What never was a request."""
    ask(local, "POST", f"{PREFIX}/{model}{verb}", json.dumps(document).encode() + blank, {})


@fuzzed
@given(st.sampled_from(MODELS), st.sampled_from(["instances", "inputs", "examples"]), values, blanks)
def test_any_json_under_the_right_key(local: Local, model: str, key: str, value: Any, blank: bytes) -> None:
    """What nearly is one."""
    verb = ":regress" if key == "examples" else ":predict"
    ask(local, "POST", f"{PREFIX}/{model}{verb}", json.dumps({key: value}).encode() + blank, {})


def told(answer: Answer) -> tuple[int, object]:
    """What both readers of JSON must agree on: NaN is not equal to itself, so the text."""
    return answer.status, answer.content


@fuzzed
@given(mutants(), blanks)
def test_mutated_requests(local: Local, mutant: tuple[str, dict[str, Any]], blank: bytes) -> None:
    """Nearly right, and the blank space behind changes nothing: neither an answer nor the text of a refusal."""
    target, document = mutant
    body = json.dumps(document).encode()
    answer = ask(local, "POST", f"{PREFIX}/{target}", body + blank, {})
    assert told(answer) == told(local.call("POST", f"{PREFIX}/{target}", body))


@fuzzed
@given(placed, blanks)
def test_any_value_in_any_place_of_any_datatype(local: Local, case: tuple[str, dict[str, Any]], blank: bytes) -> None:
    """Taken or refused, and the same through both readers of JSON."""
    target, document = case
    body = json.dumps(document).encode()
    answer = ask(local, "POST", f"{PREFIX}/{target}", body + blank, {})
    assert told(answer) == told(local.call("POST", f"{PREFIX}/{target}", body))


@fuzzed
@given(asked, blanks)
def test_any_features_for_any_signature(local: Local, case: tuple[str, dict[str, Any]], blank: bytes) -> None:
    """A result per example, or a refusal; the same through both readers."""
    target, document = case
    body = json.dumps(document).encode()
    answer = ask(local, "POST", f"{PREFIX}/{target}", body + blank, {})
    assert told(answer) == told(local.call("POST", f"{PREFIX}/{target}", body))
    if answer.status == HTTPStatus.OK:
        assert len(json.loads(answer.content)["results"]) == len(document["examples"])


@fuzzed
@given(mutants(), st.data())
def test_mutated_compressed_requests(local: Local, mutant: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    """Compressed, and one byte of it flipped or the end cut off."""
    target, document = mutant
    packed = bytearray(gzip.compress(json.dumps(document).encode()))
    if data.draw(st.booleans(), "damage"):
        packed[data.draw(st.integers(0, len(packed) - 1), "at")] ^= data.draw(st.integers(1, 255), "by")
        packed = packed[: data.draw(st.integers(0, len(packed)), "cut")]
    ask(local, "POST", f"{PREFIX}/{target}", bytes(packed), {"Content-Encoding": "gzip"})


@fuzzed
@given(mutants(), events)
def test_mutated_events(local: Local, mutant: tuple[str, dict[str, Any]], event: dict[str, Any]) -> None:
    """A structured event some of whose attributes are missing or wrong."""
    target, document = mutant
    right = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": document}
    body = json.dumps(right | event).encode()
    ask(local, "POST", f"{PREFIX}/{target}", body, {"Content-Type": "application/cloudevents+json"})


@pytest.mark.row("V1-033")
@pytest.mark.parametrize(
    "write",
    [
        lambda n: b"[" * n,
        lambda n: b'{"instances":' * n,
        lambda n: b'{"instances": ' + b"[" * n + b"1.5" + b"]" * n + b"}",
        lambda n: b'{"inputs": {"x": ' + b"[" * n + b"1.5" + b"]" * n + b"}}",
        lambda n: b'{"examples": [{"x": ' + b"[" * n + b"1.5" + b"]" * n + b"}]}",
    ],
    ids=["lists", "objects", "rows", "columns", "examples"],
)
@pytest.mark.parametrize("depth", [100, 500, 990, 1010, 5000, 200_000])
@pytest.mark.parametrize("verb", [":predict", ":regress"])
def test_any_depth_of_nesting(local: Local, write: Callable[[int], bytes], depth: int, verb: str) -> None:
    """No recursion ends the process."""
    answer = ask(local, "POST", f"{PREFIX}/half_plus_two{verb}", write(depth), {})
    assert answer.status == HTTPStatus.BAD_REQUEST
