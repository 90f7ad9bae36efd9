"""Reads elements of tensors in proto3's JSON: numbers, also as strings, and "NaN", "Infinity" and "-Infinity".

Source: protobuf's ProtoJSON format.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from core.dtype import FP32, DataType
from core.encoding import proto_json
from core.encoding.jsonio import CONSTANTS, Oversized
from core.encoding.nesting import Ragged, regular
from core.encoding.values import from_values
from core.errors import InvalidInput, shown
from core.tensor import MAX_RANK, Tensor, named

INTEGERS: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:,-?(?:0|[1-9][0-9]{0,18}))*")
"""Integers with commas between them, each of at most 19 digits: an int64 needs no more, and a uint64 holds them all."""
_FLOAT: Final = r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,20})?"
FLOATS: Final = re.compile(f"{_FLOAT}(?:,{_FLOAT})*")
SLICE: Final = 16_384
"""Strings that are read at a time."""
INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def flat(name: str, datatype: DataType, shape: tuple[int, ...], data: Any) -> Tensor:
    """Returns a tensor from the elements under its flat_ field, which are a list or the parser's array.

    Raises InvalidInput, and Inexact as from_values does.
    """
    if isinstance(data, np.ndarray):
        if data.ndim != 1:
            raise _wrong(name, datatype, data.tolist()[:1])
    elif isinstance(data, list):
        data = _elements(name, datatype, data)
    else:
        raise InvalidInput(f"{named(name)} has {shown(data)} as {datatype.grps_field}; expected an array")
    return from_values(name, datatype, shape, data)


def scalar(name: str, datatype: DataType, value: Any) -> Tensor:
    """Returns one number as a tensor without a dimension. Raises InvalidInput."""
    return from_values(name, datatype, (), _elements(name, datatype, [value]))


def nested(name: str, value: Any) -> Tensor:
    """Returns FP32 in the shape of the numbers' nesting. Raises InvalidInput, also for a value without numbers."""
    try:
        return _nested(name, value)
    except InvalidInput as error:
        # The member is not an input: that is the model's only one, whatever its name is.
        raise type(error)(error.message.removeprefix("input ")) from None


def _nested(name: str, value: Any) -> Tensor:
    if isinstance(value, np.ndarray) and value.size and value.ndim <= MAX_RANK:
        return from_values(name, FP32, value.shape, value.reshape(-1))
    elements, shape = _flattened(name, value)
    if not elements:
        raise InvalidInput(f"'{name}' is {shown(value)}; an array without numbers has no shape")
    _check(name, FP32, elements, set(map(type, elements)))
    return from_values(name, FP32, shape, elements)


def _flattened(name: str, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    try:
        elements, shape = regular(value.tolist() if isinstance(value, np.ndarray) else value)
    except Ragged as error:
        raise InvalidInput(f"'{name}' {error}") from None
    if len(shape) > MAX_RANK:
        raise InvalidInput(f"'{name}' has more than {MAX_RANK} dimensions")
    return elements, shape


def _elements(name: str, datatype: DataType, data: list[Any]) -> Any:
    """Returns elements for from_values: numbers instead of strings, except strings for NaN and infinities."""
    kinds = set(map(type, data))
    _check(name, datatype, data, kinds)
    if datatype.is_bytes or str not in kinds:
        return data
    if kinds == {str}:
        found = _unquoted(data, *((FLOATS, float) if datatype.is_float else (INTEGERS, int)))
        if found is not None:
            return found
    return [_number(name, datatype, value) if type(value) is str else value for value in data]


def _unquoted(data: list[str], pattern: re.Pattern[str], read: Callable[[str], Any]) -> list[Any] | None:
    """Returns the numbers in strings, read slice by slice so that other threads run between; None if any is odd."""
    numbers: list[Any] = []
    for start in range(0, len(data), SLICE):
        texts = data[start : start + SLICE]
        joined = ",".join(texts)
        if joined.count(",") != len(texts) - 1 or not pattern.fullmatch(joined):
            return None
        numbers += map(read, texts)
    return numbers


def _check(name: str, datatype: DataType, data: list[Any], kinds: set[type]) -> None:
    """Raises InvalidInput for lists, objects, null and booleans. from_values refuses numbers beyond every double."""
    allowed = {str} if datatype.is_bytes else {int, float, str, Oversized}
    if not kinds <= allowed:
        raise _wrong(name, datatype, next(value for value in data if type(value) not in allowed))


def _number(name: str, datatype: DataType, text: str) -> Any:
    if datatype.is_float:
        if text in CONSTANTS:
            return text
        if NUMBER.fullmatch(text):
            return value if math.isfinite(value := float(text)) else Oversized(text)
    elif INTEGER.fullmatch(text):
        return int(text)
    raise _wrong(name, datatype, text)


def _wrong(name: str, datatype: DataType, value: Any) -> InvalidInput:
    kind = "strings" if datatype.is_bytes else "numbers" if datatype.is_float else "integers"
    return InvalidInput(f"{named(name)} has {shown(value)} where {datatype.name} needs {kind}")


def to_bytes(name: str, text: str) -> bytes:
    """Decodes base64 in the standard or the URL-safe alphabet, with or without padding. Raises InvalidInput."""
    try:
        return proto_json.to_bytes(text)
    except ValueError:  # binascii.Error, and text that is not ASCII
        raise InvalidInput(f"{named(name)} has {shown(text)} where s_b needs base64") from None
