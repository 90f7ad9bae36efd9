"""The models that tests of /v1 use: those of `tests.zoo` and more, with signatures, labels, defaults and pins."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.support.zoo import models as zoo
from tests.support.zoo.models import Port, adds, graph, identity

NAMED_VERSIONS: Final = (1, 2, 10)
IDLE: Final = ("idle", "idle_then_asked", "idle_then_gone", "idle_for_kserve", "idle_for_metadata")
"""Models of one test each, which no other test may load."""
WEIGHTS: Final = (2.0, -3.0, 0.5)
"""The linear model's weights: its Shapley values against a background of zeros are weight * feature."""


def half_plus(number: float) -> ModelProto:
    """Y = x / 2 + number, FP32 of any rank."""
    constants = {"half": np.array(0.5, np.float32), "number": np.array(number, np.float32)}
    nodes = [helper.make_node("Mul", ["x", "half"], ["halved"]), helper.make_node("Add", ["halved", "number"], ["y"])]
    return graph("half_plus", nodes, [("x", "FP32", None)], [("y", "FP32", None)], constants)


def seeds() -> ModelProto:
    """The three inputs of the specification's example pass through, in any shape."""
    ports = [("tag", "BYTES"), ("signal", "FP32"), ("sensor", "FP32")]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name, _ in ports]
    inputs: list[Port] = [(name, datatype, None) for name, datatype in ports]
    outputs: list[Port] = [(f"{name}_out", datatype, None) for name, datatype in ports]
    return graph("seeds", nodes, inputs, outputs)


