"""Named tensors, their shapes, and the only conversions between their elements and bytes."""

import math
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Self, TypeGuard

import numpy as np

from core.bounds import check_empty
from core.dtype import BOOL, BYTES, DataType, NDArray
from core.errors import InvalidInput, counted, given, shown
from core.records import NamedTuple

PREFIX: Final = struct.Struct("<I")
"""The length before each element of BYTES in the binary extension."""
COPIED: Final = 1 << 20
"""Bytes of BYTES up to which a copy pays: slices of `bytes` take half the time of slices of a view. So many are read
and written as a whole, in two milliseconds in which no other thread of Python runs."""
TOGETHER: Final = 16_384
"""The most elements of BYTES that are converted at a time. Other threads of Python can run between two slices. Most
slices of texts have fewer than COPIED bytes, so they are written as a whole."""
NO_LENGTH: Final = "\0\0\0\0"
"""The place of a prefix, between texts that have no NUL."""
LONGEST_TEXT: Final = 255
"""Bytes of an element whose prefix has one byte that is not NUL."""
MAX_RANK: Final = 32
"""The most dimensions that every supported numpy can hold."""
MAX_DIMENSION: Final = 2**63 - 1
MAX_DECLARED: Final = 2**48
"""The most elements that a model can declare: as many bytes as a processor can address."""


class TensorSpec(NamedTuple):
    """A model's declaration of one input or output. `shape`: -1 is any size, () a scalar, None any rank."""

    name: str
    datatype: DataType
    shape: tuple[int, ...] | None
    labels: tuple[str, ...] = ()
    """Class labels, for an output of scores."""
    optional: bool = False
    """True for an input that some of the model's signatures do not use."""
    format: str = "FORMAT_NONE"
    """The order of an image's axes, as Triton's clients of image models read it from the configuration."""
    reshape: tuple[int, ...] | None = None  # the model's own shape, if requests and answers have another one


class Tensor(NamedTuple):
    """`array` has the datatype's numpy type: BYTES are objects of `bytes`, BF16 its bits as uint16."""

    name: str
    datatype: DataType
    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def texts(self) -> NDArray[Any] | None:
        """The elements of BYTES as objects of `str`, if they exist in that form."""
        return None

    def renamed(self, name: str) -> "Tensor":
        return Tensor(name, self.datatype, self.array)

    def reshaped(self, shape: tuple[int, ...]) -> "Tensor":
        return Tensor(self.name, self.datatype, self.array.reshape(shape))

    def rows(self, start: int, end: int) -> "Tensor":
        return Tensor(self.name, self.datatype, self.array[start:end])


class TextTensor(Tensor):
    """BYTES that exist as `str`, of which UTF-8 can encode each: from JSON, ONNX Runtime, or short binary elements.

    Most of them are never needed as `bytes`, which `array` makes when it is read for the first time.
    """

    def __new__(cls, name: str, texts: NDArray[Any]) -> Self:
        return super().__new__(cls, name, BYTES, texts)

    @property
    def texts(self) -> NDArray[Any]:
        texts: NDArray[Any] = self[2]
        return texts

    @property
    def shape(self) -> tuple[int, ...]:
        return self.texts.shape

    @cached_property
    def array(self) -> NDArray[Any]:
        elements = self.texts.reshape(-1).tolist()
        if len(elements) > TOGETHER:  # a loop in Python lets other threads run
            return objects([text.encode() for text in elements]).reshape(self.shape)
        return np.fromiter(map(str.encode, elements), object, len(elements)).reshape(self.shape)

    def renamed(self, name: str) -> "TextTensor":
        return TextTensor(name, self.texts)

    def reshaped(self, shape: tuple[int, ...]) -> "TextTensor":
        return TextTensor(self.name, self.texts.reshape(shape))

    def rows(self, start: int, end: int) -> "TextTensor":
        return TextTensor(self.name, self.texts[start:end])

    def _replace(self, **changes: Any) -> Tensor:  # type: ignore[override]  # with other elements it is not a TextTensor
        return Tensor(*self)._replace(array=self.array)._replace(**changes)


def named(name: str) -> str:
    """Returns an input's name for messages. It is formatted only for a raised error: that saves 3 us a request."""
    return f"input {shown(name)}"


