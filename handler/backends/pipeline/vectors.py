"""From a model's vectors for tokens to one vector for each text: pooling, and the length 1. numpy alone."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from core.dtype import FP32, INT64, NDArray
from core.errors import InvalidInput
from core.tensor import Tensor, TensorSpec

HIDDEN: Final = "token_embeddings"
MASK: Final = "attention_mask"
POOLED: Final = "pooled"
EMBEDDING: Final = "embedding"
LEAST_LENGTH: Final = 1e-12
"""The length that a shorter vector is divided by, as PyTorch does: zeros stay zeros."""


class Pooled:
    """FP32 [n, tokens, d], and a mask INT64 [n, tokens] that has 1 for each token that counts, to FP32 [n, d].

    `how`: mean, max, cls (the first token), or last (the last one that counts). A text without any token has zeros.
    """

    steady = True
    outputs = (TensorSpec(POOLED, FP32, (-1, -1)),)

    def __init__(self, how: str) -> None:
        self._pool = POOLS[how]
        mask = TensorSpec(MASK, INT64, (-1, -1), optional=how == "cls")
        self.inputs = (TensorSpec(HIDDEN, FP32, (-1, -1, -1)), mask)

    def outlined(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Mapping[str, tuple[int, ...]]:
        hidden = shapes.get(HIDDEN)
        return {} if hidden is None else {POOLED: (hidden[0], hidden[2])}

    def run(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Raises InvalidInput for a mask of another shape."""
        hidden = inputs[HIDDEN].array
        mask = inputs[MASK].array != 0 if MASK in inputs else np.ones(hidden.shape[:2], bool)
        if mask.shape != hidden.shape[:2]:
            told = f"{MASK} has shape {list(mask.shape)}, and {HIDDEN} {list(hidden.shape)}"
            raise InvalidInput(f"{told}: expected a mask for each token")
        if not hidden.shape[1]:
            return {POOLED: Tensor(POOLED, FP32, np.zeros((hidden.shape[0], hidden.shape[2]), np.float32))}
        return {POOLED: Tensor(POOLED, FP32, self._pool(hidden, mask))}


def _mean(hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    weights = mask.astype(np.float32)
    with np.errstate(invalid="ignore"):
        total = np.matmul(weights[:, None, :], hidden)[:, 0, :]  # the sum without a product as large as the tokens
        if not np.isfinite(total).all():  # 0 * NaN is NaN, and encoders leave it in tokens that do not count
            total = np.matmul(weights[:, None, :], np.where(mask[:, :, None], hidden, np.float32(0)))[:, 0, :]
    count = np.maximum(weights.sum(1, keepdims=True), 1)
    found: NDArray[Any] = np.divide(total, count, dtype=np.float32)
    return found


def _max(hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.where(mask[:, :, None], hidden, np.float32(-np.inf)).max(1)
    found[~mask.any(1)] = 0
    return found


def _cls(hidden: NDArray[Any], _: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(hidden[:, 0])


def _last(hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    places = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
    found: NDArray[Any] = hidden[np.arange(len(hidden)), places]
    found[~mask.any(1)] = 0
    return found


POOLS: Final = {"mean": _mean, "max": _max, "cls": _cls, "last": _last}


class Normalized:
    """FP32 [n, d] to the same vectors with the Euclidean length 1."""

    steady = True
    inputs = (TensorSpec(POOLED, FP32, (-1, -1)),)
    outputs = (TensorSpec(EMBEDDING, FP32, (-1, -1)),)

    def outlined(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Mapping[str, tuple[int, ...]]:
        vectors = shapes.get(POOLED)
        return {} if vectors is None else {EMBEDDING: vectors}

    def run(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        vectors = inputs[POOLED].array
        length = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
        return {EMBEDDING: Tensor(EMBEDDING, FP32, vectors / np.maximum(length, np.float32(LEAST_LENGTH)))}