def shapes() -> ModelProto:
    """X FP32 [-1] -> same [-1], head: its first two at most, total []: their sum."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Slice", ["x", "from", "to"], ["head"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
    ]
    outputs: list[Port] = [("same", "FP32", [None]), ("head", "FP32", [None]), ("total", "FP32", [])]
    constants = {"from": np.array([0]), "to": np.array([2])}
    return graph("shapes", nodes, [("x", "FP32", [None])], outputs, constants)


def constant() -> ModelProto:
    """Takes no input, returns y = [1.5]."""
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.5])
    return graph("constant", [helper.make_node("Constant", [], ["y"], value=value)], [], [("y", "FP32", [1])])


def offset() -> ModelProto:
    """Z = x + y, FP32 of any rank."""
    node = helper.make_node("Add", ["x", "y"], ["z"])
    return graph("offset", [node], [("x", "FP32", None), ("y", "FP32", None)], [("z", "FP32", None)])


def twice() -> ModelProto:
    """Text BYTES of any shape -> first and second, both unchanged."""
    nodes = [helper.make_node("Identity", ["text"], [name]) for name in ("first", "second")]
    outputs: list[Port] = [("first", "BYTES", None), ("second", "BYTES", None)]
    return graph("twice", nodes, [("text", "BYTES", None)], outputs)


def person() -> ModelProto:
    """Weight FP32, count INT64, pair INT64 [2], name BYTES per example -> sum of the numbers in several forms, name."""
    inputs: list[Port] = [("weight", "FP32", [None, 1]), ("count", "INT64", [None, 1]), ("pair", "INT64", [None, 2])]
    inputs.append(("name", "BYTES", [None, 1]))
    nodes = [
        helper.make_node("ReduceSum", ["pair", "axis"], ["both"], keepdims=1),
        helper.make_node("Add", ["count", "both"], ["counts"]),
        helper.make_node("Cast", ["counts"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["weight", "floats"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["sum64"], to=TensorProto.DOUBLE),
        helper.make_node("Squeeze", ["sum", "axis"], ["flat"]),
        helper.make_node("Concat", ["sum", "weight"], ["two"], axis=1),
        helper.make_node("Identity", ["name"], ["name_out"]),
    ]
    columns = [("sum", "FP32"), ("sum64", "FP64"), ("name_out", "BYTES")]
    outputs: list[Port] = [(name, datatype, [None, 1]) for name, datatype in columns]
    outputs += [("flat", "FP32", [None]), ("two", "FP32", [None, 2])]
    return graph("person", nodes, inputs, outputs, {"axis": np.array([1])})


def photo() -> ModelProto:
    """Jpeg UINT8 [-1, -1] -> pixels, unchanged: one row of bytes per image."""
    node = helper.make_node("Identity", ["jpeg"], ["pixels"])
    ports = [("jpeg", "UINT8", [None, None])], [("pixels", "UINT8", [None, None])]
    return graph("photo", [node], *ports)


def linear() -> ModelProto:
    """X FP32 [-1, 3] -> y [-1], x times WEIGHTS, plus 1."""
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["product"]),
        helper.make_node("Add", ["product", "one"], ["y"]),
    ]
    constants = {"weights": np.array(WEIGHTS, np.float32), "one": np.array(1, np.float32)}
    return graph("linear", nodes, [("x", "FP32", [None, 3])], [("y", "FP32", [None])], constants)


def onnx_models() -> dict[str, ModelProto]:
    """Returns every ONNX model by its folder."""
    return {
        "half_plus_two/00000123": half_plus(2.0),
        **{f"labelled/{number}": adds(number) for number in NAMED_VERSIONS},
        **{f"labelled_latest/{number}": adds(number) for number in (1, 2)},
        **{f"version_zero/{number}": adds(number) for number in (0, 3)},
        "seeds/1": seeds(), "shapes/1": shapes(), "constant/1": constant(), "offset/1": offset(),
        "binary_names/1": twice(), "person/1": person(), "photo/1": photo(), "linear/1": linear(),
        "pinned_tfs/1": identity("FP32", None), "pinned_kserve/1": identity("FP32", None),
        **{f"{name}/1": adds(1) for name in IDLE},
        "some_broken/1": adds(1),
    }  # fmt: skip


_FEATURES = {
    "weight": "weight", "count": {"tensor": "count", "shape": [1], "default": [3]},
    "pair": {"tensor": "pair", "default": [0, 0]}, "name": {"tensor": "name", "default": ["nobody"]},
}  # fmt: skip


def _examples(method: str, **outputs: str) -> dict[str, Any]:
    return {"method": method, "inputs": _FEATURES, "outputs": outputs}


_X = {"x": {"tensor": "x", "shape": [1]}}

_X_TO_Y = ({"x": "x"}, {"y": "y"})
_JPEG = {"image_bytes": {"tensor": "jpeg", "encoding": "bytes"}}
_SEED = ("tag", "signal", "sensor")


def _signed(**signatures: tuple[dict[str, Any], dict[str, Any]] | dict[str, Any]) -> dict[str, Any]:
    """Returns settings with these signatures: inputs and outputs, or whole."""
    pairs = {name: dict(zip(("inputs", "outputs"), said, strict=True)) if isinstance(said, tuple) else said
             for name, said in signatures.items()}  # fmt: skip
    return {"signatures": pairs}


SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "half_plus_two": {"name": "half_plus_two", **_signed(
        serving_default=_X_TO_Y, regress_x_to_y={"method": "regress", "inputs": _X, "outputs": {"outputs": "y"}},
        classify_x_to_y={"method": "classify", "inputs": _X, "outputs": {"scores": "y"}})},
    "labelled": {"version_policy": {"all": {}}, "version_labels": {
        "stable": 1, "pre release": 10, "gone": 99, "a/b": 1, "b:predict": 2, "c/metadata": 10, "@50%2F?#[]": 2}},
    "labelled_latest": {"version_labels": {"old": 1, "new": 2}},
    "version_zero": {"version_policy": {"all": {}}},
    "some_broken": {"version_policy": {"all": {}}, "version_labels": {"good": 1, "bad": 2}},
    "seeds": _signed(serving_default=({name: name for name in _SEED}, {name: f"{name}_out" for name in _SEED})),
    "shapes": _signed(
        serving_default=({"x": "x"}, {"same": "same"}), head=({"x": "x"}, {"head": "head"}),
        uneven=({"x": "x"}, {"same": "same", "head": "head"}), total=({"x": "x"}, {"total": "total"}),
        regress_head={"method": "regress", "inputs": {"x": "x"}, "outputs": {"outputs": "head"}}),
    "offset": _signed(serving_default=({"x": "x", "y": {"tensor": "y", "default": 10.0}}, {"z": "z"})),
    "binary_names": _signed(
        serving_default=({"text": "text"}, {"image_bytes": "first", "caption": "second"}),
        one=({"text": "text"}, {"image_bytes": "first"}), input_only=({"text_bytes": "text"}, {"caption": "first"})),
    "photo": _signed(
        serving_default=(_JPEG, {"image_bytes": {"tensor": "pixels", "encoding": "bytes"}}),
        numbers=(_JPEG, {"p": "pixels"})),
    "person": _signed(
        serving_default={"outputs": {"sum": "sum"}},
        regress=_examples("regress", outputs="sum"), regress_flat=_examples("regress", outputs="flat"),
        regress_double=_examples("regress", outputs="sum64"), regress_two=_examples("regress", outputs="two"),
        regress_text=_examples("regress", outputs="name_out"),
        classify=_examples("classify", scores="sum", classes="name_out"),
        classify_scores=_examples("classify", scores="two"),
        classify_labelled={**_examples("classify", scores="two"), "class_labels": ["sum", "weight"]},
        classify_classes=_examples("classify", classes="name_out"),
        classify_double=_examples("classify", scores="sum64"),
        classify_uneven=_examples("classify", scores="two", classes="name_out")),
    "linear": {"explainer": {"background": [[0.0, 0.0, 0.0]]}},
    "pinned_tfs": {"v1_dialect": "tfs"},
    "pinned_kserve": {"v1_dialect": "kserve"},
}  # fmt: skip

_UNTYPED = '''
"""Anything -> seen: what arrived, one text per input."""
import numpy as np

def predict(inputs, parameters):
    texts = [f"{name} {array.dtype.str} {list(array.shape)}" for name, array in sorted(inputs.items())]
    return {"seen": np.array(texts, object)}
'''

_EXPLAINS = '''
"""x -> 2 x, and explains each row by itself."""
metadata = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]}

def predict(inputs, parameters):
    return {"y": inputs["x"] * 2}

def explain(inputs, parameters):
    return [{"importance_scores": row} for row in inputs["x"].tolist()]
'''

PYTHON_MODELS: Final = {"py_untyped": _UNTYPED, "py_explains": _EXPLAINS}


def build(root: Path) -> Path:
    """Writes the whole repository below root, which is returned."""
    zoo.build(root)
    files = {f"{place}/model.onnx": model.SerializeToString() for place, model in onnx_models().items()}
    files |= {f"{name}/1/model.py": source.encode() for name, source in PYTHON_MODELS.items()}
    files |= {f"{name}/model-settings.json": json.dumps(value).encode() for name, value in SETTINGS.items()}
    files["some_broken/2/model.onnx"] = b"this is not a model"
    for place, content in files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root
