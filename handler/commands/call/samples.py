"""Data made from a model's metadata, the same each time: for a first request, and for measurements."""

from typing import Any, Final

import numpy as np

from core.dtype import BOOL, BYTES, FP32, DataType
from core.encoding.values import from_values
from core.errors import shown
from core.float16 import bf16_from_float
from core.tensor import Tensor, TensorSpec
from handler.commands.call.served import CalledModel
from handler.commands.refused import Refused

SEED: Final = 0
BEYOND: Final = 10
"""Whole numbers are below it: they can be the indices of classes or of words."""
MOST: Final = 1 << 28
"""The most elements of one input, 2 GB of FP64."""


def made(model: CalledModel, rows: int) -> tuple[Tensor, ...]:
    """Returns tensors of the shapes that the model declares: `rows` for its first open dimension, 1 for others."""
    if model.inputs is None:
        raise Refused(f"model {shown(model.name)} does not declare its inputs: give them with --input NAME=VALUE")
    rng = np.random.default_rng(SEED)
    return tuple(_tensor(spec, rows, rng) for spec in model.inputs)


def _tensor(spec: TensorSpec, rows: int, rng: np.random.Generator) -> Tensor:
    shape = _shape(spec, rows)
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count > MOST:
        raise Refused(f"input {shown(spec.name)} would have {count} elements: give it with --input or --file")
    return Tensor(spec.name, spec.datatype, _elements(spec.datatype, count, rng).reshape(shape))


def _shape(spec: TensorSpec, rows: int) -> tuple[int, ...]:
    if spec.shape is None:
        return (rows,)
    return tuple((rows if index == 0 else 1) if size == -1 else size for index, size in enumerate(spec.shape))


def _elements(datatype: DataType, count: int, rng: np.random.Generator) -> Any:
    if datatype is BYTES:
        array = np.empty(count, object)
        array[:] = [b"%d" % number for number in rng.integers(0, BEYOND, count).tolist()]
        return array
    if datatype.is_float:
        return rng.standard_normal(count).astype(datatype.numpy)
    if datatype.name == "BF16":
        return bf16_from_float(rng.standard_normal(count).astype(FP32.numpy))
    numbers = rng.integers(0, 2 if datatype is BOOL else BEYOND, count)
    return numbers.astype(bool) if datatype is BOOL else from_values("", datatype, (count,), numbers).array


def flag(spec: TensorSpec) -> str:
    """Returns an example of `--input` for an input, small enough to read."""
    value: Any = {"BYTES": "text", "BOOL": True}.get(spec.datatype.name, 0.5 if spec.datatype.is_float else 1)
    shape = (1,) if spec.shape is None else tuple(max(1, size) for size in spec.shape)
    inner = shape[1:] if len(shape) > 1 else ()
    if inner in ((), (1,)):
        text = str(value).lower()
    elif len(inner) == 1 and inner[0] <= 8:  # noqa: PLR2004 - a line's worth
        text = str([value] * inner[0]).replace("True", "true").replace("'", '"')
    else:
        text = "[...]"
    return f"--input '{spec.name}={text}'" if set(text) & set(" [\"'") else f"--input {spec.name}={text}"
