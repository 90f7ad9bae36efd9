"""Tensors as ONNX Runtime takes them, and its values as arrays: texts, and BF16, which numpy does not have."""

import ctypes
import math
from typing import Any

import numpy as np

from core.dtype import BF16, BYTES, NDArray
from core.errors import InvalidInput, shown
from core.tensor import Tensor, flat_texts, objects


def fed(tensor: Tensor) -> NDArray[Any]:
    """Returns the array for ONNX Runtime. Strings are objects of `str`: the model would see the repr of `bytes`.

    Raises InvalidInput for BYTES that are not UTF-8.
    """
    if tensor.datatype is not BYTES:
        return tensor.array
    if tensor.texts is not None:
        return tensor.texts
    try:
        texts = objects(flat_texts(tensor))
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"input {shown(tensor.name)} has the bytes {shown(error.object)}, which are not UTF-8: "
            "ONNX Runtime's strings must be UTF-8"
        ) from None
    return texts.reshape(tensor.shape)


def ort_value(tensor: Tensor, value_of: Any) -> Any:
    """Returns numbers as an OrtValue."""
    if tensor.datatype is not BF16:
        return value_of.ortvalue_from_numpy(tensor.array)
    array = tensor.array if tensor.array.flags.c_contiguous else tensor.array.copy()
    return value_of.ortvalue_from_numpy_with_onnx_type(array, BF16.onnx)


def bits(value: Any) -> NDArray[Any]:
    shape = tuple(value.shape())
    return np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * math.prod(shape)), BF16.numpy).reshape(shape)
