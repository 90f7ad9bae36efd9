"""The models that `abuse` asks: they compute almost nothing, so what is measured is reading and writing."""

import json
from pathlib import Path

from onnx import TensorProto, helper, save

from benchmarks import repository
from benchmarks.repository import IR_VERSION, OPSET, Shape

SIGNATURES = {
    "signatures": {
        "serving_default": {
            "method": "classify",
            "inputs": {"x": {"tensor": "x", "shape": [4], "default": [0, 0, 0, 0]}},
            "outputs": {"scores": "y"},
        }
    }
}


def identity(folder: Path, name: str, kind: int, shape: Shape) -> None:
    """Writes a model of any type that returns its input x as y."""
    x, y = (helper.make_tensor_value_info(n, kind, shape) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], name, [x], [y])
    model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])
    (folder / name / "1").mkdir(parents=True)
    save(model, folder / name / "1" / "model.onnx")


def make(folder: Path) -> None:
    repository.make(folder)
    identity(folder, "fixed", TensorProto.FLOAT, [1, 4])
    identity(folder, "doubles", TensorProto.DOUBLE, [1, "n"])
    identity(folder, "examples", TensorProto.FLOAT, ["n", 4])
    (folder / "examples" / "1" / "model-settings.json").write_text(json.dumps(SIGNATURES))
