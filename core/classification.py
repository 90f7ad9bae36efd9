"""The classification extension: the highest scores of a tensor as text (Triton's extension_classification.md)."""

import numpy as np

from core.dtype import BYTES
from core.errors import InvalidInput, shown
from core.tensor import Tensor


def classify(tensor: Tensor, classes: int, labels: tuple[str, ...]) -> Tensor:
    """Returns the top `classes` elements of each row of scores as text "value:index[:label]", highest value first.

    The result is BYTES of shape [classes], or [batch..., classes] if the tensor has a rank above 1. Equal values keep
    the order of their indices; NaN comes last. Raises InvalidInput for strings and for scalars.
    """
    if tensor.datatype.is_bytes or not tensor.array.ndim:
        raise InvalidInput(f"output {shown(tensor.name)} cannot be classified: only numbers with an axis can be")
    scores = tensor.array
    # Stable on the negated values; as doubles, because unsigned integers and booleans cannot be negated.
    order = np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[..., :classes]
    top = np.empty(order.shape, object)
    for at in np.ndindex(order.shape):
        index = int(order[at])
        label = f":{labels[index]}" if index < len(labels) else ""
        top[at] = f"{float(scores[(*at[:-1], index)]):f}:{index}{label}".encode()
    return Tensor(tensor.name, BYTES, top)
