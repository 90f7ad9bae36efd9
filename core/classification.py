"""The classification extension: the highest scores of a tensor as text.

Sources: Triton's extension_classification.md, and its classification.cc for the form of a number.
"""

import math
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BYTES, NDArray
from core.errors import InvalidInput, TooLarge, shown
from core.tensor import Tensor

MOST_CLASSES: Final = 65_536
"""The most texts of an answer, unless its request has more elements: each text is several times its score."""
LONGEST_FIXED: Final = 1e16
"""From this magnitude on a float is written with an exponent: "%f", as Triton writes, takes up to 316 digits."""


def classify(
    tensor: Tensor, classes: int, labels: tuple[str, ...], asked: int = 0, *, is_batch: bool = False
) -> Tensor:
    """Returns the top `classes` elements of the scores as text "value:index[:label]", highest value first.

    The result is BYTES of shape [classes], or of [batch, classes] if the first axis `is_batch`. All other axes are one:
    an index counts the elements in their order. Equal values keep the order of their indices; NaN comes last. `asked`:
    the elements of the request. Raises InvalidInput for strings and for scalars, TooLarge for more texts than an answer
    may have.
    """
    if tensor.datatype.is_bytes or not tensor.array.ndim:
        raise InvalidInput(f"output {shown(tensor.name)} cannot be classified: only numbers with an axis can be")
    batch = tensor.array.shape[:1] if is_batch else ()
    width = math.prod(tensor.array.shape[len(batch) :])
    if not width:
        return Tensor(tensor.name, BYTES, np.empty((*batch, 0), object))
    scores, shape = _numbers(tensor).reshape(*batch, width), (*batch, min(classes, width))
    _check_number(math.prod(shape), max(MOST_CLASSES, asked), tensor.name)
    # Stable on values in the opposite order. The lowest integer cannot be negated, but each has a complement.
    order = np.argsort(-scores if scores.dtype.kind == "f" else ~scores, axis=-1, kind="stable")[..., :classes]
    values = np.take_along_axis(scores, order, axis=-1)
    top = np.empty(math.prod(shape), object)
    top[:] = [
        _text(*pair, labels) for pair in zip(values.reshape(-1).tolist(), order.reshape(-1).tolist(), strict=True)
    ]
    return Tensor(tensor.name, BYTES, top.reshape(shape))


def _numbers(tensor: Tensor) -> NDArray[Any]:
    if tensor.datatype is not BF16:
        return tensor.array
    from core.float16 import bf16_to_float  # noqa: PLC0415 - cold start: few models have 16 bits

    return bf16_to_float(tensor.array)


def _check_number(count: int, most: int, name: str) -> None:
    if count > most:
        raise TooLarge(f"output {shown(name)} has {count} classes; an answer has at most {most}")


def _text(value: float, index: int, labels: tuple[str, ...]) -> bytes:
    # Triton writes integers without a point, and so exactly.
    is_fixed = type(value) is not int and (abs(value) < LONGEST_FIXED or not math.isfinite(value))
    number = f"{value:f}" if is_fixed else repr(value)
    return (f"{number}:{index}:{labels[index]}" if index < len(labels) else f"{number}:{index}").encode()
