"""core.dialects.v2.http by itself: the operations of its routes, and the answers of results.

What clients see of them through a server is in the tests of the protocols.
"""

from typing import Any

import pytest

from core import operations as ops
from core.dialects import V2
from core.dtype import DATATYPES
from core.errors import Fault, InvalidInput
from core.router import Router
from core.statistics import BatchCount, Count, Statistics
from core.tensor import TensorSpec
from core.wire import Call, HttpRequest
from tests.support.samples import told


def ask(method: str, path: str, body: bytes = b"") -> tuple[Any, Any]:
    """Returns the operation and the reply of a route."""
    route, values = Router(V2).find(method, path)
    return route.decode(Call(HttpRequest(method, path, {}, body), values))


INDEXED = {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "why"}
F_SPEC = TensorSpec("f", DATATYPES["FP64"], (1,))
READY, ENTRY = ops.Readiness(ready=True), ops.IndexEntry("m", "1", ops.State.UNAVAILABLE, "why")
NOT_READY = ops.Readiness(ready=False, state=ops.State.LOADING, reason="why")
UNREADY = {"name": "m", "ready": False, "state": "LOADING", "reason": "why", "error": "model 'm' is not ready: why"}
X_SPEC = TensorSpec("x", DATATYPES["BYTES"], (-1, 3), format="FORMAT_NHWC")
R_SPEC = TensorSpec("r", DATATYPES["FP32"], None, optional=True)
INFO = ops.ModelInfo(
    ops.ModelSpec("m", "2", "onnx_onnxv1", (X_SPEC, R_SPEC, F_SPEC), (F_SPEC,), max_batch_size=8), ("1", "2")
)
METADATA = {
    "name": "m",
    "versions": ["1", "2"],
    "platform": "onnx_onnxv1",
    "inputs": [
        {"name": "x", "datatype": "BYTES", "shape": [-1, 3]},
        {"name": "r", "datatype": "FP32", "shape": [-1], "parameters": {"any_rank": True, "optional": True}},
        {"name": "f", "datatype": "FP64", "shape": [1], "parameters": {"accepts": ["FP32"]}},
    ],
    "outputs": [{"name": "f", "datatype": "FP64", "shape": [1]}],
}
CONFIG = {
    "name": "m",
    "platform": "onnx_onnxv1",
    "backend": "onnx",
    "version_policy": {"specific": {"versions": [1, 2]}},
    "max_batch_size": 8,
    "input": [
        {"name": "x", "data_type": "TYPE_STRING", "dims": [3], "format": "FORMAT_NHWC", "optional": False},
        {"name": "r", "data_type": "TYPE_FP32", "dims": [], "format": "FORMAT_NONE", "optional": True},
        {"name": "f", "data_type": "TYPE_FP64", "dims": [], "format": "FORMAT_NONE", "optional": False},
    ],
    "output": [{"name": "f", "data_type": "TYPE_FP64", "dims": []}],
}
EXTENSIONS = [
    *("binary_tensor_data", "classification", "generate"),
    *("model_configuration", "model_repository", "statistics"),
]
SERVER = {"name": "mine", "version": "1.2", "extensions": EXTENSIONS}
NOTHING = {"error": "why", "live": True, "ready": False}
M = ops.ModelRef("m")
SIGNED = {"signer": "key:1"}
SIGNED_METADATA = METADATA | {"parameters": SIGNED}


@pytest.mark.parametrize(("request_line", "body", "operation", "result", "answer"), [
    ("GET /v2", b"", ops.ServerMetadata(), ops.ServerInfo("mine", "1.2"), SERVER),
    ("GET /v2/health/live", b"", ops.ServerLive(), READY, {"live": True}),
    ("GET /v2/health/live", b"", ops.ServerLive(), NOT_READY, NOTHING),
    ("GET /v2/health/ready", b"", ops.ServerReady(), READY, {"live": True, "ready": True}),
    ("GET /v2/health/ready", b"", ops.ServerReady(), NOT_READY, NOTHING),
    ("GET /v2/models", b"", ops.ListModels(), ("a", "b"), {"models": ["a", "b"]}),
    ("GET /v2/models/m", b"", ops.ModelMetadata(M), INFO, METADATA),
    ("GET /v2/models/m", b"", ops.ModelMetadata(M), INFO._replace(parameters=SIGNED), SIGNED_METADATA),
    ("GET /v2/models/m/config", b"", ops.ModelMetadata(M), INFO, CONFIG),
    ("GET /v2/models/m/ready", b"", ops.ModelReady(M), READY, {"name": "m", "ready": True}),
    ("GET /v2/models/m/versions/3/ready", b"", ops.ModelReady(ops.ModelRef("m", "3")), NOT_READY, UNREADY),
    ("POST /v2/repository/index", b" ", ops.RepositoryIndex(ready_only=False), [], []),
    ("POST /v2/repository/index", b'{"ready": true}', ops.RepositoryIndex(ready_only=True), [ENTRY], [INDEXED]),
    ("POST /v2/repository/models/m/load", b"", ops.Load("m"), None, {}),
    ("POST /v2/repository/models/m/unload", b'{"parameters": {"x": true}}', ops.Unload("m"), None, {}),
])  # fmt: skip
def test_a_route_asks_an_operation_and_answers_its_result(
    request_line: str, body: bytes, operation: ops.Operation, result: Any, answer: Any
) -> None:
    """What is not ready is 503, with Retry-After; metadata mark any rank and optional inputs by parameters."""
    found, reply = ask(*request_line.split(), body)
    assert found == operation
    response = reply(result)
    assert told(response) == answer
    assert response.status == (503 if result is NOT_READY else 200)
    assert ((b"retry-after", b"1") in response.headers) is (result is NOT_READY)


