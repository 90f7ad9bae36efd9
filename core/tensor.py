"""Named tensors, and the only conversions between their elements and bytes or parsed JSON."""

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.dtype import BOOL, DataType
from core.errors import InvalidInput, shown

MAX_RANK: Final = 32
"""What every supported numpy can hold."""
MAX_DIMENSION: Final = 2**63 - 1
FEW: Final = 128
"""Elements up to which Python's own comparisons are faster than numpy's calls."""
LARGEST_HALF: Final = 65504.0
EXACT_IN_DOUBLE: Final = 2**53
NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, None: math.nan}
"""What stands for a float that JSON numbers cannot express (proto3's JSON mapping; null is what MLServer writes)."""


class Inexact(InvalidInput):
    """The numbers came as doubles and the datatype needs more digits: parse the text again, exactly.

    From the exact parser it means what it says to a client.
    """


class TensorSpec(NamedTuple):
    """What a model says of one input or output. `shape`: -1 is any size, () a scalar, None any rank."""

    name: str
    datatype: DataType
    shape: tuple[int, ...] | None
    labels: tuple[str, ...] = ()
    """Class labels, for an output of scores."""


class Tensor(NamedTuple):
    """`array` has the datatype's numpy type: BYTES are objects of `bytes`, BF16 its bits as uint16."""

    name: str
    datatype: DataType
    array: NDArray[Any]


def checked_shape(value: Any, what: str) -> tuple[int, ...]:
    """A shape off the wire: a list of unsigned integers below 2**63, or InvalidInput that names `what`."""
    if not isinstance(value, list):
        raise InvalidInput(f"{what} needs 'shape': an array of unsigned integers, not {shown(value)}")
    if len(value) > MAX_RANK:
        raise InvalidInput(f"{what} has {len(value)} dimensions; at most {MAX_RANK} are possible")
    for size in value:
        if type(size) is not int or not 0 <= size <= MAX_DIMENSION:
            raise InvalidInput(f"{what} has {shown(size)} in its shape; expected unsigned integers below 2**63")
    return tuple(value)


