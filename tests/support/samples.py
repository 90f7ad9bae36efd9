"""Elements, shapes and answers that the tests of the core share."""

import json
from typing import Any

import numpy as np

from core.dtype import BF16, DataType
from core.wire import HttpResponse

SHAPES = [(), (0,), (3,), (2, 0), (2, 3)]


def nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """Returns the elements as lists of lists."""
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape).tolist()


def sample(datatype: DataType, size: int) -> list[Any]:
    """Returns elements in JSON's form."""
    if datatype.is_bytes:
        return ["", "ab", "\u65e5\0", "x", "y", "z"][:size]
    if datatype.name == "BOOL":
        return [True, False, True, True, False, False][:size]
    if datatype.is_float:
        return [0.5, -1.0, 3.0, 1024.0, 0.0, -0.25][:size]
    low, high = (0, 255) if datatype is BF16 else (np.iinfo(datatype.numpy).min, np.iinfo(datatype.numpy).max)
    return [int(low), int(high), 1, 0, 2, 100][:size]


def told(response: HttpResponse) -> Any:
    """Returns the answer's JSON, with NaN and infinities as Python reads them."""
    return json.loads(b"".join(response.parts))
