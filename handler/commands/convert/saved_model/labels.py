"""Turns classes that do not depend on the examples into the settings' class_labels.

Exporters tile a vocabulary to the batch's size, and often read it from assets/ through a hash table. ONNX lacks these
string operations, and their result is known beforehand.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from handler.commands.convert.saved_model.features import Feature
from handler.commands.convert.saved_model.graph import SIZES_ONLY, Nodes, node_of, tensor
from handler.commands.convert.saved_model.opened import SavedModel, SavedSignature
from handler.commands.convert.saved_model.runtime import tf

CLASSES: Final = "classes"
MATRIX: Final = 2


def class_labels(
    saved: SavedModel, nodes: Nodes, signature: SavedSignature, copy: str, features: Iterable[Feature]
) -> list[str] | None:
    """Returns the label of each score. None if `copy`, the classes' node, depends on more than the batch's size."""
    if signature.method != "classify" or set(signature.outputs) != {CLASSES, "scores"}:
        return None
    if any(nodes[name].op == "Placeholder" for name in _values_of(nodes, copy)):
        return None
    answer = saved.session.run(tensor(signature.outputs[CLASSES].tensor), _one_of_nothing(signature, features))
    if answer.ndim != MATRIX or answer.shape[0] != 1 or answer.dtype != object:
        return None
    return [label.decode(errors="replace") for label in answer[0]]


def _values_of(nodes: Nodes, copy: str) -> set[str]:
    """Returns the nodes whose values determine the classes, without those whose sizes alone do."""
    found = nodes.ancestors([copy], SIZES_ONLY)
    return {name for name in found if name == node_of(copy) or nodes[name].op not in SIZES_ONLY}


def _one_of_nothing(signature: SavedSignature, features: Iterable[Feature]) -> dict[str, Any]:
    """Returns a feed of one example, all zeros."""
    if signature.examples is not None:
        example = tf.train.Example()
        for feature in features:
            fill_zeros(example.features.feature[feature.name], feature.dtype, abs(int(np.prod(feature.shape))))
        return {tensor(signature.examples.tensor): [example.SerializeToString()]}
    return {
        tensor(port.tensor): np.zeros(
            [max(size, 1) for size in port.shape or (1,)], tf.as_dtype(port.dtype).as_numpy_dtype
        )
        for port in signature.inputs.values()
    }


def fill_zeros(feature: Any, dtype: int, count: int) -> None:
    """Appends `count` zeros, or empty texts, to a feature of an example."""
    kind = tf.as_dtype(dtype)
    values: Sequence[Any] = [0] * count
    if kind == tf.string:
        feature.bytes_list.value.extend([b""] * count)
    elif kind.is_floating:
        feature.float_list.value.extend(values)
    else:
        feature.int64_list.value.extend(values)