def checked_shape(value: Any, name: str, most: int = MAX_DIMENSION) -> tuple[int, ...]:
    """Returns an input's shape from the wire, a list of unsigned integers of at most `most`, a power of 2 less 1.

    Raises InvalidInput, TooMany.
    """
    if not isinstance(value, list):
        raise InvalidInput(f"{named(name)} needs 'shape', an array of unsigned integers: it is {given(value)}")
    if len(value) > MAX_RANK:
        check_rank(len(value), name)
    for size in value:
        if type(size) is not int or not 0 <= size <= most:
            expected = f"unsigned integers below 2**{most.bit_length()}"
            raise InvalidInput(f"{named(name)} has {shown(size)} in its shape; expected {expected}")
    if 0 in value:
        check_empty(value, named(name))
    return tuple(value)


def check_rank(rank: int, name: str) -> None:
    if rank > MAX_RANK:
        raise InvalidInput(f"{named(name)} has {rank} dimensions; at most {MAX_RANK} are possible")


def is_possible(shape: tuple[int, ...] | list[int]) -> bool:
    """Decides whether a model's tensor can have this shape. -1 is any size. numpy limits the sizes beside a 0, too."""
    return len(shape) <= MAX_RANK and math.prod(max(1, size) for size in shape) <= MAX_DECLARED


