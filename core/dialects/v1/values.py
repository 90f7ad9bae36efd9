"""TensorFlow Serving's conversion of parsed JSON to tensors, whose shape is the nesting of the values.

It differs from the Open Inference Protocol's (core.encoding.values) as the two servers do: a number with a fraction,
even .0, is not an integer; NaN and infinities are bare tokens and never strings or null; a float beyond its width
becomes infinite; bytes may be written as {"b64": text}. Source: TF Serving's json_tensor.h. Its messages are kept where
clients know them.
"""

import binascii
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BOOL, BYTES, DataType, NDArray
from core.encoding.nesting import Ragged, regular
from core.encoding.values import are_all_texts, array_of, few
from core.errors import InvalidInput, shown
from core.float16 import bf16_from_float
from core.tensor import MAX_RANK, Tensor, TextTensor, objects

B64: Final = {"b64"}
KINDS: Final[dict[type, str]] = {
    type(None): "Null",
    bool: "Bool",
    dict: "Object",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
}
SURROGATE: Final = "JSON Value: a string with a lone surrogate, which is not Unicode text"
JSON_SPACE: Final = b" \t\r\n"


class Irregular(InvalidInput):
    """Lists of unequal lengths, or lists beside values."""


def quoted(value: Any) -> str:
    """Returns a value as messages show it: in JSON's spelling, at a bounded length."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = shown(value)
    if isinstance(value, str):
        return f'"{text[1:-1]}"' if text.endswith("'") else text
    return text.replace("'", '"')


def is_binary(value: Any) -> bool:
    """Decides whether a value is {"b64": text}: bytes, and not an object of names."""
    return isinstance(value, dict) and value.keys() == B64 and isinstance(value["b64"], str)


def is_named(value: Any) -> bool:
    """Decides whether a value is an object of inputs by name; {"b64": text} is not."""
    return isinstance(value, dict) and not is_binary(value)


def length_of(value: Any) -> int:
    """Returns the characters or bytes of a text, {"b64": text} or bytes; 0 for any other value."""
    text = value["b64"] if is_binary(value) else value
    return len(text) if isinstance(text, str | bytes) else 0


def to_tensor(name: str, datatype: DataType, value: Any) -> Tensor:
    """Returns a tensor from a value, from regularly nested lists, or from an array that the parser made.

    Raises Irregular for the nesting, InvalidInput for the first value that is not of the datatype.
    """
    flat, shape = ((), value.shape) if isinstance(value, np.ndarray) else flattened(value)
    if len(shape) > MAX_RANK:
        raise InvalidInput(f"tensor parsing error: {shown(name)} has more than {MAX_RANK} dimensions")
    if isinstance(value, np.ndarray):
        return Tensor(name, datatype, _from_numbers(value, datatype))
    if datatype.is_bytes and _are_texts(flat):
        return TextTensor(name, objects(flat).reshape(shape))
    return Tensor(name, datatype, elements(flat, datatype).reshape(shape))


def flattened(value: Any) -> tuple[Sequence[Any], tuple[int, ...]]:
    """Returns the values of regularly nested lists, and their shape. Raises Irregular."""
    try:
        return regular(value)
    except Ragged:
        raise _irregular(value) from None


def _irregular(value: Any) -> Irregular:
    """Names, in TF Serving's words, the first place whose nesting differs from that of the first elements."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    level = [value]
    for depth, size in enumerate(shape):
        for member in level:
            if not isinstance(member, list):
                return Irregular(
                    f"JSON Value: {quoted(member)}, found at incorrect level: {depth + 1} in the JSON DOM. "
                    f"Expected at level: {len(shape)}"
                )
            if len(member) != size:
                return Irregular(
                    f"Encountered list at unexpected size: {len(member)} at level: {depth} expected size: {size}"
                )
        level = list(chain.from_iterable(level))
    return Irregular(f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}")


def elements(flat: Sequence[Any], datatype: DataType) -> NDArray[Any]:
    """Returns values, none of them a list, as a flat array. Raises InvalidInput for the first of another type."""
    if datatype.is_bytes:
        return objects([to_bytes(value, datatype) for value in flat])
    kinds = set(map(type, flat))
    if not kinds:
        return np.empty(0, datatype.numpy)
    if datatype is BOOL:
        _check(flat, kinds, {bool}, datatype)
        return np.array(flat, BOOL.numpy)
    if (array := few(flat, kinds, datatype)) is not None:
        return array
    if datatype.is_float or datatype is BF16:
        _check(flat, kinds, {int, float}, datatype)
        return _floats(_doubles(flat, datatype), datatype)
    _check(flat, kinds, {int}, datatype)
    return _ranged(_integers(flat, datatype), datatype)