@pytest.mark.parametrize("fault", [None, Fault.INTERNAL])
def test_a_model_that_is_not_ready_has_a_reason_for_the_log_if_something_failed(fault: Fault | None) -> None:
    """The answer is the same."""
    _, reply = ask("GET", "/v2/models/m/ready")
    response = reply(NOT_READY._replace(fault=fault))
    assert (response.status, told(response)) == (503, UNREADY)
    assert response.why == (None if fault is None else (fault, UNREADY["error"]))


def test_the_configuration_has_the_batching_of_a_model() -> None:
    """In Triton's members. A model without a batch size of its own shows that of its batches."""
    _, reply = ask("GET", "/v2/models/m/config")
    spec = ops.ModelSpec("m", "2", "p", None, None, batching=ops.Batching(8, 0.0025, (4,)))
    dynamic = {"preferred_batch_size": [4], "max_queue_delay_microseconds": 2500}
    config = told(reply(ops.ModelInfo(spec, ("2",))))
    assert (config["dynamic_batching"], config["max_batch_size"]) == (dynamic, 8)
    assert told(reply(ops.ModelInfo(spec._replace(max_batch_size=4), ("2",))))["max_batch_size"] == 4
    assert told(reply(ops.ModelInfo(spec._replace(batching=None), ("2",))))["max_batch_size"] == 0


def test_the_configuration_of_a_model_that_streams_says_so() -> None:
    """Triton's clients of such models read it before they send anything; others have no such member."""
    _, reply = ask("GET", "/v2/models/m/config")
    spec = ops.ModelSpec("m", "2", "p", None, None)
    assert told(reply(ops.ModelInfo(spec._replace(decoupled=True), ("2",))))["model_transaction_policy"] == {
        "decoupled": True
    }
    assert "model_transaction_policy" not in told(reply(ops.ModelInfo(spec, ("2",))))


@pytest.mark.parametrize(("path", "body", "message"), [
    ("/v2/repository/index", b"[]", "expected an object or nothing"),
    ("/v2/repository/index", b'{"ready": 0}', "'ready' is 0"),
    ("/v2/repository/models/m/load", b'{"parameters": 0}', "'parameters' is 0"),
    ("/v2/repository/models/m/load", b'{"parameters": {"config": "{}"}}', "are loaded from the repository only"),
    ("/v2/repository/models/m/unload", b"x", "not JSON"),
])  # fmt: skip
def test_a_repository_call_that_asks_for_something_else_is_refused(path: str, body: bytes, message: str) -> None:
    """A parameter that cannot be honoured is not ignored."""
    with pytest.raises(InvalidInput, match=message):
        ask("POST", path, body)


@pytest.mark.parametrize(("path", "ref"), [
    ("/v2/models/stats", None),
    ("/v2/models/m/stats", ops.ModelRef("m")),
    ("/v2/models/m/versions/2/stats", ops.ModelRef("m", "2")),
])  # fmt: skip
def test_statistics_are_of_every_model_of_one_or_of_a_version(path: str, ref: ops.ModelRef | None) -> None:
    """Each count has its nanoseconds."""
    operation, reply = ask("GET", path)
    assert operation == ops.ModelStatistics(ref)
    batch = BatchCount(8, *(Count(2, ns) for ns in (1, 2, 3)))
    numbers = Statistics("m", "2", 3, 5, *(Count(1, 10 * place) for place in range(6)), 2, (batch,))
    (stats,) = told(reply([numbers]))["model_stats"]
    assert (stats["name"], stats["version"], stats["inference_count"], stats["last_inference"]) == ("m", "2", 3, 5)
    assert stats["inference_stats"]["success"] == {"count": 1, "ns": 0}
    assert stats["inference_stats"]["compute_output"] == {"count": 1, "ns": 50}
    steps = {f"compute_{step}": {"count": 2, "ns": ns} for step, ns in (("input", 1), ("infer", 2), ("output", 3))}
    assert (stats["execution_count"], stats["batch_stats"]) == (2, [{"batch_size": 8, **steps}])