def shaped(array: NDArray[Any], shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """Returns `array` in `shape`. Raises InvalidInput if the shape needs another number of elements."""
    check_count(array.size, shape, name)
    try:
        return array.reshape(shape)
    except ValueError:  # an empty tensor whose other dimensions are beyond what numpy can address
        raise InvalidInput(f"{named(name)} has a shape too large to address: {shown(list(shape))}") from None


def is_column(shape: tuple[int, ...] | None) -> TypeGuard[tuple[int, ...]]:
    """Decides whether each of a model's rows has one element.

    Exporters make a table's columns such inputs, [-1, 1] each, and a row of the table holds a scalar for each of them.
    """
    return shape is not None and len(shape) > 1 and math.prod(shape[1:]) == 1 and -1 not in shape[1:]


def as_column(tensor: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    """Returns scalars [rows] as [rows, 1] for an input that is a column, and others as they are."""
    if len(tensor.shape) != 1 or not is_column(shape):
        return tensor
    return tensor.reshaped((-1, *shape[1:]))


def check_count(count: int, shape: tuple[int, ...], name: str) -> None:
    expected = math.prod(shape)  # Python's integers never overflow
    if count != expected:
        raise InvalidInput(
            f"{named(name)} has {counted(count, 'element')}; its shape {shown(list(shape))} needs {expected}"
        )


def from_raw(name: str, datatype: DataType, shape: tuple[int, ...], raw: bytes | memoryview) -> Tensor:
    """Returns a tensor over the binary extension's bytes, without a copy: little-endian, row-major, BYTES with lengths.

    Raises InvalidInput if the bytes do not fit the shape.
    """
    view = memoryview(raw)
    if datatype.is_bytes:
        texts = _short_texts(view, math.prod(shape))
        if texts is not None:
            return TextTensor(name, shaped(objects(texts), shape, name))
        return Tensor(name, datatype, shaped(_split_strings(view, name), shape, name))
    expected = math.prod(shape) * datatype.numpy.itemsize
    if len(view) != expected:
        raise InvalidInput(
            f"{named(name)} has {len(view)} bytes of binary data where "
            f"{datatype.name} {shown(list(shape))} needs {expected}"
        )
    array = np.frombuffer(view, datatype.numpy)
    if datatype is BOOL and array.view(np.uint8).max(initial=0) > 1:
        array = array.view(np.uint8) != 0  # any other bit pattern is undefined behaviour inside numpy and the runtimes
    if not array.flags.aligned:
        array = array.copy()
    return Tensor(name, datatype, shaped(array, shape, name))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns one tensor of the rows of several. Raises ValueError if they differ in another axis."""
    first = parts[0]
    texts = [tensor.texts for tensor in parts if tensor.texts is not None]
    if len(texts) == len(parts):
        return TextTensor(first.name, np.concatenate(texts))
    return Tensor(first.name, first.datatype, np.concatenate([tensor.array for tensor in parts]))


def objects(elements: Sequence[Any]) -> NDArray[Any]:
    """Returns a flat array of strings, which np.array would look into."""
    return np.fromiter(elements, object, len(elements))


def flat_texts(tensor: Tensor) -> list[str]:
    """Returns the elements of BYTES as texts, in row-major order. Raises UnicodeDecodeError."""
    if tensor.texts is not None:
        texts: list[str] = tensor.texts.reshape(-1).tolist()
        return texts
    return [element.decode() for element in tensor.array.reshape(-1).tolist()]  # in Python: other threads run


def _short_texts(view: memoryview, count: int) -> list[str] | None:
    """Returns the elements of BYTES if each is UTF-8 of 1 to 255 bytes without a NUL; None: look at one after another.

    Every NUL is then the second, third or fourth byte of a prefix, so the prefixes are found at once. If each element
    ends where the next prefix begins, no other reading of the bytes is possible.
    """
    size = len(view)
    if not count or not 5 * count <= size <= min((4 + LONGEST_TEXT) * count, COPIED):
        return None
    codes = np.frombuffer(view, np.uint8)
    nulls = (codes == 0).nonzero()[0]
    if nulls.size != 3 * count:
        return None
    starts = nulls[::3] - 1
    ends = starts + codes[starts] + 4
    if starts[0] or (nulls[2::3] - starts - 3).any() or (ends[:-1] - starts[1:]).any() or ends[-1] != size:
        return None
    plain = codes.copy()
    plain[starts] = 0
    try:
        return str(plain.data, "utf-8")[4:].split(NO_LENGTH)
    except UnicodeDecodeError:
        return None


def _split_strings(view: memoryview, name: str) -> NDArray[Any]:
    """Returns the BYTES elements, each of which is a 4-byte little-endian length and as many bytes."""
    content = bytes(view) if len(view) <= COPIED else view
    length_at, elements = PREFIX.unpack_from, []
    start, position, end = 0, 0, len(content)
    while position + 4 <= end:
        start = position + 4
        position = start + length_at(content, position)[0]
        elements.append(content[start:position] if content is not view else view[start:position].tobytes())
    if position > end:
        text = f"{named(name)} has an element of {position - start} bytes where {end - start} are left"
        raise InvalidInput(text)
    if position < end:
        raise InvalidInput(f"{named(name)} ends inside a length prefix at byte {position} of {end}")
    return objects(elements)


def to_raw(tensor: Tensor) -> bytes | memoryview:
    """Returns a tensor in the binary extension's bytes: the array's own memory if it already has that form."""
    if not tensor.datatype.is_bytes:
        return np.ascontiguousarray(tensor.array, tensor.datatype.numpy).reshape(-1).view(np.uint8).data
    count = tensor[2].size  # of `texts`, or `array`
    if count > TOGETHER:
        flat = tensor.reshaped((count,))
        return b"".join([to_raw(flat.rows(start, start + TOGETHER)) for start in range(0, count, TOGETHER)])
    if tensor.texts is not None:
        short = _with_lengths(flat_texts(tensor))
        if short is not None:
            return short
    elements = tensor.array.reshape(-1).tolist()
    pieces: list[bytes] = [b""] * (2 * len(elements))
    pieces[::2], pieces[1::2] = map(PREFIX.pack, map(len, elements)), elements
    return b"".join(pieces)


def _with_lengths(texts: Sequence[str]) -> memoryview | None:
    """Returns the texts behind their prefixes, if each has at most 255 bytes and no NUL, and there are not too many."""
    joined = f"{NO_LENGTH}{NO_LENGTH.join(texts)}\0".encode()
    if len(joined) > COPIED:
        return None
    codes = np.frombuffer(bytearray(joined), np.uint8)
    nulls = (codes == 0).nonzero()[0]
    if nulls.size != 4 * len(texts) + 1:
        return None
    marks = nulls[::4]
    lengths = marks[1:] - marks[:-1] - 4
    if lengths.max() > LONGEST_TEXT:
        return None
    codes[marks[:-1]] = lengths
    return codes.data[:-1]
