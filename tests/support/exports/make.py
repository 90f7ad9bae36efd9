"""Makes the exports beside this file: real models, by their libraries' own exporters, with the libraries' own answers.

    pip install scikit-learn skl2onnx onnxmltools lightgbm xgboost torch onnxscript pandas
    python tests/support/exports/make.py [NAME ...]

The folder is a repository: <name>/1/model.onnx, and <name>/model-settings.json with a background for explanations.
<name>/expected.json has "rows" as V1 takes them, the whole inputs as "columns", and "outputs", which are the original
library's answers and not ONNX Runtime's. Files are small on purpose, and are committed, as the exporters take 5 GB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import onnxmltools
import pandas as pd
import torch
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as ToolsFloats
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
IRIS, CLASSES = load_iris(return_X_y=True)
NAMES = load_iris().target_names[CLASSES]
FLOATS = IRIS.astype(np.float32)
FEW = FLOATS[::40]
BACKGROUND = FLOATS[::15]


def people(count: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    """Returns passengers of an invented ship: two columns of numbers, two of text, and who survived."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(1, 80, count),
            "fare": np.round(rng.gamma(2.0, 15.0, count), 2),
            "sex": rng.choice(["m", "f"], count),
            "port": rng.choice(["C", "Q", "S"], count),
        }
    )
    odds = 2.0 * (table["sex"] == "f") - 0.03 * table["age"] + 0.02 * table["fare"] + 0.5 * (table["port"] == "C")
    return table, np.where(rng.random(count) < 1 / (1 + np.exp(-odds)), "lived", "died")


