"""Makes the sample repository: writes its models into this folder, or into the folder given as the only argument.

It needs the development tools (onnx, pandas, scikit-learn, skl2onnx). The result is deterministic: it has no
time and no random name, and the trained weights are rounded, so another BLAS does not change the file.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

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


def voyage() -> tuple[pd.DataFrame, np.ndarray]:
    """Returns invented passengers of a ship that sank, and how likely each was to live."""
    ages, fares = range(4, 80, 15), (7.25, 13.0, 26.55, 80.0)
    table = pd.DataFrame(itertools.product(ages, fares, "fm", "CQS"), columns=["age", "fare", "sex", "port"])
    odds = 1.5 * (table["sex"] == "f") + 0.5 * (table["port"] == "C") - 0.04 * table["age"] + 0.02 * table["fare"]
    return table, 1 / (1 + np.exp(-odds.to_numpy()))


def passengers() -> Pipeline:
    """Returns a pipeline on a DataFrame of two columns of numbers and two of text, with weights of three digits."""
    table, lived = voyage()
    texts = OneHotEncoder(handle_unknown="ignore")  # by default another port would be an error
    columns = ColumnTransformer([("numbers", StandardScaler(), ["age", "fare"]), ("texts", texts, ["sex", "port"])])
    prepared = columns.fit_transform(table)
    scaler = columns.named_transformers_["numbers"]
    scaler.mean_, scaler.scale_ = np.round(scaler.mean_, 3), np.round(scaler.scale_, 3)
    # Each passenger counts twice, as one who lived and one who died, with the weight of either.
    regression = LogisticRegression(solver="newton-cg", tol=1e-12, max_iter=1000).fit(
        np.concatenate([prepared, prepared]),
        ["lived"] * len(table) + ["died"] * len(table),
        sample_weight=np.concatenate([lived, 1 - lived]),
    )
    regression.coef_ = np.round(regression.coef_, 3)
    regression.intercept_ = np.round(regression.intercept_, 3)
    return Pipeline([("columns", columns), ("regression", regression)])


def table_model() -> ModelProto:
    """Returns the pipeline as skl2onnx exports it: an input [-1, 1] for each column, and probabilities in maps."""
    types = [(name, FloatTensorType([None, 1])) for name in ("age", "fare")]
    types += [(name, StringTensorType([None, 1])) for name in ("sex", "port")]
    opsets = {"": OPSET, "ai.onnx.ml": ML_OPSET}
    graph = convert_sklearn(passengers(), "passengers", types, target_opset=opsets).graph
    graph.name = "passengers"  # the converter's own name has a random part
    return finish(graph)


def numbers() -> ModelProto:
    """Returns text BYTES [-1, 4] -> x FP32 [-1, 4]: the numbers that the texts spell."""
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [None, 4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])
    return finish(
        helper.make_graph([helper.make_node("Cast", ["text"], ["x"], to=TensorProto.FLOAT)], "numbers", [text], [x])
    )


def species() -> ModelProto:
    """Returns label INT64 [-1] -> name BYTES [-1]: what the labels of `iris` mean."""
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [None])
    name = helper.make_tensor_value_info("name", TensorProto.STRING, [None])
    classes = load_iris().target_names.tolist()
    node = helper.make_node(
        "LabelEncoder",
        ["label"],
        ["name"],
        domain="ai.onnx.ml",
        keys_int64s=range(len(classes)),
        values_strings=classes,
        default_string="unknown",
    )
    return finish(helper.make_graph([node], "species", [label], [name]))


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
PASSENGERS_SETTINGS = {
    "name": "passengers",
    "explainer": {"background": voyage()[0][::13].to_dict("list")},
}


FLOWERS = {
    "steps": [
        {"model": "numbers"},
        {"model": "iris"},
        {"model": "species", "outputs": {"name": "species"}},
    ],
    "outputs": ["species", "probabilities"],
}
"""A pipeline: text BYTES [-1, 4] -> species BYTES [-1], probabilities FP32 [-1, 3]."""


def make(root: Path) -> None:
    """Writes the repository below root."""
    for place, model in (
        ("half_plus_three/123", half_plus_three()),
        ("iris/1", iris()),
        ("numbers/1", numbers()),
        ("passengers/1", table_model()),
        ("species/1", species()),
        ("strings/1", strings()),
    ):
        folder = root / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    for settings in (HALF_PLUS_THREE_SETTINGS, IRIS_SETTINGS, PASSENGERS_SETTINGS):
        name = str(settings["name"])
        text = json.dumps(settings, indent=2) + "\n"
        (root / name / "model-settings.json").write_text(text, encoding="utf-8")
    folder = root / "flowers" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.json").write_text(json.dumps(FLOWERS, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
