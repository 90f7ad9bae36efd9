"""Trees of scikit-learn: where each split sends missing values, which skl2onnx does not write."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

KINDS: Final = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
LEAF: Final = b"LEAF"
TRACKS: Final = "nodes_missing_value_tracks_true"


def send_missing_values(made: Any, model: Any) -> None:
    """Makes the splits of an ONNX model send NaN where the trees of the estimator send it.

    A tree of the ONNX model is that of the estimator with the same features, children and thresholds.
    """
    trees: dict[bytes, list[Any]] = {}
    for tree in _trees(model, set()):
        left, right = tree.children_left, tree.children_right
        trees.setdefault(_shape(left >= 0, tree.feature, left, right), []).append(tree)
    for node in made.graph.node:
        if trees and node.op_type in KINDS:
            _send(node, trees)


def _send(node: Any, trees: Mapping[bytes, list[Any]]) -> None:
    """Writes where the splits of a node send NaN, tree by tree."""
    attributes = {each.name: each for each in node.attribute}
    owners, features, left, right = (
        np.array(attributes[f"nodes_{name}"].ints) for name in ("treeids", "featureids", "truenodeids", "falsenodeids")
    )
    splits = np.array(attributes["nodes_modes"].strings) != LEAF
    values = np.array(attributes["nodes_values"].floats)
    tracks = np.array(attributes[TRACKS].ints)
    for number in np.unique(owners):
        own = owners == number
        is_split = splits[own]
        shape = _shape(is_split, features[own], left[own], right[own])
        for tree in trees.get(shape, ()):
            if np.allclose(values[own][is_split], tree.threshold[is_split], rtol=1e-6, atol=0):
                tracks[own] = np.where(is_split, tree.missing_go_to_left, 0)
                break
    attributes[TRACKS].ints[:] = tracks.tolist()


def _shape(is_split: NDArray[np.bool_], *columns: NDArray[Any]) -> bytes:
    """Returns the features and the children of a tree's splits, as a key."""
    return np.stack([np.where(is_split, column, -1) for column in columns]).astype(np.int64).tobytes()


def _trees(part: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the trees in an estimator, and in the estimators that it has."""
    if hasattr(part, "missing_go_to_left"):
        yield part
    elif hasattr(part, "get_params") and id(part) not in seen:
        seen.add(id(part))
        yield from _trees(vars(part), seen)
    elif isinstance(part, dict | list | tuple | np.ndarray):
        inner = part.values() if isinstance(part, dict) else part.flat if isinstance(part, np.ndarray) else part
        numbers = isinstance(part, np.ndarray) and part.dtype != object
        yield from (tree for each in (() if numbers else inner) for tree in _trees(each, seen))