def write(name: str, model: Any, inputs: dict[str, Any], outputs: dict[str, Any], background: dict[str, Any]) -> None:
    """Writes one export. Inputs are columns, with one value for each row."""
    folder = HERE / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    columns = {key: np.asarray(value).tolist() for key, value in inputs.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    found = {key: np.asarray(value).tolist() for key, value in outputs.items()}
    dump(folder / "expected.json", {"rows": rows, "columns": columns, "outputs": found})
    said = {key: np.asarray(value).tolist() for key, value in background.items()}
    dump(folder / "model-settings.json", {"explainer": {"background": said}})


def dump(path: Path, document: Any) -> None:
    """Writes JSON, with a line for each member."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def skl_default() -> None:
    """A classifier, exported with an example alone: its probabilities are a sequence of maps by number."""
    model = LogisticRegression(max_iter=500).fit(FLOATS, CLASSES)
    outputs = {"output_label": model.predict(FEW), "output_probability": model.predict_proba(FEW)}
    write("skl_default", to_onnx(model, FLOATS[:1]), {"X": FEW}, outputs, {"X": BACKGROUND})


def skl_maps() -> None:
    """A classifier with classes of text, exported with the defaults: a sequence of maps by text."""
    model = GaussianNB().fit(FLOATS, NAMES)
    outputs = {"output_label": model.predict(FEW), "output_probability": model.predict_proba(FEW)}
    write("skl_maps", to_onnx(model, FLOATS[:1]), {"X": FEW}, outputs, {"X": BACKGROUND})


def dataframe() -> None:
    """A pipeline on a DataFrame: each column is an input [-1, 1] of its own, of INT64, FP32 or BYTES."""
    table, survived = people()
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["age", "fare"]), ("texts", OneHotEncoder(), ["sex", "port"])]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, survived)
    # With the types of the table itself, to_onnx(model, table[:1]), the fare is FP64, and skl2onnx 1.20 mixes the two.
    types = [("age", Int64TensorType([None, 1])), ("fare", FloatTensorType([None, 1]))]
    types += [(name, StringTensorType([None, 1])) for name in ("sex", "port")]
    few = table[:4]
    outputs = {"output_label": model.predict(few), "output_probability": model.predict_proba(few)}
    background = {name: table[name][10:20] for name in table}
    write("dataframe", to_onnx(model, initial_types=types), dict(few), outputs, background)


def string_columns() -> None:
    """A pipeline on an array of text, with probabilities as a tensor."""
    table, survived = people()
    texts = table[["sex", "port"]].to_numpy(object)
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(texts, survived)
    exported = to_onnx(
        model, initial_types=[("X", StringTensorType([None, 2]))], options={id(model): {"zipmap": False}}
    )
    few = texts[:4]
    outputs = {"label": model.predict(few), "probabilities": model.predict_proba(few)}
    write("string_columns", exported, {"X": few}, outputs, {"X": texts[10:20]})


def lgbm() -> None:
    """A LightGBM classifier by onnxmltools with the defaults: a sequence of maps."""
    model = lightgbm.LGBMClassifier(n_estimators=4, num_leaves=4, verbose=-1).fit(FLOATS, CLASSES)
    exported = onnxmltools.convert_lightgbm(model, initial_types=[("input", ToolsFloats([None, 4]))])
    outputs = {"label": model.predict(FEW), "probabilities": model.predict_proba(FEW)}
    write("lightgbm", exported, {"input": FEW}, outputs, {"input": BACKGROUND})


def xgb() -> None:
    """An XGBoost classifier by onnxmltools."""
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=2).fit(FLOATS, CLASSES)
    exported = onnxmltools.convert_xgboost(model, initial_types=[("input", ToolsFloats([None, 4]))])
    outputs = {"label": model.predict(FEW), "probabilities": model.predict_proba(FEW)}
    write("xgboost", exported, {"input": FEW}, outputs, {"input": BACKGROUND})


def isolation_forest() -> None:
    """An outlier detector: -1 and 1 [-1, 1], and scores [-1, 1]."""
    model = IsolationForest(n_estimators=4, max_samples=16, random_state=0).fit(FLOATS)
    opsets = {"": 15, "ai.onnx.ml": 3}
    outputs = {"label": model.predict(FEW)[:, None], "scores": model.decision_function(FEW)[:, None]}
    write("isolation_forest", to_onnx(model, FLOATS[:1], target_opset=opsets), {"X": FEW}, outputs, {"X": BACKGROUND})


def regressor_fp64() -> None:
    """A regressor in FP64, as an export of float64 data is."""
    data, targets = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(data, targets)
    few = data[:3]
    exported = to_onnx(model, initial_types=[("X", DoubleTensorType([None, 10]))])
    write("regressor_fp64", exported, {"X": few}, {"variable": model.predict(few)[:, None]}, {"X": data[10:14]})


class Network(torch.nn.Module):
    """Two layers, the same in every run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, 4] -> [rows, 3]."""
        return self.layers(x).softmax(-1)


def network(name: str, *, batch: bool = True, rows: np.ndarray = FEW, dynamo: bool = True) -> None:
    """A torch module, by either exporter, with a free batch or with that of its example."""
    import onnx  # noqa: PLC0415 - as the others need their libraries only

    model = Network().eval()
    path = HERE / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "external_data": False}
    if batch:
        names |= {"dynamic_shapes": ({0: "batch"},)} if dynamo else {"dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(model, (torch.from_numpy(FLOATS[: 2 if batch else 1]),), path, dynamo=dynamo, **names)
    exported = onnx.load(path)
    for node in exported.graph.node:
        del node.metadata_props[:]  # stack traces of this machine
    del exported.graph.metadata_props[:]
    with torch.no_grad():
        outputs = {"y": model(torch.from_numpy(rows)).numpy()}
    write(name, exported, {"x": rows}, outputs, {"x": BACKGROUND})


EXPORTS: dict[str, Callable[[], None]] = {
    "skl_default": skl_default,
    "skl_maps": skl_maps,
    "dataframe": dataframe,
    "string_columns": string_columns,
    "lightgbm": lgbm,
    "xgboost": xgb,
    "isolation_forest": isolation_forest,
    "regressor_fp64": regressor_fp64,
    "torch_dynamo": lambda: network("torch_dynamo"),
    "torch_legacy": lambda: network("torch_legacy", dynamo=False),
    "torch_fixed": lambda: network("torch_fixed", batch=False, rows=FEW[:1]),
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or EXPORTS:
        EXPORTS[chosen]()
