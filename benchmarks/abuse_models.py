"""The models that `abuse` asks: they compute almost nothing, so what is measured is reading and writing."""

import json
from pathlib import Path

from onnx import GraphProto, TensorProto, helper, save

from benchmarks import overload, repository
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
    put(folder, name, helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], name, [x], [y]))


EXPLAINED = {"explainer": {"background": [[0, 0, 0, 0], [1, 2, 3, 4], [4, 3, 2, 1]]}}
COLUMNS = {"age": TensorProto.FLOAT, "sex": TensorProto.STRING, "class": TensorProto.INT64}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##a": 2},
    },
}  # fmt: skip
TEXTS = {"steps": [{"tokenizer": {"max_length": 16, "pad_token": "[UNK]"}}]}


def columns(folder: Path, name: str) -> None:
    """Writes a model with an input [n, 1] for each column of a table, which returns each as it is."""
    inputs = [helper.make_tensor_value_info(each, kind, ["n", 1]) for each, kind in COLUMNS.items()]
    outputs = [helper.make_tensor_value_info(f"{each}_out", kind, ["n", 1]) for each, kind in COLUMNS.items()]
    nodes = [helper.make_node("Identity", [each], [f"{each}_out"]) for each in COLUMNS]
    put(folder, name, helper.make_graph(nodes, name, inputs, outputs))


def vectors(folder: Path, name: str) -> None:
    """Writes a model of texts [n] to vectors [n, 1], for /v1/embeddings."""
    inputs = [helper.make_tensor_value_info("text", TensorProto.STRING, ["n"])]
    outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 1])]
    domain, known = "ai.onnx.ml", {"keys_strings": ["a"], "values_floats": [1.0]}
    nodes = [
        helper.make_node("LabelEncoder", ["text"], ["number"], domain=domain, **known),
        helper.make_node("Reshape", ["number", "column"], ["embedding"]),
    ]
    graph = helper.make_graph(
        nodes, name, inputs, outputs, [helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1])]
    )
    put(folder, name, graph)


def put(folder: Path, name: str, graph: GraphProto) -> None:
    """Writes the graph as version 1 of a model."""
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", 2)]
    (folder / name / "1").mkdir(parents=True)
    save(helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets), folder / name / "1" / "model.onnx")


def make(folder: Path) -> None:
    repository.make(folder)
    vectors(folder, "vectors")
    columns(folder, "columns")
    identity(folder, "explained", TensorProto.FLOAT, ["n", 4])
    (folder / "explained" / "1" / "model-settings.json").write_text(json.dumps(EXPLAINED))
    (folder / "slow" / "1").mkdir(parents=True)
    (folder / "slow" / "1" / "model.py").write_text(overload.MODEL)
    (folder / "texts" / "1").mkdir(parents=True)
    (folder / "texts" / "1" / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "texts" / "1" / "pipeline.json").write_text(json.dumps(TEXTS))
    identity(folder, "fixed", TensorProto.FLOAT, [1, 4])
    identity(folder, "doubles", TensorProto.DOUBLE, [1, "n"])
    identity(folder, "examples", TensorProto.FLOAT, ["n", 4])
    (folder / "examples" / "1" / "model-settings.json").write_text(json.dumps(SIGNATURES))
