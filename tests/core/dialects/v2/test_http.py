"""core.dialects.v2.http and v2_infer by themselves: what a request decodes to, and how results are phrased.

What clients see of them through a server is in tests/conformance.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from core import operations as ops
from core.dialects.v2 import infer as v2_infer
from core.dialects.v2.http import V2
from core.dtype import DATATYPES
from core.errors import InvalidInput
from core.operations import InferResult
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpRequest, HttpResponse, Options, Router

HEADER = b"inference-header-content-length"
PATH = {"model": "m"}
X = {"name": "x", "shape": [2], "datatype": "FP32"}
RAW = np.array([1, 2], "<f4").tobytes()


def post(body: Any, *, tail: bytes = b"", **options: bool) -> Call:
    """An inference request of an object, and of binary parts behind it."""
    head = json.dumps(body).encode()
    headers = {HEADER: b"%d" % len(head)} if tail else {}
    return Call(HttpRequest("POST", "/v2/models/m/infer", headers, head + tail, Options(**options)), PATH)  # type: ignore[arg-type] # a bool


def result(datatype: str, elements: Any) -> InferResult:
    """One output `y`."""
    row = DATATYPES[datatype]
    array = np.empty(len(elements), row.numpy)
    array[:] = elements
    return InferResult("m", "1", (Tensor("y", row, array),))


def told(response: HttpResponse) -> Any:
    """The answer's JSON."""
    return json.loads(b"".join(response.parts))


def ask(method: str, path: str, body: bytes = b"") -> tuple[Any, Any]:
    """The operation and the reply of a route."""
    route, values = Router(V2).find(method, path)
    return route.decode(Call(HttpRequest(method, path, {}, body), values))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body is .*expected an object"),
        ({}, "'inputs' is null"),
        ({"inputs": {}}, "'inputs' is {}"),
        ({"inputs": [1]}, r"inputs\[0\] is 1"),
        ({"inputs": [{}]}, r"'name' of inputs\[0\] is null"),
        ({"id": 1, "inputs": []}, "'id' is 1"),
        ({"parameters": 1, "inputs": []}, "'parameters' of the request is 1"),
        ({"parameters": {"binary_data_output": 1}, "inputs": []}, "'binary_data_output' of the request is 1"),
        ({"inputs": [X | {"datatype": "FLOAT"}]}, "'datatype' of input 'x' is 'FLOAT'; expected one of BOOL"),
        ({"inputs": [X | {"datatype": 1}]}, "'datatype' of input 'x' is 1"),
        ({"inputs": [X]}, "neither 'data' nor 'binary_data_size'"),
        ({"inputs": [X | {"parameters": {"binary_data_size": -1}}]}, "'binary_data_size' of input 'x' is -1"),
        ({"inputs": [X | {"parameters": {"binary_data_size": 8}, "data": [1, 2]}]}, "both 'data' and"),
        ({"inputs": [X | {"parameters": {"binary_data_size": 8}}]}, "needs 8 bytes of binary data; 0 are left"),
        ({"inputs": [X | {"parameters": {"shared_memory_region": "r"}}]}, "shares no memory"),
        ({"inputs": [X | {"datatype": "BF16", "data": [1, 2]}]}, "BF16, which JSON numbers cannot carry"),
        ({"inputs": [], "outputs": {}}, "'outputs' is {}"),
        ({"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 0}}]}, "'classification' of output"),
        ({"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]}, "'binary_data' of output"),
    ],
)
def test_what_is_wrong_in_a_body_is_named(body: Any, message: str) -> None:
    """Member, value, expectation."""
    with pytest.raises(InvalidInput, match=message):
        v2_infer.decode(post(body))


def test_a_number_that_a_double_may_have_changed_is_read_again() -> None:
    """In a long list of numbers that holds a fraction, and for integers of more than 64 bits."""
    x = {"name": "x", "shape": [3000], "datatype": "INT64", "data": [2**53 + 1, 1.0] + [7] * 2998}
    operation, _ = v2_infer.decode(post({"inputs": [x]}))
    assert operation.inputs[0].array[:2].tolist() == [2**53 + 1, 1]
    with pytest.raises(InvalidInput, match="has 18446744073709551616, which is out of range for UINT64"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "UINT64", "data": [1, 2**64]}]}))
    with pytest.raises(InvalidInput, match=r"has 1e\+300 where INT64 needs integers"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "INT64", "data": [1, 1e300]}]}))


