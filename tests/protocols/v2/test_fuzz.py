"""Anything to every V2 route: the answer is one of the protocol, and the next request is answered right."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.checks import INTERNALS
from tests.support.strategies import (
    CANARY,
    METHODS,
    MODELS,
    binaries,
    blanks,
    bodies,
    codings,
    element_lists,
    headers,
    mutants,
    targets,
    values,
)
from tests.support.wire import COMPRESS, HEADER_LENGTH, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.asgi import Local
    from tests.support.wire import Answer

fuzzed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def canary(local: Local) -> None:
    """The application answers right."""
    answer = local.call("POST", "/v2/models/add_sub/infer", CANARY)
    assert answer.tensors()["OUTPUT0"].tolist() == [2 * i for i in range(16)]


def judge(answer: Answer, target: str, method: str) -> None:
    """2xx or 4xx of the protocol; 503 only from a model that cannot load."""
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
    """Ask, judge, ask the canary."""
    answer = local.call(method, target, body, more)
    judge(answer, target, method)
    canary(local)
    return answer


@fuzzed
@given(st.sampled_from(METHODS), targets, bodies, headers)
def test_any_method_any_route_any_body_any_header(
    local: Local, method: str, target: str, body: bytes, more: dict[str, str]
) -> None:
    """Nothing fits together."""
    ask(local, method, target, body, more)


@fuzzed
@given(st.sampled_from(MODELS), st.binary(max_size=500), headers)
def test_any_bytes_to_infer(local: Local, model: str, body: bytes, more: dict[str, str]) -> None:
    """What never was a document, or never was compressed."""
    ask(local, "POST", f"/v2/models/{model}/infer", body, more)


@fuzzed
@given(st.sampled_from(MODELS), values, blanks)
def test_any_json_to_infer(local: Local, model: str, document: Any, blank: bytes) -> None:
    """What never was a request."""
    ask(local, "POST", f"/v2/models/{model}/infer", json.dumps(document).encode() + blank, {})


@fuzzed
@given(st.sampled_from(["index", "models/versions/load", "models/versions/unload", "models/broken_onnx/load"]), values)
def test_any_json_to_the_repository(local: Local, place: str, document: Any) -> None:
    """Index, load and unload."""
    ask(local, "POST", f"/v2/repository/{place}", json.dumps(document).encode(), {})


@fuzzed
@given(mutants(), blanks)
def test_mutated_requests(local: Local, mutant: tuple[str, dict[str, Any]], blank: bytes) -> None:
    """Nearly right, and the blank space behind changes no answer."""
    model, document = mutant
    body = json.dumps(document).encode()
    answer = ask(local, "POST", f"/v2/models/{model}/infer", body + blank, {})
    assert answer.status == local.call("POST", f"/v2/models/{model}/infer", body).status


@fuzzed
@given(mutants(), st.sampled_from(["gzip", "deflate"]), codings, st.data())
def test_mutated_compressed_requests(
    local: Local, mutant: tuple[str, dict[str, Any]], coding: str, accepted: str, data: st.DataObject
) -> None:
    """Nearly right, compressed, and one byte of it flipped or the end cut off."""
    model, document = mutant
    packed = bytearray(COMPRESS[coding](json.dumps(document).encode()))
    if data.draw(st.booleans(), "damage"):
        packed[data.draw(st.integers(0, len(packed) - 1), "at")] ^= data.draw(st.integers(1, 255), "by")
        packed = packed[: data.draw(st.integers(0, len(packed)), "cut")]
    more = {"Content-Encoding": coding, "Accept-Encoding": accepted}
    ask(local, "POST", f"/v2/models/{model}/infer", bytes(packed), more)


@fuzzed
@given(binaries())
def test_mutated_binary_requests(local: Local, binary: tuple[bytes, dict[str, str]]) -> None:
    """Nearly right, with parts."""
    body, more = binary
    ask(local, "POST", "/v2/models/add_sub/infer", body, more)


@fuzzed
@given(element_lists(), blanks)
def test_any_elements_for_any_datatype(local: Local, asked: tuple[str, bytes], blank: bytes) -> None:
    """As many elements as the shape says, in their own type, and the same through both readers of JSON."""
    model, body = asked
    answer = ask(local, "POST", f"/v2/models/{model}/infer", body + blank, {})
    short = local.call("POST", f"/v2/models/{model}/infer", body)
    assert (answer.status, short.status) in {(200, 200), (400, 400)}
    if short.status == HTTPStatus.OK:
        assert same(answer.tensor(), short.tensor())


@pytest.mark.parametrize(
    "write",
    [
        lambda n: b"[" * n,
        lambda n: b'{"inputs":' * n,
        lambda n: b'{"inputs": [{"data": ' + b"[" * n + b"1" + b"]" * n + b"}]}",
    ],
    ids=["lists", "objects", "data"],
)
@pytest.mark.parametrize("depth", [10, 500, 990, 1010, 5000, 200_000])
def test_any_depth_of_nesting(local: Local, write: Callable[[int], bytes], depth: int) -> None:
    """No recursion ends the process."""
    assert ask(local, "POST", "/v2/models/add_sub/infer", write(depth), {}).status == HTTPStatus.BAD_REQUEST