def _check(flat: Sequence[Any], kinds: set[type], allowed: set[type], datatype: DataType) -> None:
    if not kinds <= allowed:
        raise mismatch(next(value for value in flat if type(value) not in allowed), datatype)


def mismatch(value: Any, datatype: DataType) -> InvalidInput:
    kind = KINDS.get(type(value), "Number")
    expected = type_name(datatype)
    return InvalidInput(f"JSON Value: {quoted(value)} Type: {kind} is not of expected type: {expected}")


def type_name(datatype: DataType) -> str:
    """Returns TensorFlow's name of the datatype in messages, e.g. float."""
    return datatype.tensorflow.removeprefix("DT_").lower()


def _doubles(flat: Sequence[Any], datatype: DataType) -> NDArray[Any]:
    try:
        return array_of(flat, np.float64)
    except OverflowError:  # an integer beyond every double
        raise mismatch(max((x for x in flat if type(x) is int), key=abs), datatype) from None


def _integers(flat: Sequence[int], datatype: DataType) -> NDArray[Any]:
    for dtype in (np.int64, np.uint64):
        try:
            return array_of(flat, dtype)
        except OverflowError:
            continue
    limits = np.iinfo(datatype.numpy.str)
    raise mismatch(next(x for x in flat if not limits.min <= x <= limits.max), datatype)


def _from_numbers(array: NDArray[Any], datatype: DataType) -> NDArray[Any]:
    """Casts the parser's int64, uint64 or double array; after a refusal, the exact reading names the wrong value."""
    if datatype.is_bytes or datatype is BOOL:
        if array.size:
            raise mismatch(array.flat[0].item(), datatype)
        return array.astype(datatype.numpy)
    if datatype.is_float or datatype is BF16:
        return _floats(array, datatype)
    if array.dtype.kind == "f":
        raise mismatch(array.flat[0].item(), datatype)
    return _ranged(array, datatype)


def _floats(array: NDArray[Any], datatype: DataType) -> NDArray[Any]:
    if datatype is BF16:
        return bf16_from_float(array.astype(np.float64, copy=False))
    with np.errstate(over="ignore"):
        return array.astype(datatype.numpy, copy=False)


def _ranged(array: NDArray[Any], datatype: DataType) -> NDArray[Any]:
    """Casts integers to the datatype. Raises InvalidInput out of its range, where TF Serving wraps below 32 bits."""
    limits = np.iinfo(datatype.numpy.str)
    if array.size:
        for extreme in (array.min().item(), array.max().item()):
            if not limits.min <= extreme <= limits.max:
                raise InvalidInput(f"{mismatch(extreme, datatype).message}, which holds {limits.min} to {limits.max}")
    return array.astype(datatype.numpy, copy=False)


def _are_texts(values: Sequence[Any]) -> bool:
    try:
        return are_all_texts(values)
    except UnicodeEncodeError:
        raise InvalidInput(SURROGATE) from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(SURROGATE) from None


def to_bytes(value: Any, datatype: DataType = BYTES) -> bytes:
    """Returns a string's UTF-8, or the bytes of {"b64": text}. Raises InvalidInput."""
    if isinstance(value, bytes):  # a default of the settings
        return value
    if isinstance(value, str):
        return _utf8(value)
    if not isinstance(value, dict):
        raise mismatch(value, datatype)
    if not is_binary(value):
        raise InvalidInput(f"JSON Value: {quoted(value)} not formatted correctly for base64 data")
    return _decoded(value["b64"])


def _decoded(text: str) -> bytes:
    """Decodes base64 in the standard alphabet; padding and white space are optional. Raises InvalidInput."""
    try:
        packed = text.encode("ascii").translate(None, JSON_SPACE)
        stripped = packed.rstrip(b"=")
        padding = -len(stripped) % 4
        if len(packed) - len(stripped) > padding:
            raise ValueError(text)  # noqa: TRY301 - one way out for every text that is not base64
        return binascii.a2b_base64(stripped + b"=" * padding, strict_mode=bool(stripped))
    except (binascii.Error, ValueError):
        raise InvalidInput(f"Unable to base64 decode {quoted(text)}") from None
