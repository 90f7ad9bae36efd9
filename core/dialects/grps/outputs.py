"""Converts a model's outputs to GRPS's content: in the form of the request if they fit it, else as tensors.

Bytes that are not UTF-8 cannot be strings, neither in JSON nor in the protocol's messages. They are bin_data, or bytes
of a map, if the outputs' shapes allow it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from core.dialects.grps.content import (
    LARGEST_SIZE,
    MAP_FIELDS,
    UINT8,
    Binary,
    Content,
    Map,
    MapEntry,
    Numbers,
    Tensors,
    Text,
    carried,
    converted,
)
from core.dtype import BYTES, FP16, FP32, FP64, INT64
from core.errors import InvalidInput, ModelFailed, shown
from core.tensor import Tensor

NO_FLOATS: Final = "No float32 tensors in output. Cannot convert to ndarray."
TWO_TENSORS: Final = "NDArray only support one tensor"
MAP_FIELD: Final = {INT64: "s_i64", FP32: "s_f", FP16: "s_f", FP64: "s_d"}
"""The map of a number; every other integer is in s_i32."""


def answered(outputs: Sequence[Tensor], asked: type[Content]) -> Content:
    """Returns the outputs as content. `asked`: the form of the request.

    Raises ModelFailed for outputs that the protocol cannot carry.
    """
    tensors = tuple(map(carried, outputs))
    content = _FORMS[asked](tensors) if asked in _FORMS else None
    return _tensors(tensors) if content is None else content


def as_ndarray(outputs: Sequence[Tensor]) -> Numbers:
    """Returns the only output, for requests with return-ndarray. Raises InvalidInput with GRPS's own texts."""
    tensors = tuple(map(carried, outputs))
    if not any(tensor.datatype is FP32 for tensor in tensors):
        raise InvalidInput(NO_FLOATS)
    if len(tensors) > 1:
        raise InvalidInput(TWO_TENSORS)
    return Numbers(tensors[0].array)


def _one_string(tensors: Sequence[Tensor]) -> bytes | None:
    """Returns the only output's string, None if there are more outputs, strings or another datatype."""
    if len(tensors) != 1 or tensors[0].datatype is not BYTES or tensors[0].array.size != 1:
        return None
    string: bytes = tensors[0].array.item()
    return string


def _text(tensors: Sequence[Tensor]) -> Content | None:
    string = _one_string(tensors)
    if string is None:
        return None
    return Text(string.decode()) if _is_text(tensors[0]) else Binary(string)


def _binary(tensors: Sequence[Tensor]) -> Content | None:
    string = _one_string(tensors)
    if string is not None:
        return Binary(string)
    if len(tensors) != 1 or tensors[0].datatype is not UINT8 or not _is_vector(tensors[0]):
        return None
    return Binary(tensors[0].array.tobytes())


def _is_vector(tensor: Tensor) -> bool:
    """Decides whether all elements lie along the last axis, as those of an input from bin_data do."""
    shape = tensor.array.shape
    return len(shape) > 0 and all(size == 1 for size in shape[:-1])


def _map(tensors: Sequence[Tensor]) -> Content | None:
    if any(tensor.array.size != 1 for tensor in tensors):
        return None
    return Map(tuple(_entry(tensor) for tensor in tensors))


def _entry(tensor: Tensor) -> MapEntry:
    if tensor.datatype is BYTES:
        field = "s_s" if _is_text(tensor) else "s_b"
    else:
        field = MAP_FIELD.get(tensor.datatype, "s_i32")
    flat = Tensor(tensor.name, tensor.datatype, tensor.array.reshape(()))
    return MapEntry(field, flat if flat.datatype is BYTES else converted(flat, MAP_FIELDS[field]))


def _is_text(tensor: Tensor) -> bool:
    try:
        for string in tensor.array.flat:
            string.decode()
    except UnicodeDecodeError:
        return False
    return True


def _tensors(tensors: tuple[Tensor, ...]) -> Content:
    for tensor in tensors:
        if tensor.datatype is BYTES and not _is_text(tensor):
            return _bytes(tensors, tensor.name)
        if max(tensor.array.shape, default=0) > LARGEST_SIZE:
            raise ModelFailed(f"output {shown(tensor.name)} has a dimension beyond 32 bits, which GRPS cannot express")
    return Tensors(tensors)


def _bytes(tensors: tuple[Tensor, ...], name: str) -> Content:
    string = _one_string(tensors)
    content = _map(tensors) if string is None else Binary(string)
    if content is None:
        raise ModelFailed(
            f"output {shown(name)} has bytes that are not UTF-8, which GRPS's tensors cannot carry; only single "
            "strings can be bin_data, or s_b of a gmap"
        )
    return content


_FORMS: Final[dict[type[Content], Callable[[Sequence[Tensor]], Content | None]]] = {
    Text: _text,
    Binary: _binary,
    Map: _map,
}
