"""Writes a repository of the models that tests use, ONNX ones with `onnx`, python ones as source text."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from tests.support.zoo.python import PYTHON_MODELS

IR_VERSION = 8
OPSET = 13


class Datatype(NamedTuple):
    """One element type as the tests know it, apart from the table of the product."""

    name: str
    onnx: int
    numpy: DTypeLike

    @property
    def model(self) -> str:
        """Returns the identity model of this type that takes any shape."""
        return f"identity_{self.name.lower()}"


_BF16 = Datatype("BF16", TensorProto.BFLOAT16, ml_dtypes.bfloat16)
_JSON_DATATYPES = (
    Datatype("BOOL", TensorProto.BOOL, np.bool_), Datatype("UINT8", TensorProto.UINT8, np.uint8),
    Datatype("UINT16", TensorProto.UINT16, np.uint16), Datatype("UINT32", TensorProto.UINT32, np.uint32),
    Datatype("UINT64", TensorProto.UINT64, np.uint64), Datatype("INT8", TensorProto.INT8, np.int8),
    Datatype("INT16", TensorProto.INT16, np.int16), Datatype("INT32", TensorProto.INT32, np.int32),
    Datatype("INT64", TensorProto.INT64, np.int64), Datatype("FP16", TensorProto.FLOAT16, np.float16),
    Datatype("FP32", TensorProto.FLOAT, np.float32), Datatype("FP64", TensorProto.DOUBLE, np.float64),
    Datatype("BYTES", TensorProto.STRING, np.object_),
)  # fmt: skip
DATATYPES: Final = {datatype.name: datatype for datatype in (*_JSON_DATATYPES, _BF16)}
JSON_DATATYPES: Final = tuple(datatype.name for datatype in _JSON_DATATYPES)
"""BF16 has no form in JSON; all others have one."""

LABELS: Final = ("ant", "bee", "cat", "dog")
VERSIONS: Final = (1, 2, 10)
SPARES: Final = (
    *("load", "unload", "reload", "statistics", "triton", "aio", "ready"),
    *("rpc_load", "rpc_statistics", "rpc_ready", "rpc_triton"),
)
"""Models, each of which a single test may load and unload."""

type_of = {name: datatype.onnx for name, datatype in DATATYPES.items()}

Port = tuple[str, str, "Sequence[int | str | None] | None"]
"""Name, datatype and shape of a graph's input or output; a shape of None leaves the rank open."""


def graph(
    name: str,
    nodes: Iterable[Any],
    inputs: Iterable[Port],
    outputs: Iterable[Port],
    constants: dict[str, NDArray[Any]] | None = None,
) -> ModelProto:
    values = [numpy_helper.from_array(value, key) for key, value in (constants or {}).items()]
    ports = [[helper.make_tensor_value_info(n, type_of[t], s) for n, t, s in side] for side in (inputs, outputs)]
    made: GraphProto = helper.make_graph(list(nodes), name, *ports, values)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="zoo")


def identity(datatype: str, shape: Sequence[int | str | None] | None) -> ModelProto:
    """INPUT0 -> OUTPUT0 of one type, unchanged."""
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    return graph("identity", [node], [("INPUT0", datatype, shape)], [("OUTPUT0", datatype, shape)])


