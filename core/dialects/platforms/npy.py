"""One array in numpy's own format, .npy: its head says datatype and shape, and its elements follow.

Objects, which take pickle, are refused. Source: numpy.lib.format, versions 1.0 and 2.0.
"""

import math
import re
import struct
from io import BytesIO
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from core.bounds import RATIO, check_empty
from core.dtype import BF16, BYTES, of_array
from core.encoding.values import SLICE, from_values, listed
from core.errors import InvalidInput, ModelFailed, shown
from core.float16 import widened
from core.operations import ModelSpec
from core.tensor import Tensor, as_column, check_rank, flat_texts, objects

NUMBERS: Final = "biuf"
"""numpy's kinds of booleans, integers and floats."""
TEXTS: Final = "SU"
"""numpy's kinds of texts: of bytes and of characters, all as long as the longest."""
LONGEST_HEAD: Final = 4096
"""Bytes of a head that is read. numpy's have 128."""
NAME: Final = "input-0"
CHARACTER: Final = 4
"""Bytes of a character in numpy's strings."""
PADDED: Final = 16 * 1024 * 1024
"""Bytes that an array of texts may always have. Each text takes as many as the longest: beyond these, at most RATIO
times the texts' characters are accepted."""
LENGTHS: Final = {(1, 0): "<H", (2, 0): "<I"}
"""The length of the head, by the format's version."""
MEMBER: Final = re.compile(
    rb"""(['"])(?:descr\1:(['"])(?P<type>[<>|=]?[A-Za-z?][A-Za-z0-9]{0,15})\2"""
    rb"""|fortran_order\1:(?P<order>True|False)|shape\1:\((?P<shape>(?:[0-9]+L?,)*(?:[0-9]+L?)?)\))(?:,|$)"""
)
"""A member of the head, which has no spaces here. Python 2 wrote an L behind integers."""


def read(body: bytes | memoryview, spec: ModelSpec) -> Tensor:
    """Returns the model's only input. Raises InvalidInput."""
    inputs = spec.inputs
    array = _array(body, inputs[0].name if inputs and len(inputs) == 1 else NAME)
    datatype = of_array(array.dtype)
    if inputs is None:
        if datatype is None:
            raise InvalidInput(f"the array's type is {shown(str(array.dtype))}; expected one of at most 64 bits")
        return _from_texts(NAME, array) if datatype is BYTES else Tensor(NAME, datatype, array)
    required = [tensor for tensor in inputs if not tensor.optional] or inputs
    if len(required) != 1:
        names = [tensor.name for tensor in required]
        raise InvalidInput(f"one array is one input, and model {shown(spec.name)} needs {shown(names)}: send JSON")
    only = required[0]
    if datatype is BYTES:
        if only.datatype is not BYTES:
            raise _unreadable(array.dtype)
        return as_column(_from_texts(only.name, array), only.shape)
    if only.datatype is datatype:
        return as_column(Tensor(only.name, datatype, array), only.shape)
    wide = array.astype({"f": np.float64, "u": np.uint64}.get(array.dtype.kind, np.int64))
    return as_column(from_values(only.name, only.datatype, array.shape, wide.reshape(-1)), only.shape)


def _array(body: bytes | memoryview, name: str) -> Any:
    """Returns the array, over the body's memory. `name`: its input's. Raises InvalidInput."""
    try:
        shape, is_fortran, dtype, start = _head(bytes(body[: LONGEST_HEAD + len(npy.MAGIC_PREFIX) + 6]))
    except (ValueError, TypeError, struct.error) as error:
        raise InvalidInput(f"the body is not an array in numpy's format: {error}") from None
    if dtype.kind not in NUMBERS + TEXTS or not dtype.itemsize:
        raise _unreadable(dtype)
    check_rank(len(shape), name)
    if 0 in shape:
        check_empty(shape, "the array")
    data = memoryview(body)[start:]
    needed = math.prod(shape) * dtype.itemsize
    if needed != len(data):
        raise InvalidInput(f"the array has {len(data)} bytes; {dtype} {shown(list(shape))} needs {needed}")
    flat = np.frombuffer(data, dtype)
    if dtype.kind == "b":
        flat = flat.view(np.uint8) != 0  # any other bit pattern is undefined behaviour
    flat = flat.astype(flat.dtype.newbyteorder("<"), copy=not flat.flags.aligned)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _unreadable(dtype: "np.dtype[Any]") -> InvalidInput:
    return InvalidInput(f"the array's type is {shown(str(dtype))}; expected numbers or booleans, or texts for BYTES")


def _from_texts(name: str, array: Any) -> Tensor:
    """Returns a tensor of BYTES. Encodes characters as UTF-8. Raises InvalidInput for characters outside Unicode."""
    flat = array.reshape(-1)
    pieces = (listed(flat[start : start + SLICE]) for start in range(0, flat.size, SLICE))
    elements = [*chain.from_iterable(pieces)]  # other threads run between the pieces
    if array.dtype.kind == "U":
        return from_values(name, BYTES, array.shape, elements)
    return Tensor(name, BYTES, objects(elements).reshape(array.shape))


def _head(start: bytes) -> tuple[tuple[int, ...], bool, "np.dtype[Any]", int]:
    """Returns shape, order, type, and the head's length. Raises ValueError, TypeError, struct.error.

    numpy's own reader gives the head to Python's parser, which prints its warnings, and whose errors have addresses.
    """
    version = npy.read_magic(BytesIO(start))
    if version not in LENGTHS:
        raise ValueError(f"version {version} of the format is not known")
    at = npy.MAGIC_LEN + struct.calcsize(LENGTHS[version])
    (size,) = struct.unpack(LENGTHS[version], start[npy.MAGIC_LEN : at])
    if size > len(start) - at:
        raise ValueError(f"its head has {size} bytes; expected at most {LONGEST_HEAD}, and all of them")
    inner = b"".join(start[at : at + size].split())
    members = [*MEMBER.finditer(inner, 1, len(inner) - 1)]
    found = {name: text.decode() for each in members for name, text in each.groupdict().items() if text is not None}
    if not len(members) == len(found) == len(MEMBER.groupindex) or inner != b"{%b}" % b"".join(m[0] for m in members):
        raise ValueError(f"its head is {shown(inner[:128])}; expected a type in 'descr', 'fortran_order' and 'shape'")
    sizes = tuple(int(each.removesuffix("L")) for each in found["shape"].split(",") if each)
    return sizes, found["order"] == "True", np.dtype(found["type"]), at + size


def write(tensor: Tensor) -> bytes:
    """Returns an output; texts become numpy's strings of one length. Raises ModelFailed, InvalidInput."""
    array: Any = widened(tensor.array, BF16) if tensor.datatype is BF16 else tensor.array
    if tensor.datatype.is_bytes:
        array = np.array(_texts(tensor), np.str_).reshape(tensor.shape)
    stream = BytesIO()
    npy.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def _texts(tensor: Tensor) -> list[str]:
    """Returns the texts. Raises ModelFailed, and InvalidInput if a long one among many would take their memory."""
    try:
        texts = flat_texts(tensor)
    except UnicodeDecodeError:
        raise ModelFailed(f"output {shown(tensor.name)} has bytes that are not UTF-8") from None
    lengths = [*map(len, texts)]
    size = CHARACTER * len(lengths) * max(lengths, default=0)
    if size > max(PADDED, RATIO * sum(lengths)):
        wide = f"{len(lengths)} texts of up to {max(lengths)} characters, {size} bytes as one array of numpy's"
        raise InvalidInput(f"output {shown(tensor.name)} has {wide}: accept JSON")
    return texts
