"""What clients of Triton, MLServer and TensorFlow Serving expect beside their protocols' documents."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper

from core.schema import open_inference as oip
from tests.protocols.test_waiting import until
from tests.support.catalogue import row
from tests.support.checks import refusal
from tests.support.remote import Remote, question, raw, tensors, typed, wanted
from tests.support.server import Server, serve_rpc
from tests.support.wire import Wire, json_input
from tests.support.zoo.models import graph, identity

ECHO: Final = """
import json, threading
import numpy as np
gate = threading.Event()

def predict(inputs, parameters):
    x = inputs["x"]
    if x.flat[0] == b"wait":
        gate.wait(0.5)  # for the request behind it, which must not overtake it
    gate.set()
    return {"y": x, "parameters": np.array([json.dumps(parameters).encode()], object)}
"""
SETTINGS: Final[dict[str, Any]] = {
    "labelled": {"version_labels": {"a@b/c d": 1}, "version_policy": {"all": {}}},
    "batch": {"max_batch_size": 8, "inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 3, 2], "format": "FORMAT_NCHW"}]},
    "score": {"signatures": {"serving_default": {
        "method": "regress", "inputs": {"x": {"tensor": "INPUT0", "shape": [1]}}, "outputs": {"outputs": "OUTPUT0"}}}},
}  # fmt: skip
RAW: Final = {"Inference-Header-Content-Length": "0"}
X: Final = np.arange(6, dtype=np.float32).reshape(1, 3, 2)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that preloads all models, keeps the requests of a stream in order, and answers raw over gRPC."""
    root = tmp_path_factory.mktemp("repository")
    total = {"axes": np.array([0, 1])}
    node: Any = helper.make_node("ReduceSum", ["INPUT0", "axes"], ["OUTPUT0"], keepdims=1)
    models = {
        "labelled/1": identity("FP32", ["n"]), "labelled/2": identity("FP32", ["n"]),
        "batch/1": identity("FP32", ["n", 3, 2]), "flat/1": identity("FP32", [1, 3, 2]),
        "score/1": graph("sum", [node], [("INPUT0", "FP32", ["n", 1])], [("OUTPUT0", "FP32", [1, 1])], total),
    }  # fmt: skip
    files = {f"{place}/model.onnx": model.SerializeToString() for place, model in models.items()}
    files |= {f"{name}/model-settings.json": json.dumps(value).encode() for name, value in SETTINGS.items()}
    files["echo/1/model.py"] = ECHO.encode()
    for place, content in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)
    settings = {"ALLOW_CODE": "true", "PRELOAD": "*", "STREAM_ORDER": "request", "GRPC_OUTPUTS": "raw"}
    with serve_rpc(root.parent / "last-cases-log", REPOSITORY=str(root), **settings) as running:
        yield running


@pytest.fixture
def wire(served: Server) -> Iterator[Wire]:
    with served.wire() as connection:
        yield connection


@pytest.fixture
def remote(served: Server) -> Iterator[Remote]:
    with closing(Remote(served.rpc_netloc)) as connection:
        yield connection


@pytest.mark.row("N-20")
def test_readiness_waits_for_every_version_that_the_policy_serves(wire: Wire) -> None:
    """No request has loaded them."""
    until(lambda: wire.get("/v2/health/ready").status == 200)
    states = {(each["name"], each["version"]): each["state"] for each in wire.post("/v2/repository/index").json()}
    assert set(states.values()) == {"READY"}
    assert {("labelled", "1"), ("labelled", "2")} <= states.keys()


@pytest.mark.row("N-21")
def test_a_stream_may_be_worked_on_in_its_order(remote: Remote) -> None:
    """The second request would be answered first."""
    texts = [np.array([text], object) for text in (b"wait", b"x")]
    asked = [question("echo", raw("x", "BYTES", text), id=str(number)) for number, text in enumerate(texts)]
    assert [each.infer_response.id for each in remote.stream(iter(asked))] == ["0", "1"]


@pytest.mark.parametrize(("model", "shape", "expected"), [
    row("R-402", "batch", [2, 3, 2], [["5.000000:5", "4.000000:4"], ["11.000000:5", "10.000000:4"]], name="rows"),
    row("R-402", "flat", [1, 3, 2], ["5.000000:5", "4.000000:4"], name="no batch"),
])  # fmt: skip
def test_classes_are_counted_behind_the_batch(
    wire: Wire, remote: Remote, model: str, shape: Any, expected: Any
) -> None:
    """All other axes are one, over both wires."""
    scores = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": 2}}]
    found = wire.infer(model, json_input("INPUT0", "FP32", scores), outputs=outputs).tensors()["OUTPUT0"]
    assert found.astype(str).tolist() == expected
    wants = wanted("OUTPUT0", classification={"int64_param": 2})
    answer = tensors(remote.infer(model, raw("INPUT0", "FP32", scores), outputs=wants))
    assert answer["OUTPUT0"].astype(str).tolist() == expected


