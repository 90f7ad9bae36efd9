"""Makes the sample repository: writes its models into this folder, or into the folder given as the only argument.

It needs the development tools (onnx, scikit-learn, skl2onnx). The result is deterministic: it has no time and no random
name, and the trained weights are rounded, so another BLAS does not change the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

IR_VERSION = 8  # old enough for every ONNX Runtime from 1.13 on
OPSET = 13
ML_OPSET = 3


def half_plus_three() -> ModelProto:
    """Returns y = x / 2 + 3 on FP32 of any rank: in the file, x and y have a type but no shape."""
    constants = [
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
        numpy_helper.from_array(np.array(3.0, np.float32), "three"),
    ]
    nodes = [helper.make_node("Mul", ["x", "half"], ["halved"]), helper.make_node("Add", ["halved", "three"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    return finish(helper.make_graph(nodes, "half_plus_three", [x], [y], constants))


def strings() -> ModelProto:
    """Returns text [-1] -> text [-1], unchanged."""
    # The output has the input's own name, so no node is needed. Clients see the same name for both.
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [None])
    return finish(helper.make_graph([], "strings", [text], [text]))


def iris() -> ModelProto:
    """Returns a logistic regression on iris: x FP32 [-1, 4] -> label INT64 [-1], probabilities FP32 [-1, 3]."""
    features, classes = load_iris(return_X_y=True)
    # Trained to the optimum, which every version of scikit-learn finds. Where a solver stops earlier differs.
    regression = LogisticRegression(solver="newton-cg", tol=1e-12, max_iter=1000).fit(features, classes)
    regression.coef_ = np.round(regression.coef_, 3)
    regression.intercept_ = np.round(regression.intercept_, 3)
    converted = convert_sklearn(
        regression,
        "iris",
        [("x", FloatTensorType([None, 4]))],
        target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
        options={"zipmap": False},
    )
    graph = converted.graph
    graph.name = "iris"  # the converter's own name has a random part
    rename = {graph.output[0].name: "label", graph.output[1].name: "probabilities"}
    for node in graph.node:
        node.output[:] = [rename.get(name, name) for name in node.output]
        node.input[:] = [rename.get(name, name) for name in node.input]
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [None])
    probabilities = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 3])
    del graph.output[:]
    graph.output.extend([label, probabilities])
    return finish(graph)


def finish(graph: GraphProto) -> ModelProto:
    """Returns a graph as a model that does not depend on the tool's version."""
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    # onnx.checker is not used: it refuses an input without a shape, which ONNX Runtime reads as "any rank".
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dragoman")


HALF_PLUS_THREE_SETTINGS = {
    "name": "half_plus_three",
    "signatures": {
        "serving_default": {"inputs": {"x": "x"}, "outputs": {"y": "y"}},
        "tensorflow/serving/regress": {
            "method": "regress",
            "inputs": {"x": {"tensor": "x", "shape": [1]}},
            "outputs": {"outputs": "y"},
        },
    },
    "version_labels": {"stable": 123},
}
IRIS_SETTINGS = {
    "name": "iris",
    "signatures": {
        "serving_default": {
            "method": "classify",
            "inputs": {"x": "x"},
            "outputs": {"scores": "probabilities"},
            "class_labels": ["setosa", "versicolor", "virginica"],
            "description": "Fisher's irises from sepal length and width, petal length and width in cm",
        }
    },
    "version_labels": {"stable": 1},
    "explainer": {
        "background": load_iris().data[::15].tolist(),
        "feature_names": ["sepal length", "sepal width", "petal length", "petal width"],
    },
}


def make(root: Path) -> None:
    """Writes the repository below root."""
    for place, model in (
        ("half_plus_three/123", half_plus_three()),
        ("iris/1", iris()),
        ("strings/1", strings()),
    ):
        folder = root / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    for name, settings in (("half_plus_three", HALF_PLUS_THREE_SETTINGS), ("iris", IRIS_SETTINGS)):
        text = json.dumps(settings, indent=2) + "\n"
        (root / name / "model-settings.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
