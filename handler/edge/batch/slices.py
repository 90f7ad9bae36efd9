"""Slices of tensors along their first axis, and tensors of slices. Texts stay texts."""

from collections.abc import Mapping, Sequence

import numpy as np

from core.tensor import Tensor, TextTensor


def of_inputs(inputs: Mapping[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    """Returns some rows of all inputs."""
    return {name: _slice(tensor, start, end) for name, tensor in inputs.items()}


def _slice(tensor: Tensor, start: int, end: int) -> Tensor:
    if tensor.texts is not None:
        return TextTensor(tensor.name, tensor.texts[start:end])
    return Tensor(tensor.name, tensor.datatype, tensor.array[start:end])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns one tensor of the rows of several. Raises ValueError if they differ in another axis."""
    first = parts[0]
    texts = [tensor.texts for tensor in parts if tensor.texts is not None]
    if len(texts) == len(parts):
        return TextTensor(first.name, np.concatenate(texts))
    return Tensor(first.name, first.datatype, np.concatenate([tensor.array for tensor in parts]))
