"""Models for which batching matters, or does not: a 12-layer encoder, and boosted trees; written with onnx."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

LAYERS: Final = 12
WIDTH: Final = 384
INNER: Final = 1536
HEADS: Final = 12
WORDS: Final = 1000
FEATURES: Final = 30
TREES: Final = 500
DEPTH: Final = 6
"""The encoder has the sizes of MiniLM-L12, the trees those of common gradient-boosted models."""


class _Encoder:
    """An encoder's graph: attention, a residual, a normalization, two dense layers, in each layer."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._random = np.random.default_rng(0)
        self._ints("split", 0, 0, HEADS, WIDTH // HEADS)
        self._ints("merge", 0, 0, WIDTH)
        self.constants.append(numpy_helper.from_array(np.float32(np.sqrt(WIDTH // HEADS)), "scale"))

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Returns the name of a new node's output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weights(self, *shape: int) -> str:
        name = f"w{len(self.constants)}"
        values = self._random.standard_normal(shape) / np.sqrt(shape[0])
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def layer(self, x: str) -> str:
        """Returns the output of one more layer."""
        query, values = self._heads(x, [0, 2, 1, 3]), self._heads(x, [0, 2, 1, 3])
        scores = self.add("Div", self.add("MatMul", query, self._heads(x, [0, 2, 3, 1])), "scale")
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        merged = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), "merge")
        x = self._normal(self.add("Add", x, self.add("MatMul", merged, self.weights(WIDTH, WIDTH))))
        inner = self.add("Relu", self.add("MatMul", x, self.weights(WIDTH, INNER)))
        return self._normal(self.add("Add", x, self.add("MatMul", inner, self.weights(INNER, WIDTH))))

    def _heads(self, x: str, order: list[int]) -> str:
        projected = self.add("MatMul", x, self.weights(WIDTH, WIDTH))
        return self.add("Transpose", self.add("Reshape", projected, "split"), perm=order)

    def _normal(self, x: str) -> str:
        return self.add("LayerNormalization", x, self.weights(WIDTH), axis=-1)

    def _ints(self, name: str, *values: int) -> None:
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))


def encoder(path: Path, tokens: int) -> None:
    """Writes ids [n, tokens] -> y [n, WIDTH], the mean of the last layer."""
    made = _Encoder()
    x = made.add("Gather", made.weights(WORDS, WIDTH), "ids")
    for _ in range(LAYERS):
        x = made.layer(x)
    made.nodes.append(helper.make_node("ReduceMean", [x], ["y"], axes=[1], keepdims=0))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", tokens])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])
    _save(path, helper.make_graph(made.nodes, "encoder", [ids], [y], made.constants))


def trees(path: Path) -> None:
    """Writes x [n, FEATURES] -> y [n, 1], of complete binary trees."""
    random = np.random.default_rng(0)
    inner, nodes = 2**DEPTH - 1, 2 ** (DEPTH + 1) - 1
    tree, node = np.divmod(np.arange(TREES * nodes), nodes)
    leaf = node >= inner
    attributes = {
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(leaf, 0, random.integers(0, FEATURES, len(node))),
        "nodes_values": np.where(leaf, 0, random.standard_normal(len(node))),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": np.where(leaf, 0, 2 * node + 1),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * node + 2),
        "target_treeids": tree[leaf],
        "target_nodeids": node[leaf],
        "target_ids": np.zeros(leaf.sum(), int),
        "target_weights": random.standard_normal(leaf.sum()),
    }
    lists = {name: values.tolist() for name, values in attributes.items()}
    made = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **lists)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    _save(path, helper.make_graph([made], "trees", [x], [y]))


def linear(path: Path) -> None:
    """Writes x [n, FEATURES] -> y [n, 1], which takes next to no time."""
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((FEATURES, 1)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    _save(path, helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "linear", [x], [y], [weights]))


def _save(path: Path, graph: Any) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path.parent.mkdir(parents=True)
    save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
