"""Floats of 16 bits, as far as numpy and the JSON writer do not know them: bfloat16's bits, shortest decimals."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, DataType

EXACT_IN_FP32: Final = 2**24


def bf16_to_float(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_from_float(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value as FP32, ties to even, as its bits; beyond the range infinity."""
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def widened(array: NDArray[Any], datatype: DataType) -> NDArray[np.float64]:
    """FP16 or BF16 elements as the doubles with the shortest decimals that are read back as the same element.

    Integers stay what they are, as far as FP32 holds all of them: 65504 is not 65500 for who reads it as a double.
    There are no more than 65,536 different ones, however large the array is.
    """
    bits, places = np.unique(array.view(np.uint16), return_inverse=True)
    exact = (bf16_to_float(bits) if datatype is BF16 else bits.view(np.float16)).tolist()
    shortest = _shortest_bf16 if datatype is BF16 else _shortest_half
    values = [x if abs(x) < EXACT_IN_FP32 and x == int(x) else shortest(x) for x in exact]
    return np.array(values, np.float64)[places].reshape(array.shape)


def _shortest_half(value: float) -> float:
    return float(str(np.float16(value)))


def _shortest_bf16(value: float) -> float:
    bits = bf16_from_float(np.array(value))
    for digits in range(1, 4):
        candidate = float(f"{value:.{digits}g}")
        if bf16_from_float(np.array(candidate)) == bits:
            return candidate
    return float(f"{value:.4g}") if np.isfinite(value) else value  # 8 bits need at most 4 digits
