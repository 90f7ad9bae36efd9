"""The only conversion of parsed JSON to tensors: the values that each datatype accepts, and the messages for others.

A value is exact, or rounded to the nearest float of its width, or refused: never wrapped, cut, guessed or infinite.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BOOL, FP16, DataType, DTypeLike, NDArray
from core.encoding.jsonio import Oversized
from core.encoding.nesting import flatten
from core.errors import InvalidInput, shown
from core.tensor import Tensor, TextTensor, check_count, named, objects, shaped

SLICE: Final = 65_536
"""Elements that are converted at a time: three milliseconds."""
FEW: Final = 128
"""Elements up to which Python's own comparisons are faster than numpy's calls."""
LARGEST_HALF: Final = 65504.0
EXACT_IN_DOUBLE: Final = 2**53
ROUNDED: Final = "; this number may have been rounded: write integers from 2**53 on without a point or exponent"
NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, None: math.nan}
"""The floats that JSON numbers cannot express, by their spellings (proto3's JSON mapping; MLServer writes null)."""


class Inexact(InvalidInput):
    """The numbers were read as doubles, but the datatype needs more digits: parse the text again, exactly.

    After the exact parser, it is an ordinary refusal.
    """


def from_values(name: str, datatype: DataType, shape: tuple[int, ...], data: Any) -> Tensor:
    """Returns a tensor from parsed JSON: nested or flat lists, or a parser's array of int64, uint64 or double.

    The number of elements must fit the shape; their nesting does not matter (as in every peer).
    Raises InvalidInput for a value that the datatype cannot hold exactly, except that floats are rounded to nearest.
    Raises Inexact if an array of doubles may already have lost digits.
    """
    if isinstance(data, list):
        if datatype.is_bytes:
            return _from_texts(name, shape, data)
        kinds = set(map(type, data))
        flat = flatten(data) if list in kinds else data
        if len(flat) != math.prod(shape):
            check_count(len(flat), shape, name)
        array = _from_list(flat, kinds if flat is data else set(map(type, flat)), datatype, name)
        if flat:
            return Tensor(name, datatype, array.reshape(shape))
    elif isinstance(data, np.ndarray):
        array = _cast(data, datatype, name)
    else:
        raise InvalidInput(f"{named(name)} needs 'data': an array, not {shown(data)}")
    return Tensor(name, datatype, shaped(array, shape, name))


def array_of(flat: Sequence[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Returns np.array(flat, dtype), made in slices: other threads of Python run between them."""
    if len(flat) <= SLICE:
        return np.array(flat, dtype)
    found = np.empty(len(flat), dtype)
    for start in range(0, len(flat), SLICE):
        found[start : start + SLICE] = np.array(flat[start : start + SLICE], dtype)
    return found


def listed(array: NDArray[Any]) -> list[Any]:
    """Returns an array as lists. Raises InvalidInput for texts whose numbers are not characters, as a file can have.

    >>> listed(np.array(["a"]))
    ['a']
    """
    try:
        found: list[Any] = array.tolist()
    except (SystemError, ValueError):  # numpy's, for a number beyond Unicode's last character
        raise InvalidInput("an array of texts has a number that is not a character") from None
    return found


def _from_list(flat: Sequence[Any], kinds: set[type], datatype: DataType, name: str) -> NDArray[Any]:
    """Returns the elements, whose types are `kinds`."""
    if kinds <= {int, float}:
        array = few(flat, kinds, datatype)
        return array if array is not None else _cast(_numbers(flat, kinds, datatype, name), datatype, name)
    if datatype is BOOL and kinds <= {bool}:
        return np.array(flat, BOOL.numpy)
    return _cast(_mixed(flat, datatype, name), datatype, name)


def few(flat: Sequence[Any], kinds: set[type], datatype: DataType) -> NDArray[Any] | None:
    """Returns an array of a few numbers that are in the datatype's range; None if they need a closer look.

    `kinds`: the types of the numbers.
    """
    if not 0 < len(flat) <= FEW or not kinds <= {int, float}:
        return None
    if datatype.is_float:
        low, high = -LARGEST_HALF, LARGEST_HALF  # the range of every float type
    elif float in kinds or datatype is BF16 or datatype.is_bytes:
        return None
    else:
        low, high = _range(datatype)
    # A NaN makes the comparisons False or does no harm.
    return np.array(flat, datatype.numpy) if low <= min(flat) and max(flat) <= high else None


def _from_texts(name: str, shape: tuple[int, ...], data: Sequence[Any]) -> Tensor:
    try:
        are_texts = are_all_texts(data)
        if not are_texts:
            data = flatten(data)
            are_texts = are_all_texts(data)
    except UnicodeEncodeError:
        raise InvalidInput(f"{named(name)} has a string with a lone surrogate, which is not Unicode text") from None
    check_count(len(data), shape, name)
    if not are_texts:
        odd = next(x for x in data if type(x) is not str)
        raise InvalidInput(f"{named(name)} has {shown(odd)} where BYTES needs strings")
    return TextTensor(name, shaped(objects(data), shape, name))


def are_all_texts(values: Sequence[Any]) -> bool:
    """Decides whether all values are texts. Joining them takes a third of the time of a look at their types.

    Raises UnicodeEncodeError for a lone surrogate.
    """
    try:
        joined = "".join(values)
    except TypeError:
        return False
    if not joined.isascii():
        joined.encode()
    return True


def _numbers(flat: Sequence[Any], kinds: set[type], datatype: DataType, name: str) -> NDArray[Any]:
    """Returns an array of the numbers: integers exact as far as 64 bits hold them, floats as doubles."""
    if _has_fractions(datatype) and float in kinds:
        return _doubles(flat, datatype, name)
    if float in kinds:
        flat = [_integral(x, datatype, name) for x in flat]
    for dtype in (np.int64, np.uint64):
        try:
            return array_of(flat, dtype)
        except OverflowError:
            continue
    if _has_fractions(datatype):
        return _doubles(flat, datatype, name)
    low, high = _range(datatype)
    raise _out_of_range(next(x for x in flat if not low <= x <= high), datatype, name)


def _has_fractions(datatype: DataType) -> bool:
    return datatype.is_float or datatype is BF16


def _doubles(flat: Sequence[Any], datatype: DataType, name: str) -> NDArray[Any]:
    try:
        return array_of(flat, np.float64)
    except OverflowError:
        raise _out_of_range(max((x for x in flat if type(x) is int), key=abs), datatype, name) from None


def _integral(value: float, datatype: DataType, name: str) -> int:
    """Returns the integer. Accepts a fraction of zero (1.0) as far as doubles are exact, else raises InvalidInput."""
    if type(value) is int:
        return value
    if not value.is_integer() or abs(value) >= EXACT_IN_DOUBLE:
        raise _not_integral(value, datatype, name)
    return int(value)


def _not_integral(value: float, datatype: DataType, name: str) -> InvalidInput:
    text = f"{named(name)} has {shown(value)} where {datatype.name} needs integers"
    if abs(value) < EXACT_IN_DOUBLE or math.isnan(value):
        return InvalidInput(text)
    return Inexact(text if math.isinf(value) else text + ROUNDED)


def _mixed(flat: Sequence[Any], datatype: DataType, name: str) -> NDArray[Any]:
    """Converts one element at a time: the exact, slow path for lists in which some elements are not plain numbers."""
    beyond = next((x for x in flat if isinstance(x, Oversized)), None)
    if beyond is not None:
        raise _out_of_range(beyond, datatype, name)
    if _has_fractions(datatype):
        return np.array([_float(x, datatype, name) for x in flat])
    allowed = (bool, int, float) if datatype is BOOL else (int, float)
    for value in flat:
        if type(value) not in allowed:
            kind = "booleans" if datatype is BOOL else "integers"
            raise InvalidInput(f"{named(name)} has {shown(value)} where {datatype.name} needs {kind}")
    numbers = [int(x) if type(x) is bool else x for x in flat]
    return _numbers(numbers, set(map(type, numbers)), datatype, name)


def _float(value: Any, datatype: DataType, name: str) -> float:
    if type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise _out_of_range(value, datatype, name) from None
    if (value is None or type(value) is str) and value in NON_FINITE:
        return NON_FINITE[value]
    raise InvalidInput(f"{named(name)} has {shown(value)} where {datatype.name} needs numbers")


def _out_of_range(value: Any, datatype: DataType, name: str) -> InvalidInput:
    digits = math.log10(abs(value)) if isinstance(value, int) and value else 0
    text = shown(value) if digits < 64 else f"an integer of {int(digits) + 1} digits"  # noqa: PLR2004 - readable width
    return InvalidInput(f"{named(name)} has {text}, which is out of range for {datatype.name}")


def _cast(numbers: NDArray[Any], datatype: DataType, name: str) -> NDArray[Any]:
    """Casts int64, uint64 or double elements to the datatype. Raises InvalidInput for the first that does not fit."""
    if _has_fractions(datatype):
        return _cast_bf16(numbers, name) if datatype is BF16 else _cast_float(numbers, datatype, name)
    if datatype.is_bytes:
        if numbers.size:
            raise InvalidInput(f"{named(name)} has {shown(numbers.flat[0].item())} where BYTES needs strings")
        return np.empty(0, object)
    if numbers.dtype.kind == "f":
        numbers = _integers(numbers, datatype, name)
    low, high = _range(datatype)
    if numbers.size:
        for extreme in (numbers.min().item(), numbers.max().item()):
            if not low <= extreme <= high:
                raise _out_of_range(extreme, datatype, name)
    return numbers.astype(datatype.numpy, copy=False)


def _range(datatype: DataType) -> tuple[int, int]:
    if datatype is BOOL:
        return 0, 1
    bits = 8 * datatype.numpy.itemsize
    return (0, 2**bits - 1) if datatype.numpy.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _cast_float(numbers: NDArray[Any], datatype: DataType, name: str) -> NDArray[Any]:
    if numbers.dtype.kind != "f" and datatype is not FP16:  # its range has all integers of 64 bits
        return numbers.astype(datatype.numpy)
    with np.errstate(over="ignore"):
        array: NDArray[Any] = numbers.astype(datatype.numpy, copy=False)
    if array is not numbers and not np.isfinite(array).all():
        grown = np.isinf(array) & np.isfinite(numbers)
        if grown.any():
            raise _out_of_range(numbers[grown][0].item(), datatype, name)
    return array


def _cast_bf16(numbers: NDArray[Any], name: str) -> NDArray[Any]:
    """Returns the bits of the nearest BF16: its arrays are uint16, but the numbers of a request are values."""
    from core.float16 import bf16_from_float, bf16_to_float  # noqa: PLC0415 - cold start: few models have 16 bits

    array = bf16_from_float(numbers.astype(np.float64, copy=False))
    grown = np.isinf(bf16_to_float(array)) & np.isfinite(numbers)
    if grown.any():
        raise _out_of_range(numbers[grown][0].item(), BF16, name)
    return array


def _integers(doubles: NDArray[Any], datatype: DataType, name: str) -> NDArray[Any]:
    beyond = doubles[np.abs(doubles) >= EXACT_IN_DOUBLE]
    if beyond.size:
        raise _not_integral(beyond[0].item(), datatype, name)
    with np.errstate(invalid="ignore"):  # for NaN, which is refused below, numpy would warn on stderr
        whole = doubles.astype(np.int64)
    odd = doubles[whole != doubles]
    if odd.size:
        raise _not_integral(odd[0].item(), datatype, name)
    return whole
