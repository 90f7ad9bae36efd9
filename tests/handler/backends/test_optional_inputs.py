"""A model whose signatures need different inputs, as `dragoman convert` writes it."""

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