def _shaped(array: NDArray[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    """`array` in `shape`, whose elements must be exactly as many."""
    expected = math.prod(shape)  # of Python integers: never overflows
    if array.size != expected:
        raise InvalidInput(f"{what} has {array.size} elements; its shape {shown(list(shape))} needs {expected}")
    try:
        return array.reshape(shape)
    except ValueError:  # an empty tensor whose other dimensions are beyond what numpy can address
        raise InvalidInput(f"{what} has a shape too large to address: {shown(list(shape))}") from None


def flatten(data: Sequence[Any]) -> Sequence[Any]:
    """The elements of nested lists in row-major order, however they are nested; in time that grows with their text."""
    while True:
        kinds = set(map(type, data))
        if list not in kinds:
            return data
        if len(kinds) > 1:
            return list(_walk(data))
        data = list(chain.from_iterable(data))


def _walk(data: Sequence[Any]) -> Iterator[Any]:
    """Lists and elements side by side: one by one, because rebuilding a level per depth would be quadratic."""
    stack = [iter(data)]
    while stack:
        for value in stack[-1]:
            if type(value) is list:
                stack.append(iter(value))
                break
            yield value
        else:
            stack.pop()


def from_values(name: str, datatype: DataType, shape: tuple[int, ...], data: Any) -> Tensor:
    """A tensor from parsed JSON: nested or flat lists, or an array of int64, uint64 or double that a parser made.

    The number of elements must fit the shape; how they are nested does not matter (as in every peer).
    Raises InvalidInput for a value that the datatype cannot hold exactly, floats rounded to nearest apart;
    Inexact where an array of doubles may already have lost digits.
    """
    what = f"input {shown(name)}"
    if isinstance(data, list):
        flat = flatten(data)
        expected = math.prod(shape)
        if len(flat) != expected:
            raise InvalidInput(f"{what} has {len(flat)} elements; its shape {shown(list(shape))} needs {expected}")
        array = _from_list(flat, datatype, what)
    elif isinstance(data, np.ndarray):
        array = _cast(data, datatype, what)
    else:
        raise InvalidInput(f"{what} needs 'data': an array, not {shown(data)}")
    return Tensor(name, datatype, _shaped(array, shape, what))


def _from_list(flat: Sequence[Any], datatype: DataType, what: str) -> NDArray[Any]:
    kinds = set(map(type, flat))
    if datatype.is_bytes:
        return _from_strings(flat, kinds, what)
    if datatype.is_float and kinds == {float} and len(flat) <= FEW and _bounded(flat):
        return np.array(flat, datatype.numpy)
    if kinds <= {int, float}:
        return _cast(_numbers(flat, kinds, datatype, what), datatype, what)
    if datatype is BOOL and kinds <= {bool}:
        return np.array(flat, BOOL.numpy)
    return _cast(_mixed(flat, datatype, what), datatype, what)


def _bounded(flat: Sequence[float]) -> bool:
    """Whether no element can be out of any float's range; a NaN makes it False or does no harm."""
    return max(flat) <= LARGEST_HALF and min(flat) >= -LARGEST_HALF


def _from_strings(flat: Sequence[Any], kinds: set[type], what: str) -> NDArray[Any]:
    if not kinds <= {str}:
        odd = next(x for x in flat if type(x) is not str)
        raise InvalidInput(f"{what} has {shown(odd)} where BYTES needs strings")
    array = np.empty(len(flat), object)
    try:
        array[:] = [x.encode() for x in flat]
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} has a string with a lone surrogate, which is no Unicode text") from None
    return array


def _numbers(flat: Sequence[Any], kinds: set[type], datatype: DataType, what: str) -> NDArray[Any]:
    """Integers stay exact for as long as 64 bits hold them; floats are doubles."""
    if datatype.is_float and float in kinds:
        return _doubles(flat, datatype, what)
    if float in kinds:
        flat = [_integral(x, datatype, what) for x in flat]
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(flat, dtype)
        except OverflowError:
            continue
    if datatype.is_float:
        return _doubles(flat, datatype, what)
    odd = next((x for x in flat if not -(2**63) <= x < 2**64), min(flat))
    raise _out_of_range(odd, datatype, what)


def _doubles(flat: Sequence[Any], datatype: DataType, what: str) -> NDArray[Any]:
    try:
        return np.array(flat, np.float64)
    except OverflowError:
        raise _out_of_range(max(flat, key=abs), datatype, what) from None


def _integral(value: float, datatype: DataType, what: str) -> int:
    """An integer, or one with a fraction of zero (1.0) as far as doubles are exact."""
    if type(value) is int:
        return value
    kind = Inexact if abs(value) >= EXACT_IN_DOUBLE else InvalidInput
    if not value.is_integer() or kind is Inexact:
        raise kind(f"{what} has {shown(value)} where {datatype.name} needs integers")
    return int(value)


def _mixed(flat: Sequence[Any], datatype: DataType, what: str) -> NDArray[Any]:
    """The exact, slow path: one element at a time, because some are no plain numbers."""
    if datatype.is_float:
        return np.array([_float(x, datatype, what) for x in flat])
    allowed = (bool, int) if datatype is BOOL else (int,)
    for value in flat:
        if type(value) not in allowed:
            kind = "booleans" if datatype is BOOL else "integers"
            raise InvalidInput(f"{what} has {shown(value)} where {datatype.name} needs {kind}")
    return np.array([int(x) for x in flat], np.int64)


def _float(value: Any, datatype: DataType, what: str) -> float:
    if type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise _out_of_range(value, datatype, what) from None
    if (value is None or type(value) is str) and value in NON_FINITE:
        return NON_FINITE[value]
    raise InvalidInput(f"{what} has {shown(value)} where {datatype.name} needs numbers")


def _out_of_range(value: Any, datatype: DataType, what: str) -> InvalidInput:
    digits = math.log10(abs(value)) if isinstance(value, int) and value else 0
    text = shown(value) if digits < 64 else f"an integer of {int(digits) + 1} digits"  # noqa: PLR2004 - readable width
    return InvalidInput(f"{what} has {text}, which is out of range for {datatype.name}")


def _cast(numbers: NDArray[Any], datatype: DataType, what: str) -> NDArray[Any]:
    """int64, uint64 or double elements as the datatype's own, or InvalidInput for the first that does not fit."""
    if datatype.is_float:
        return _cast_float(numbers, datatype, what)
    if datatype.is_bytes:
        if numbers.size:
            raise InvalidInput(f"{what} has {shown(numbers.flat[0].item())} where BYTES needs strings")
        return np.empty(0, object)
    if numbers.dtype.kind == "f":
        numbers = _integers(numbers, datatype, what)
    low, high = _range(datatype)
    if numbers.size:
        for extreme in (numbers.min().item(), numbers.max().item()):
            if not low <= extreme <= high:
                raise _out_of_range(extreme, datatype, what)
    return numbers.astype(datatype.numpy, copy=False)


def _range(datatype: DataType) -> tuple[int, int]:
    if datatype is BOOL:
        return 0, 1
    bits = 8 * datatype.numpy.itemsize
    return (0, 2**bits - 1) if datatype.numpy.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _cast_float(numbers: NDArray[Any], datatype: DataType, what: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        array: NDArray[Any] = numbers.astype(datatype.numpy, copy=False)
    if array is not numbers and not np.isfinite(array).all():
        grown = np.isinf(array) & np.isfinite(numbers)
        if grown.any():
            raise _out_of_range(numbers[grown][0].item(), datatype, what)
    return array


def _integers(doubles: NDArray[Any], datatype: DataType, what: str) -> NDArray[Any]:
    beyond = doubles[np.abs(doubles) >= EXACT_IN_DOUBLE]
    if beyond.size:
        raise Inexact(f"{what} has {shown(beyond[0].item())} where {datatype.name} needs integers")
    whole = doubles.astype(np.int64)
    odd = doubles[whole != doubles]
    if odd.size:
        raise InvalidInput(f"{what} has {shown(odd[0].item())} where {datatype.name} needs integers")
    return whole


def from_raw(name: str, datatype: DataType, shape: tuple[int, ...], raw: bytes | memoryview) -> Tensor:
    """A tensor from the binary extension's bytes, without a copy: little-endian, row-major; BYTES with lengths."""
    what = f"input {shown(name)}"
    view = memoryview(raw)
    if datatype.is_bytes:
        return Tensor(name, datatype, _shaped(_split_strings(view, what), shape, what))
    expected = math.prod(shape) * datatype.numpy.itemsize
    if len(view) != expected:
        raise InvalidInput(
            f"{what} has {len(view)} bytes of binary data; {datatype.name} {shown(list(shape))} needs {expected}"
        )
    array = np.frombuffer(view, datatype.numpy)
    if datatype is BOOL and array.view(np.uint8).max(initial=0) > 1:
        array = array.view(np.uint8) != 0  # any other bit pattern is undefined behaviour inside numpy and the runtimes
    if not array.flags.aligned:
        array = array.copy()
    return Tensor(name, datatype, _shaped(array, shape, what))


def _split_strings(view: memoryview, what: str) -> NDArray[Any]:
    """BYTES elements: each a 4-byte little-endian length, then as many bytes."""
    elements, position, end = [], 0, len(view)
    while position < end:
        if end - position < 4:  # noqa: PLR2004 - the prefix's own size
            raise InvalidInput(f"{what} ends inside a length prefix at byte {position} of {end}")
        (length,) = struct.unpack_from("<I", view, position)
        position += 4
        if length > end - position:
            raise InvalidInput(f"{what} has an element of {length} bytes where {end - position} are left")
        elements.append(bytes(view[position : position + length]))
        position += length
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def to_raw(tensor: Tensor) -> bytes | memoryview:
    """The binary extension's bytes of a tensor; the array's own memory where it already has that form."""
    if tensor.datatype.is_bytes:
        return b"".join(piece for element in tensor.array.flat for piece in (struct.pack("<I", len(element)), element))
    return np.ascontiguousarray(tensor.array, tensor.datatype.numpy).reshape(-1).view(np.uint8).data
