"""Elements, shapes and answers that the tests of the core share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from core.dtype import BF16, DataType

if TYPE_CHECKING:
    from core.wire import HttpResponse

SHAPES = [(), (0,), (3,), (2, 0), (2, 3)]


def nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """The elements as lists of lists."""
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape).tolist()


def sample(datatype: DataType, size: int) -> list[Any]:
    """Elements as JSON has them."""
    if datatype.is_bytes:
        return ["", "ab", "\u65e5\0", "x", "y", "z"][:size]
    if datatype.name == "BOOL":
        return [True, False, True, True, False, False][:size]
    if datatype.is_float:
        return [0.5, -1.0, 3.0, 1024.0, 0.0, -0.25][:size]
    low, high = (0, 255) if datatype is BF16 else (np.iinfo(datatype.numpy).min, np.iinfo(datatype.numpy).max)
    return [int(low), int(high), 1, 0, 2, 100][:size]


def told(response: HttpResponse) -> Any:
    """The answer's JSON, NaN and infinities as Python reads them."""
    return json.loads(b"".join(response.parts))