@pytest.mark.row("N-22")
def test_raw_bytes_for_a_batching_model_are_one_row(wire: Wire) -> None:
    """The shape says nothing of the batch, and the bytes could be any number of rows."""
    answer = wire.call("POST", "/v2/models/batch/infer", X.tobytes(), RAW)
    assert answer.tensors()["OUTPUT0"].tolist() == X.tolist()
    assert "needs 24" in refusal(wire.call("POST", "/v2/models/batch/infer", X.tobytes() * 2, RAW), 400)


def test_the_rows_of_a_batching_model_are_its_inferences(wire: Wire, remote: Remote) -> None:
    """In both statistics, over each protocol; a model without a batch size counts requests."""

    def counted(model: str) -> tuple[int, int, int]:
        (stats,) = wire.get(f"/v2/models/{model}/stats").json()["model_stats"]
        (same,) = remote.ask("ModelStatistics", oip.ModelStatisticsRequest(name=model)).model_stats
        assert same.inference_count == stats["inference_count"]
        return stats["inference_count"], stats["execution_count"], stats["inference_stats"]["success"]["count"]

    for model, rows in (("batch", 3), ("flat", 1)):
        before = counted(model)
        wire.infer(model, json_input("INPUT0", "FP32", np.concatenate([X] * rows)))
        remote.infer(model, typed("INPUT0", "FP32", X))
        assert np.subtract(counted(model), before).tolist() == [rows + 1, 2, 2]


@pytest.mark.row("N-23")
def test_the_configuration_has_the_format_of_each_input(wire: Wire) -> None:
    """The image clients of Triton stop without the member."""
    formats = {name: wire.get(f"/v2/models/{name}/config").json()["input"][0]["format"] for name in ("batch", "flat")}
    assert formats == {"batch": "FORMAT_NCHW", "flat": "FORMAT_NONE"}


@pytest.mark.row("N-24")
def test_the_protocols_own_parameters_do_not_reach_a_model(wire: Wire, remote: Remote) -> None:
    """A model that passes its parameters on would break on some of the protocols only."""
    text = np.array([b"a"], object)
    given = {"mine": 1, "binary_data_output": False}
    found = wire.infer("echo", json_input("x", "BYTES", text), parameters=given).tensors()["parameters"]
    assert json.loads(found[0]) == {"mine": 1}
    asked = question("echo", raw("x", "BYTES", text))
    asked.parameters["triton_enable_empty_final_response"].bool_param = True
    asked.parameters["mine"].int64_param = 1
    (answer,) = remote.stream(iter([asked]))
    assert json.loads(tensors(answer.infer_response)["parameters"][0]) == {"mine": 1}


@pytest.mark.row("N-25")
def test_typed_contents_may_be_answered_raw(remote: Remote) -> None:
    """Triton's examples read nothing else."""
    answer = remote.infer("batch", typed("INPUT0", "FP32", X))
    assert answer.raw_output_contents == [X.tobytes()]


@pytest.mark.parametrize(("kind", "text"), [
    row("N-26", "base64", "/wA=", name="base64"), row("N-26", "str", "ä", name="str"),
    row("N-26", "datetime", "2026-11-22T00:00:00", name="datetime"), row("N-26", "pd", "ä", name="pd"),
])  # fmt: skip
def test_mlservers_content_types_are_answered_in_kind(wire: Wire, kind: str, text: str) -> None:
    """base64 is decoded for the model and encoded again; the output states its content type."""
    parameters = {"content_type": kind}
    asked = {"name": "x", "datatype": "BYTES", "shape": [1], "data": [text], "parameters": parameters}
    (output, _) = wire.post("/v2/models/echo/infer", {"inputs": [asked]}).json()["outputs"]
    assert output["data"] == [text]
    assert output["parameters"]["content_type"] == ("base64" if kind == "base64" else "str")


@pytest.mark.parametrize(("target", "body", "status", "text"), [
    row("V1-140", "labelled/labels/a%40b%2Fc%20d:predict", '{"instances": [1]}', 200, '"predictions"', name="label"),
    row("V1-141", "labelled/versions/x:predict", "{", 400, "Malformed request", name="version"),
    row("V1-142", "score:regress", '{"examples": [{"x": 1}, {"x": 2}]}', 400, "batch", name="regress"),
    row("V1-143", "score:predict", '{"signature_name": "none", "instances": [1]}', 400, "none", name="signature"),
    row("V1-144", "labelled:predict", "x", 400, "JSON Parse error: Invalid value. at offset: 0", name="value"),
    row("V1-144", "labelled:predict", '{"instances":[1e999]}', 400, "Number too big to be stored in double",
        name="number"),
    row("V1-144", "score:regress", "{}", 400, "key 'examples' is expected and was not found", name="missing"),
    row("V1-144", "score:regress", '{"examples": []}', 400, "value is an empty array", name="empty"),
    row("V1-144", "score:regress", '{"context": [], "examples": [{"x": 1}]}', 400, "must be JSON object but got JSON",
        name="context"),
    row("V1-145", "labelled:predict", '{"instances":[1],"instances":[2]}', 400, "'instances' twice", name="twice"),
])  # fmt: skip
def test_tensorflow_servings_words(wire: Wire, target: str, body: str, status: int, text: str) -> None:
    """A path's mistake comes before the body's."""
    answer = wire.call("POST", f"/v1/models/{target}", body.encode())
    assert answer.status == status, answer.content
    assert text in answer.content.decode()
