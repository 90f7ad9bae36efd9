"""Makes rows for a model without `--data`, from its graph: the same for the same seed.

Numbers lie where a difference would show. Where a tree's splits read the input, they are the splits' thresholds, the
neighbours of these among FP32, and numbers between. Where it is scaled first, they have the scaler's mean and spread.
Else they are normal, in several magnitudes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BY_ONNX, BYTES
from handler.backends.onnx_file import Value
from handler.commands.convert.sources.original import Domain
from handler.commands.refused import Refused

PASSED_ON: Final = ("Cast", "Identity")
TREES: Final = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
WORDS: Final = ("alpha", "beta", "gamma", "delta", "")
MOST_ELEMENTS: Final = 2**22
"""The most elements of an input: large ones, such as images, get fewer rows."""
MAGNITUDES: Final = (1, 1, 10, 100)
LONGEST: Final = 12
"""Words of a made text."""


def made(
    graph: Any, inputs: Sequence[Value], domains: Mapping[str, Domain], rows: int, seed: int
) -> dict[str, NDArray[Any]]:
    """Returns arrays by input. `graph`: onnx.GraphProto. `rows`: where the inputs do not fix their number.

    Raises Refused for inputs whose values nobody can guess.
    """
    random = np.random.default_rng(seed)
    sizes = [value.shape[0] for value in inputs if value.shape and value.shape[0] > 0]
    widest = max(math.prod(abs(size) for size in (value.shape or (1,))[1:]) for value in inputs)
    rows = sizes[0] if sizes else min(rows, max(1, MOST_ELEMENTS // max(1, widest)))
    return {value.name: _array(graph, value, domains, rows, random) for value in inputs}


def _array(
    graph: Any, value: Value, domains: Mapping[str, Domain], rows: int, random: np.random.Generator
) -> NDArray[Any]:
    row = BY_ONNX[value.element]
    shape = (rows, *(3 if size == -1 else size for size in (value.shape or (-1, 1))[1:]))
    columns = shape[1] if len(shape) == 2 else 1  # noqa: PLR2004 - a matrix
    known = {index: domains.get(f"{value.name}.{index}", domains.get(value.name)) for index in range(columns)}
    if row is BYTES:
        texts = [_texts(known[index], rows, random) for index in range(columns)]
        return np.stack(texts, axis=1).reshape(shape)
    if row is BF16:
        raise Refused(f"input {value.name!r} is {row.name}: give rows with --data")
    if row.numpy.kind in "iu":
        return random.integers(0, 10, shape).astype(row.numpy)
    if row.numpy.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    magnitudes = random.choice(MAGNITUDES, size=(rows, *[1] * (len(shape) - 1)))
    array = _scaled(graph, value.name, random.normal(size=shape) * magnitudes)
    for index, choices in _thresholds(graph, value.name).items():
        array[:, index] = _near(choices, rows, random)
    for index, domain in known.items():
        if domain is not None:
            array[:, index] = random.choice(np.asarray(domain.values, float), rows)
    found: NDArray[Any] = array.astype(row.numpy)
    return found


def _texts(domain: Domain | None, rows: int, random: np.random.Generator) -> NDArray[Any]:
    values = list(WORDS if domain is None else domain.values)
    made = np.empty(rows, object)
    if domain is not None and domain.words:
        made[:] = [" ".join(random.choice(values, random.integers(0, LONGEST))) for _ in range(rows)]
    else:
        made[:] = [values[index] for index in random.integers(0, len(values), rows)]
    return made


def _readers(graph: Any, name: str) -> list[Any]:
    """Returns the nodes that read an input directly."""
    names, found = {name}, []
    for node in graph.node:  # in topological order
        if names.intersection(node.input):
            found.append(node)
            if node.op_type in PASSED_ON:
                names.update(node.output)
    return found


def _attribute(node: Any, name: str) -> NDArray[Any]:
    found = next((each for each in node.attribute if each.name == name), None)
    if found is None:
        return np.empty(0)
    return np.array(found.floats if len(found.floats) else found.ints, np.float64)


def _scaled(graph: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
    for node in _readers(graph, name):
        offset, scale = _attribute(node, "offset"), _attribute(node, "scale")
        if node.op_type == "Scaler" and offset.size == scale.size == array.shape[-1]:
            array = array / np.where(scale == 0, 1, scale) + offset
    return array


def _thresholds(graph: Any, name: str) -> dict[int, NDArray[Any]]:
    """Returns the thresholds by column of the splits that read this input.

    Libraries write an infinite one for a split between missing values and all others.
    """
    found: dict[int, list[float]] = {}
    for node in _readers(graph, name):
        if node.op_type in TREES:
            modes = next((each.strings for each in node.attribute if each.name == "nodes_modes"), ())
            columns, values = _attribute(node, "nodes_featureids"), _attribute(node, "nodes_values")
            for mode, column, threshold in zip(modes, columns, values, strict=True):
                if mode != b"LEAF" and math.isfinite(threshold):
                    found.setdefault(int(column), []).append(threshold)
    return {column: np.unique(values) for column, values in found.items()}


def _near(thresholds: NDArray[Any], rows: int, random: np.random.Generator) -> NDArray[Any]:
    chosen = random.choice(thresholds, rows).astype(np.float32)
    spread = max(float(np.ptp(thresholds)), 1.0)
    choices = (
        chosen,
        np.nextafter(chosen, np.float32(-np.inf)),
        np.nextafter(chosen, np.float32(np.inf)),
        random.uniform(thresholds[0] - spread, thresholds[-1] + spread, rows),
    )
    found: NDArray[Any] = np.choose(random.integers(0, len(choices), rows), choices)
    return found