def test_binary_parts_follow_in_the_order_of_their_inputs() -> None:
    """JSON inputs between them take none."""
    size = {"parameters": {"binary_data_size": 8}}
    body = {"inputs": [X | size, X | {"name": "j", "data": [5, 6]}, X | {"name": "b"} | size]}
    operation, _ = v2_infer.decode(post(body, tail=RAW + RAW[::-1]))
    assert [t.array.tobytes() for t in operation.inputs] == [RAW, np.array([5, 6], "<f4").tobytes(), RAW[::-1]]


def test_a_binary_part_without_a_size_has_the_shapes() -> None:
    """OVMS's clients leave it out; text cannot."""
    operation, _ = v2_infer.decode(post({"inputs": [X]}, tail=RAW))
    assert operation.inputs[0].array.tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="BYTES and needs 'binary_data_size'"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "BYTES"}]}, tail=RAW))
    with pytest.raises(InvalidInput, match="1 bytes follow the last binary input"):
        v2_infer.decode(post({"inputs": [X]}, tail=RAW + b"x"))


def test_a_header_length_beyond_the_body_is_refused() -> None:
    """With both numbers."""
    call = Call(HttpRequest("POST", "/", {HEADER: b"3"}, b"{}"), PATH)
    with pytest.raises(InvalidInput, match="is 3, but the body has 2 bytes"):
        v2_infer.decode(call)


def test_a_raw_request_is_answered_in_binary() -> None:
    """The body is the input, whatever it is."""
    operation, reply = v2_infer.decode(Call(HttpRequest("POST", "/", {HEADER: b"0"}, b"abc"), PATH))
    assert operation.raw == b"abc"
    assert dict(reply(result("FP32", [1, 2])).headers)[b"content-type"] == b"application/octet-stream"


def test_an_answer_has_no_member_without_a_value() -> None:
    """An id only if there was one."""
    _, reply = v2_infer.decode(post({"inputs": []}))
    output = {"name": "y", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
    assert told(reply(result("FP32", [1, 2]))) == {"model_name": "m", "model_version": "1", "outputs": [output]}
    _, reply = v2_infer.decode(post({"inputs": [], "id": ""}))
    assert told(reply(result("FP32", [1, 2])))["id"] == ""


def test_an_outputs_own_wish_goes_over_the_requests() -> None:
    """And the request's holds for outputs that wish nothing."""
    wish = {"parameters": {"binary_data": False}}
    for outputs, binary in ([{"name": "y"}], True), ([{"name": "y"} | wish], False):
        body = {"inputs": [], "outputs": outputs, "parameters": {"binary_data_output": True}}
        _, reply = v2_infer.decode(post(body))
        assert (HEADER in dict(reply(result("FP32", [1, 2])).headers)) is binary


def test_what_json_cannot_carry_is_refused_with_the_remedy() -> None:
    """Bits of BF16, bytes that are no text."""
    _, reply = v2_infer.decode(post({"inputs": []}))
    for datatype, element in (("BF16", 1), ("BYTES", b"\xff")):
        with pytest.raises(InvalidInput, match="ask for binary data"):
            reply(result(datatype, [element]))


def test_an_operator_may_want_null_for_what_is_not_finite() -> None:
    """Instead of the strings."""
    for policy, written in ("token", "NaN"), ("null", None):
        _, reply = v2_infer.decode(post({"inputs": []}, non_finite=policy))
        assert told(reply(result("FP32", [np.nan, 1])))["outputs"][0]["data"] == [written, 1.0]


INDEXED = {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "why"}
READY, ENTRY = ops.Readiness(ready=True), ops.IndexEntry("m", "1", ops.State.UNAVAILABLE, "why")
NOT_READY = ops.Readiness(ready=False, state=ops.State.LOADING, reason="why")
UNREADY = {"name": "m", "ready": False, "state": "LOADING", "reason": "why", "error": "model 'm' is not ready: why"}
X_SPEC, R_SPEC = TensorSpec("x", DATATYPES["BYTES"], (-1, 3)), TensorSpec("r", DATATYPES["FP32"], None, optional=True)
INFO = ops.ModelInfo(ops.ModelSpec("m", "2", "onnx_onnxv1", (X_SPEC, R_SPEC), None, max_batch_size=8), ("1", "2"))
METADATA = {
    "name": "m",
    "versions": ["1", "2"],
    "platform": "onnx_onnxv1",
    "inputs": [
        {"name": "x", "datatype": "BYTES", "shape": [-1, 3]},
        {"name": "r", "datatype": "FP32", "shape": [-1], "parameters": {"any_rank": True, "optional": True}},
    ],
    "outputs": [],
}
CONFIG = {
    "name": "m",
    "platform": "onnx_onnxv1",
    "backend": "onnx",
    "version_policy": {"specific": {"versions": [1, 2]}},
    "max_batch_size": 8,
    "input": [
        {"name": "x", "data_type": "TYPE_STRING", "dims": [3]},
        {"name": "r", "data_type": "TYPE_FP32", "dims": []},
    ],
    "output": [],
}
EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]
SERVER = {"name": "mine", "version": "1.2", "extensions": EXTENSIONS}
NOTHING = {"error": "why", "live": True, "ready": False}
M = ops.ModelRef("m")