def add_sub(shape: Sequence[int | str | None]) -> ModelProto:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, all INT32."""
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    sides = [[(f"{side}{i}", "INT32", shape) for i in (0, 1)] for side in ("INPUT", "OUTPUT")]
    return graph("add_sub", nodes, *sides)


def three_types() -> ModelProto:
    """Three independent vectors pass through: integers, text, flags."""
    ports = [("integers", "INT32"), ("text", "BYTES"), ("flags", "BOOL")]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name, _ in ports]
    inputs = [(name, datatype, [None]) for name, datatype in ports]
    outputs = [(f"{name}_out", datatype, [None]) for name, datatype in ports]
    return graph("three_types", nodes, inputs, outputs)


def adds(number: int) -> ModelProto:
    """Y = x + number, INT64 [-1]: with x = 0 the answer tells which version ran."""
    node = helper.make_node("Add", ["x", "number"], ["y"])
    return graph("adds", [node], [("x", "INT64", [None])], [("y", "INT64", [None])], {"number": np.array([number])})


def zero_dims() -> ModelProto:
    """Matrix FP32 [-1, -1] -> same [-1, -1] and sums [-1], its row sums: a row of nothing sums to 0."""
    nodes = [
        helper.make_node("Identity", ["matrix"], ["same"]),
        helper.make_node("ReduceSum", ["matrix", "axis"], ["sums"], keepdims=0),
    ]
    outputs: list[Port] = [("same", "FP32", [None, None]), ("sums", "FP32", [None])]
    return graph("zero_dims", nodes, [("matrix", "FP32", [None, None])], outputs, {"axis": np.array([1])})


def total() -> ModelProto:
    """Sums x FP32 [-1] to sum FP32 []: an output without rows."""
    node = helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0)
    return graph("total", [node], [("x", "FP32", [None])], [("sum", "FP32", [])])


def fails() -> ModelProto:
    """Gather from three numbers: an index out of range is valid V2 and fails while the model runs."""
    node = helper.make_node("Gather", ["table", "index"], ["value"])
    table = {"table": np.array([10, 20, 30], np.float32)}
    return graph("fails", [node], [("index", "INT64", [None])], [("value", "FP32", [None])], table)


def counts() -> ModelProto:
    """N INT64 [1] -> numbers FP32 [1, n]: 0, 1, 2 ... - an answer of any size for a small question."""
    nodes = [
        helper.make_node("Squeeze", ["n", "first"], ["limit"]),
        helper.make_node("Range", ["zero", "limit", "one"], ["integers"]),
        helper.make_node("Cast", ["integers"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "first"], ["numbers"]),
    ]
    constants = {"first": np.array([0]), "zero": np.array(0), "one": np.array(1)}
    return graph("counts", nodes, [("n", "INT64", [1])], [("numbers", "FP32", [1, None])], constants)


def classifier(shape: Sequence[int | str | None]) -> ModelProto:
    """Scores pass through unchanged, so that a test chooses the winner."""
    node = helper.make_node("Identity", ["features"], ["scores"])
    return graph("classifier", [node], [("features", "FP32", shape)], [("scores", "FP32", shape)])


LABELLED = {"method": "classify", "inputs": {"features": "features"}, "outputs": {"scores": "scores"}}
LABEL_SETTINGS = {"signatures": {"serving_default": {**LABELLED, "class_labels": list(LABELS)}}}
SCALAR = {"shape": [], "datatype": "FP32"}
SCALAR_SETTINGS = {"inputs": [{"name": "INPUT0", **SCALAR}], "outputs": [{"name": "OUTPUT0", **SCALAR}]}


def onnx_models() -> dict[str, ModelProto]:
    """Returns every ONNX model by its folder: "<model>/<version>"."""
    return {
        **{f"{datatype.model}/1": identity(name, None) for name, datatype in DATATYPES.items()},
        **{f"vector_{name.lower()}/1": identity(name, [None]) for name in JSON_DATATYPES},
        "matrix/1": identity("FP32", [None, None]), "fixed/1": identity("FP32", [2, 3]),
        "named_dims/1": identity("FP32", ["batch", 3]), "scalar/1": identity("FP32", []),
        "scalar_by_settings/1": identity("FP32", None), "one_text/1": identity("BYTES", [1]),
        "add_sub/1": add_sub([16]), "any_add_sub/1": add_sub([None]), "mo-del.v1_beta.2/1": identity("INT32", [None]),
        "three_types/1": three_types(),
        **{f"versions{policy}/{number}": adds(number) for policy in ("", "_latest", "_latest_two", "_specific")
           for number in VERSIONS},
        "versions_padded/0007": adds(7), "zero_dims/1": zero_dims(), "fails/1": fails(), "counts/1": counts(),
        "classifier/1": classifier([None]), "classifier_batch/1": classifier([None, 4]),
        "classifier_unlabelled/1": classifier([None]),
        **{f"spare_{name}/1": adds(5) for name in SPARES},
    }  # fmt: skip


SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "scalar_by_settings": SCALAR_SETTINGS,
    "versions": {"name": "versions", "version_policy": {"all": {}}, "unheard_of": [1]},
    "versions_latest_two": {"version_policy": {"latest": {"num_versions": 2}}},
    "versions_specific": {"version_policy": {"specific": {"versions": [1, 2]}}},
    "classifier": LABEL_SETTINGS,
    "classifier_batch": LABEL_SETTINGS,
}

BROKEN: Final = {
    "broken_onnx/1/model.onnx": b"this is not a model", "broken_empty/1/model.onnx": b"",
    "broken_newest/2/model.onnx": b"\x08\x08 cut", "broken_settings/model-settings.json": b'{"name": ',
}  # fmt: skip
"""Models that no server can load: each is listed, refused with its reason, and hurts no other model."""


def build(root: Path) -> Path:
    """Writes the whole repository below root, which is returned."""
    models = onnx_models() | {"broken_newest/1": adds(1), "broken_settings/1": adds(1)}
    files = {f"{place}/model.onnx": model.SerializeToString() for place, model in models.items()}
    files |= {f"{name}/1/model.py": source.encode() for name, source in PYTHON_MODELS.items()}
    files |= {f"{name}/model-settings.json": json.dumps(value).encode() for name, value in SETTINGS.items()}
    files |= BROKEN
    for place, content in files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root
