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


@pytest.mark.parametrize("ready", [ops.Readiness(ready=True), ops.Readiness(ready=False, reason="why")])
@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
def test_health_has_both_members_and_the_reason(path: str, ready: ops.Readiness) -> None:
    """Kserve's client reads one, the specification names the other."""
    _, reply = ask("GET", path)
    response = reply(ready)
    assert response.status == (200 if ready.ready else 503)
    error = {} if ready.ready else {"error": "why"}
    assert told(response) == {"live": True, "ready": ready.ready, **error}


def test_a_model_that_is_not_ready_says_state_and_reason() -> None:
    """503, for load balancers."""
    operation, reply = ask("GET", "/v2/models/m/versions/3/ready")
    assert operation.ref == ops.ModelRef("m", "3")
    response = reply(ops.Readiness(ready=False, state=ops.State.LOADING, reason="loading"))
    assert response.status == 503
    error = "model 'm' is not ready: loading"
    assert told(response) == {"name": "m", "ready": False, "state": "LOADING", "reason": "loading", "error": error}
    assert told(reply(ops.Readiness(ready=True))) == {"name": "m", "ready": True}


def test_metadata_marks_any_rank_and_configuration_leaves_the_batch_out() -> None:
    """The protocol has no word for the one, Triton's dims no place for the other."""
    inputs = (TensorSpec("x", DATATYPES["BYTES"], (-1, 3)), TensorSpec("r", DATATYPES["FP32"], None))
    info = ops.ModelInfo(ops.ModelSpec("m", "2", "onnx_onnxv1", inputs, None, max_batch_size=8), ("1", "2"))
    _, reply = ask("GET", "/v2/models/m")
    assert told(reply(info)) == {
        "name": "m",
        "versions": ["1", "2"],
        "platform": "onnx_onnxv1",
        "inputs": [
            {"name": "x", "datatype": "BYTES", "shape": [-1, 3]},
            {"name": "r", "datatype": "FP32", "shape": [-1], "parameters": {"any_rank": True}},
        ],
        "outputs": [],
    }
    _, reply = ask("GET", "/v2/models/m/config")
    config = told(reply(info))
    assert config["max_batch_size"] == 8
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_STRING", "dims": [3]}


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


def test_repository_calls_take_nothing_or_an_object() -> None:
    """Clients send either."""
    assert ask("POST", "/v2/repository/index", b" ")[0] == ops.RepositoryIndex(ready_only=False)
    assert ask("POST", "/v2/repository/index", b'{"ready": true}')[0] == ops.RepositoryIndex(ready_only=True)
    operation, reply = ask("POST", "/v2/repository/models/m/unload", b'{"parameters": {"unload_dependents": true}}')
    assert operation == ops.Unload("m")
    assert told(reply(None)) == {}


def test_the_server_tells_its_name_and_extensions() -> None:
    """And the names of its models."""
    operation, reply = ask("GET", "/v2")
    assert operation == ops.ServerMetadata()
    body = told(reply(ops.ServerInfo("mine", "1.2")))
    assert (body["name"], body["version"]) == ("mine", "1.2")
    assert "binary_tensor_data" in body["extensions"]
    operation, reply = ask("GET", "/v2/models")
    assert operation == ops.ListModels()
    assert told(reply(("a", "b"))) == {"models": ["a", "b"]}


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


def test_the_index_tells_every_version_with_its_state() -> None:
    """And the reason."""
    _, reply = ask("POST", "/v2/repository/index")
    entry = ops.IndexEntry("m", "1", ops.State.UNAVAILABLE, "why")
    assert told(reply([entry])) == [{"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "why"}]


def test_a_model_is_loaded_by_its_name() -> None:
    """The answer is an empty object."""
    operation, reply = ask("POST", "/v2/repository/models/m/load")
    assert operation == ops.Load("m")
    assert told(reply(None)) == {}


def test_an_output_may_be_asked_for_as_its_classes() -> None:
    """So many of them."""
    outputs = [{"name": "y", "parameters": {"classification": 2}}, {"name": "z"}]
    operation, _ = v2_infer.decode(post({"inputs": [], "outputs": outputs}))
    assert operation.outputs == (ops.RequestedOutput("y", 2), ops.RequestedOutput("z"))


def test_metadata_tells_which_inputs_may_be_missing() -> None:
    """The protocol has no word for that either."""
    inputs = (TensorSpec("x", DATATYPES["FP32"], None, optional=True), TensorSpec("y", DATATYPES["FP32"], (2,)))
    _, reply = ask("GET", "/v2/models/m")
    x, y = told(reply(ops.ModelInfo(ops.ModelSpec("m", "2", "p", inputs, ()), ("2",))))["inputs"]
    assert x["parameters"] == {"any_rank": True, "optional": True}
    assert "parameters" not in y
