"""Floats of 16 bits, where numpy and the JSON writer do not know them: bfloat16's bits, shortest decimals."""

from typing import Any, Final

import numpy as np

from core.dtype import BF16, DataType, NDArray

EXACT_IN_FP32: Final = 2**24


def bf16_to_float(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Returns the FP32 values, exactly, of bfloat16 bits (uint16) in an array of any shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_from_float(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Returns the bits of the bfloat16 nearest to each value as FP32, ties to even, infinity beyond the range."""
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def widened(array: NDArray[Any], datatype: DataType) -> NDArray[np.float64]:
    """Returns FP16 or BF16 elements as the doubles with the shortest decimals that read back as the same element.

    Integers below 2**24 stay exact: a client that reads doubles gets 65504, not 65500. An array of any size has at most
    65,536 different elements, so each is converted once.
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
