"""Inputs with a value in the file, which signatures of `dragoman convert` or other settings name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from handler.edge.app import App
from handler.settings import Settings
from tests.handler.edge import client

SETTINGS = {
    "signatures": {
        "serving_default": {"inputs": {"a": "x"}, "outputs": {"b": "y"}},
        "other": {"inputs": {"a": "x2"}, "outputs": {"b": "y2"}},
    }
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """Computes y = x + x and y2 = x2 * x2 in one graph, which has an initializer for each input."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("x", "x2", "y", "y2")]
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Mul", ["x2", "x2"], ["y2"])]
    nothing = [helper.make_tensor(name, TensorProto.FLOAT, [1], [0.0]) for name in ("x", "x2")]
    graph = helper.make_graph(nodes, "g", tensors[:2], tensors[2:], nothing)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps(SETTINGS))
    application = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}), inline=True)
    yield application
    application.close()


def ask(app: App, path: str, body: Any) -> Any:
    """Returns the answer's members."""
    return json.loads(client.ask(app, "POST", path, json.dumps(body).encode())[2])


def tensor(name: str) -> dict[str, Any]:
    """Returns [1.5] as a V2 input."""
    return {"name": name, "shape": [1], "datatype": "FP32", "data": [1.5]}


def test_a_signature_needs_its_own_inputs_alone(app: App) -> None:
    """A prediction under /v1 does not need the inputs of other signatures."""
    assert ask(app, "/v1/models/m:predict", {"instances": [1.5]}) == {"predictions": [3.0]}
    other = {"signature_name": "other", "instances": [1.5]}
    assert ask(app, "/v1/models/m:predict", other) == {"predictions": [2.25]}


def test_named_outputs_need_the_inputs_that_they_are_made_of(app: App) -> None:
    """An inference under /v2 does not need the inputs of other outputs."""
    wanted = {"inputs": [tensor("x2")], "outputs": [{"name": "y2"}]}
    assert ask(app, "/v2/models/m/infer", wanted)["outputs"][0]["data"] == [2.25]
    both = ask(app, "/v2/models/m/infer", {"inputs": [tensor("x"), tensor("x2")]})
    assert [output["data"] for output in both["outputs"]] == [[3.0], [2.25]]


@pytest.mark.parametrize("outputs", [[], [{"name": "y"}], [{"name": "y"}, {"name": "y2"}]])
def test_nothing_is_made_of_an_input_that_was_not_sent(app: App, outputs: list[Any]) -> None:
    """An input with an initializer in the file is still required."""
    refusal = ask(app, "/v2/models/m/infer", {"inputs": [tensor("x2")], "outputs": outputs})
    assert refusal == {"error": "model 'm' needs input 'x', which is missing"}
    foreign = ask(app, "/v2/models/m/infer", {"inputs": [tensor("x"), tensor("x2"), tensor("z")]})
    assert foreign == {"error": "model 'm' has no input 'z'; it has ['x', 'x2']"}


@pytest.fixture
def added(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    """Computes y = x + c, where c is 7 in the file, which has the IR version of the parameter. The settings name c."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("x", "c", "y")]
    default = helper.make_tensor("c", TensorProto.FLOAT, [1], [7.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", tensors[:2], tensors[2:], [default])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=request.param)
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    inputs = "".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] optional: true }} ' for name in "xc")
    (tmp_path / "m" / "config.pbtxt").write_text('platform: "onnxruntime_onnx" ' + inputs)
    application = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}), inline=True)
    yield application
    application.close()


@pytest.mark.parametrize("added", [4], indirect=True)
def test_an_input_that_the_settings_name_replaces_its_value_in_the_file(added: App) -> None:
    """A request may have it, in any protocol, or lack it."""
    infer, predict = "/v2/models/m/infer", "/v1/models/m:predict"
    c = tensor("c") | {"data": [100]}
    assert ask(added, infer, {"inputs": [tensor("x"), c]})["outputs"][0]["data"] == [101.5]
    assert ask(added, infer, {"inputs": [tensor("x")]})["outputs"][0]["data"] == [8.5]
    assert ask(added, infer, {"inputs": [c]}) == {"error": "model 'm' needs input 'x', which is missing"}
    assert ask(added, predict, {"inputs": {"x": [1, 2], "c": [100]}}) == {"outputs": [101.0, 102.0]}
    assert ask(added, predict, {"inputs": {"x": [1, 2]}}) == {"outputs": [8.0, 9.0]}
    assert ask(added, predict, {"instances": [1, 2]}) == {"predictions": [8.0, 9.0]}
    assert ask(added, predict, {"instances": [{"x": 1, "c": 2}, {"x": 3, "c": 4}]}) == {"predictions": [3.0, 7.0]}
    assert "Missing named input: x" in ask(added, predict, {"inputs": {"c": [1]}})["error"]


@pytest.mark.parametrize("added", [3], indirect=True)
def test_old_files_list_their_weights_as_inputs(added: App) -> None:
    """No request can replace them: ONNX Runtime has no such input."""
    refusal = ask(added, "/v2/models/m/infer", {"inputs": [tensor("x")]})["error"]
    assert "the settings describe input 'c', which is not in model.onnx" in refusal