@pytest.mark.parametrize(
    ("request_line", "body", "operation", "result", "answer"),
    [
        ("GET /v2", b"", ops.ServerMetadata(), ops.ServerInfo("mine", "1.2"), SERVER),
        ("GET /v2/health/live", b"", ops.ServerLive(), READY, {"live": True, "ready": True}),
        ("GET /v2/health/live", b"", ops.ServerLive(), NOT_READY, NOTHING),
        ("GET /v2/health/ready", b"", ops.ServerReady(), READY, {"live": True, "ready": True}),
        ("GET /v2/health/ready", b"", ops.ServerReady(), NOT_READY, NOTHING),
        ("GET /v2/models", b"", ops.ListModels(), ("a", "b"), {"models": ["a", "b"]}),
        ("GET /v2/models/m", b"", ops.ModelMetadata(M), INFO, METADATA),
        ("GET /v2/models/m/config", b"", ops.ModelMetadata(M), INFO, CONFIG),
        ("GET /v2/models/m/ready", b"", ops.ModelReady(M), READY, {"name": "m", "ready": True}),
        ("GET /v2/models/m/versions/3/ready", b"", ops.ModelReady(ops.ModelRef("m", "3")), NOT_READY, UNREADY),
        ("POST /v2/repository/index", b" ", ops.RepositoryIndex(ready_only=False), [], []),
        ("POST /v2/repository/index", b'{"ready": true}', ops.RepositoryIndex(ready_only=True), [ENTRY], [INDEXED]),
        ("POST /v2/repository/models/m/load", b"", ops.Load("m"), None, {}),
        ("POST /v2/repository/models/m/unload", b'{"parameters": {"x": true}}', ops.Unload("m"), None, {}),
    ],
)
def test_a_route_asks_an_operation_and_answers_its_result(
    request_line: str, body: bytes, operation: ops.Operation, result: Any, answer: Any
) -> None:
    """A server or model that is not ready is 503; metadata mark any rank and optional inputs by parameters."""
    found, reply = ask(*request_line.split(), body)
    assert found == operation
    response = reply(result)
    assert told(response) == answer
    assert response.status == (503 if result is NOT_READY else 200)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v2/repository/index", b"[]", "expected an object or nothing"),
        ("/v2/repository/index", b'{"ready": 0}', "'ready' is 0"),
        ("/v2/repository/models/m/load", b'{"parameters": 0}', "'parameters' is 0"),
        ("/v2/repository/models/m/load", b'{"parameters": {"config": "{}"}}', "are loaded from the repository only"),
        ("/v2/repository/models/m/unload", b"x", "not JSON"),
    ],
)
def test_a_repository_call_that_asks_for_something_else_is_refused(path: str, body: bytes, message: str) -> None:
    """What cannot be honoured is not ignored."""
    with pytest.raises(InvalidInput, match=message):
        ask("POST", path, body)


@pytest.mark.parametrize(
    ("path", "ref"),
    [
        ("/v2/models/stats", None),
        ("/v2/models/m/stats", ops.ModelRef("m")),
        ("/v2/models/m/versions/2/stats", ops.ModelRef("m", "2")),
    ],
)
def test_statistics_are_of_every_model_of_one_or_of_a_version(path: str, ref: ops.ModelRef | None) -> None:
    """Each count with its nanoseconds."""
    operation, reply = ask("GET", path)
    assert operation == ops.ModelStatistics(ref)
    numbers = ops.Statistics("m", "2", inference_count=3, last_inference_ms=5)
    for place, counted in enumerate(("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")):
        getattr(numbers, counted).add(10 * place)
    (stats,) = told(reply([numbers]))["model_stats"]
    assert (stats["name"], stats["version"], stats["inference_count"], stats["last_inference"]) == ("m", "2", 3, 5)
    assert stats["inference_stats"]["success"] == {"count": 1, "ns": 0}
    assert stats["inference_stats"]["compute_output"] == {"count": 1, "ns": 50}


def test_an_output_may_be_asked_for_as_its_classes() -> None:
    """So many of them."""
    outputs = [{"name": "y", "parameters": {"classification": 2}}, {"name": "z"}]
    operation, _ = v2_infer.decode(post({"inputs": [], "outputs": outputs}))
    assert operation.outputs == (ops.RequestedOutput("y", 2), ops.RequestedOutput("z"))
