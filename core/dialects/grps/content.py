"""The content of a GRPS message, in JSON or protobuf, and the mapping of this server's datatypes to GRPS's few.

GRPS has no booleans, no unsigned integers above 8 bits and no bfloat16. Each is sent in the narrowest type that holds
it, and read back from that type with a check of its range. Source: GRPS's interface document, and its grps.proto.
"""

from typing import Any, Final

import numpy as np

from core.dtype import BF16, BY_GRPS, BYTES, DATATYPES, FP32, FP64, INT64, DataType, NDArray
from core.encoding.values import from_values
from core.errors import InvalidInput, ModelFailed, shown
from core.float16 import bf16_from_float, bf16_to_float
from core.records import NamedTuple
from core.tensor import Tensor, named

UINT8: Final = DATATYPES["UINT8"]
TYPES: Final = (
    "DT_INVALID", "DT_UINT8", "DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_FLOAT16", "DT_FLOAT32", "DT_FLOAT64",
    "DT_STRING",
)  # fmt: skip
"""The names of the protocol's DataType, by their numbers."""
CARRIERS: Final = {
    "BOOL": UINT8,
    "UINT16": DATATYPES["INT32"],
    "UINT32": INT64,
    "UINT64": INT64,
    "BF16": FP32,
}
"""The types that carry datatypes which the protocol lacks; INT64 carries UINT64 up to its own maximum."""
MAP_FIELDS: Final = {
    "s_s": BYTES,
    "s_b": BYTES,
    "s_i32": DATATYPES["INT32"],
    "s_i64": INT64,
    "s_f": FP32,
    "s_d": FP64,
}
"""The maps of GenericMapData, and the datatypes of their values."""
FLAT_FIELDS: Final = tuple(datatype.grps_field for datatype in BY_GRPS.values())
"""The fields of GenericTensor that hold elements."""
LARGEST_SIZE: Final = 2**32 - 1
"""The largest dimension: uint32."""


class Text(NamedTuple):
    """str_data."""

    text: str


class Binary(NamedTuple):
    """bin_data."""

    data: bytes | memoryview


class Tensors(NamedTuple):
    """gtensors, of the protocol's types. The name "" means no name."""

    tensors: tuple[Tensor, ...]


class Numbers(NamedTuple):
    """ndarray: FP32 in its own shape."""

    array: NDArray[Any]


class MapEntry(NamedTuple):
    """One entry of a map: its key and value as a tensor without a dimension. `field`: a key of MAP_FIELDS."""

    field: str
    tensor: Tensor


class Map(NamedTuple):
    """gmap."""

    entries: tuple[MapEntry, ...]


Content = Text | Binary | Tensors | Numbers | Map


class GrpsQuestion(NamedTuple):
    """The content of a request, and the model it is for. `model`: a name, or name-version; "" without one."""

    model: str
    content: Content


def carrier(datatype: DataType) -> DataType:
    """Returns the protocol's type that carries a datatype's elements."""
    return CARRIERS.get(datatype.name, datatype)


def other_field(name: str, datatype: DataType, field: str) -> InvalidInput:
    """Returns the refusal of a tensor whose elements are in `field`, which is not that of its datatype."""
    return InvalidInput(f"{named(name)} has the dtype {datatype.grps} and '{field}'; expected '{datatype.grps_field}'")


def element(value: bytes) -> NDArray[Any]:
    """Returns one BYTES element as an array without a dimension."""
    array = np.empty((), object)
    array[()] = value
    return array


def carried(tensor: Tensor) -> Tensor:
    """Returns an output in a type of the protocol. Raises ModelFailed for values that no such type holds."""
    datatype, array = carrier(tensor.datatype), tensor.array
    if datatype is tensor.datatype:
        return tensor
    if tensor.datatype is BF16:
        return Tensor(tensor.name, datatype, bf16_to_float(array.reshape(-1)).reshape(array.shape))
    if array.size and array.max().item() > np.iinfo(datatype.numpy.str).max:
        raise ModelFailed(
            f"output {shown(tensor.name)} has {array.max().item()}, which is beyond the range of {datatype.grps}"
        )
    return Tensor(tensor.name, datatype, array.astype(datatype.numpy))


def converted(tensor: Tensor, datatype: DataType) -> Tensor:
    """Converts numbers to another datatype: floats round to the nearest, integers stay exact. Raises InvalidInput."""
    name, shape = tensor.name, tensor.array.shape
    flat = tensor.array.reshape(-1)
    if datatype is not BF16:
        return from_values(name, datatype, shape, flat)
    bits = bf16_from_float(flat)
    grown = np.isinf(bf16_to_float(bits)) & np.isfinite(flat)
    if grown.any():
        raise InvalidInput(f"{named(name)} has {shown(flat[grown][0].item())}, which is out of range for BF16")
    return Tensor(name, BF16, bits.reshape(shape))
