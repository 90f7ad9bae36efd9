"""Converts the elements of outputs for the JSON writer, for every dialect."""

from typing import Any, Final

import numpy as np

from core.dtype import BF16, DATATYPES
from core.encoding.jsonio import NonFinite, numbers
from core.errors import InvalidInput, shown
from core.float16 import widened
from core.tensor import Tensor

FP16: Final = DATATYPES["FP16"]


def rows(tensor: Tensor, non_finite: NonFinite | None) -> list[Any]:
    """Returns what `numeric` returns for each element of the first axis."""
    plain = tensor.datatype.name in ("FP32", "FP64") and np.isfinite(tensor.array).all()
    if plain:
        return list(np.ascontiguousarray(tensor.array))
    return [numeric(Tensor(tensor.name, tensor.datatype, row), non_finite) for row in tensor.array]


def numeric(tensor: Tensor, non_finite: NonFinite | None) -> Any:
    """Returns numbers or booleans, nested as the tensor's shape is.

    Raises InvalidInput for NaN and infinities if `non_finite` is None.
    """
    array = tensor.array
    if tensor.datatype is FP16 or tensor.datatype is BF16:
        array = widened(array, tensor.datatype)
    if non_finite is None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidInput(
                f"output {shown(tensor.name)} has NaN or infinite elements, for which JSON has no number "
                "(DRAGOMAN_NON_FINITE=error)"
            )
        return numbers(array, NonFinite.NULL)
    return numbers(array, non_finite)
