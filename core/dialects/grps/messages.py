"""Reads and writes GRPS's message in protobuf.

Packed floats are taken out of a large request's bytes, and put into an answer's bytes, without protobuf, which makes a
Python object for every element. Source: GRPS's grps.proto.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.bounds import check_number, check_parts
from core.dialects.grps.content import (
    FLAT_FIELDS,
    MAP_FIELDS,
    TYPES,
    Binary,
    Content,
    Map,
    MapEntry,
    Tensors,
    Text,
    element,
    other_field,
)
from core.dialects.grps.status import SUCCESS, failure
from core.dtype import BY_GRPS, BYTES, DATATYPES, FP32, FP64, INT64, DataType, NDArray
from core.encoding.values import from_values
from core.errors import InvalidInput, ServingError
from core.records import NamedTuple
from core.schema import fields
from core.schema.fields import Part
from core.schema.grps import GenericMapData, GenericTensor, GenericTensorData, GrpsMessage, Status
from core.tensor import Tensor, check_count, check_rank, checked_shape, named, shaped

GTENSORS: Final = GrpsMessage.GTENSORS_FIELD_NUMBER
TENSORS: Final = GenericTensorData.TENSORS_FIELD_NUMBER
FLOATS: Final = {
    "flat_float16": (GenericTensor.FLAT_FLOAT16_FIELD_NUMBER, FP32.numpy),
    "flat_float32": (GenericTensor.FLAT_FLOAT32_FIELD_NUMBER, FP32.numpy),
    "flat_float64": (GenericTensor.FLAT_FLOAT64_FIELD_NUMBER, FP64.numpy),
}
"""The fields that are packed like arrays in memory: their numbers and element types."""
INTEGERS: Final = {
    "flat_uint8": DATATYPES["UINT32"].numpy,
    "flat_int8": DATATYPES["INT32"].numpy,
    "flat_int16": DATATYPES["INT32"].numpy,
    "flat_int32": DATATYPES["INT32"].numpy,
    "flat_int64": INT64.numpy,
}
"""The element type of each field of integers, which may be wider than the datatype in it."""
ELEMENTS: Final = {**INTEGERS, **{field: dtype for field, (_, dtype) in FLOATS.items()}}
WORTH_SPLITTING: Final = 32 * 1024
"""Bytes from which on finding the floats between the other fields costs less than protobuf's reading."""
NO_FIELD: Final = "No legal field in message."
NDARRAY: Final = "ndarray is for JSON alone: send gtensors"
Packed = Mapping[str, bytes]
"""The elements that have been taken out of a tensor's message, by field."""


class SplitRequest(NamedTuple):
    """A request in protobuf. `kind`: the field of its content. `tensors`: the gtensors that `message` lacks."""

    message: GrpsMessage
    kind: str
    tensors: Sequence[tuple[GenericTensor, Packed]] = ()

    @property
    def model(self) -> str:
        return self.message.model

    @property
    def tensor_count(self) -> int:
        """The number of tensors; `content` makes them, which takes a hundred times as long as reading them."""
        return len(self.tensors) or len(self.message.gtensors.tensors)

    def content(self) -> Content:
        """Makes the content. Raises InvalidInput."""
        if self.tensors:
            return Tensors(tuple(_tensor(*tensor, index) for index, tensor in enumerate(self.tensors)))
        return _CONTENTS[self.kind](self.message)


def read(body: bytes) -> SplitRequest:
    """Parses a request. Raises DecodeError, and InvalidInput for a message without content."""
    request = _large(body) if len(body) >= WORTH_SPLITTING else None
    if request is not None:
        return request
    message = GrpsMessage.FromString(body)
    kind = message.WhichOneof("data_oneof")
    if kind is None:
        raise InvalidInput(NO_FIELD)
    return SplitRequest(message, kind)


def _large(body: bytes) -> SplitRequest | None:
    """Parses a request whose content is gtensors. Returns None for any other, and to leave a request to protobuf."""
    split = fields.split(body, GTENSORS)
    if split is None or not split[1]:
        return None
    rest, parts = split
    message = GrpsMessage.FromString(rest)
    if message.WhichOneof("data_oneof") is not None:  # protobuf keeps the last content
        return None
    split = fields.split(b"".join(parts), TENSORS)  # protobuf merges the parts of a repeated message
    if split is None or not split[1]:
        return None
    rest, members = split
    GenericTensorData.FromString(rest)
    return SplitRequest(message, "gtensors", [_unpacked(bytes(member)) for member in members])


def _unpacked(body: bytes) -> tuple[GenericTensor, Packed]:
    """Returns a tensor's message without its packed floats, and the packed floats."""
    packed: dict[str, bytes] = {}
    rest = body
    for field, (number, dtype) in FLOATS.items():
        split = fields.split(rest, number)
        if split is None or any(len(part) % dtype.itemsize for part in split[1]):
            return GenericTensor.FromString(body), {}
        if split[1]:
            rest, parts = split
            packed[field] = b"".join(parts)
    message = GenericTensor.FromString(rest)
    if any(getattr(message, field) for field in packed):  # some are not packed
        return GenericTensor.FromString(body), {}
    return message, packed


def _tensor(message: GenericTensor, packed: Packed, index: int) -> Tensor:
    name = message.name or f"tensors[{index}]"
    datatype = _datatype(message.dtype, name)
    check_rank(len(message.shape), name)
    shape = checked_shape(list(message.shape), name)
    if datatype.grps_field not in packed and 0 not in shape and not getattr(message, datatype.grps_field):
        _refuse_other_field(message, packed, datatype, name)
    if datatype is BYTES:
        check_count(len(message.flat_string), shape, name)
        return Tensor(message.name, BYTES, shaped(_strings(message), shape, name))
    field = datatype.grps_field
    if field in packed:
        elements = np.frombuffer(packed[field], ELEMENTS[field])
    else:
        values = getattr(message, field)
        check_count(len(values), shape, name)
        elements = fields.array(values, len(values), ELEMENTS[field])
    return from_values(name, datatype, shape, elements)._replace(name=message.name)


def _refuse_other_field(message: GenericTensor, packed: Packed, datatype: DataType, name: str) -> None:
    """Raises InvalidInput if another datatype's field has elements."""
    for field in FLAT_FIELDS:
        if packed.get(field) or getattr(message, field):
            raise other_field(name, datatype, field)


def _datatype(number: int, name: str) -> DataType:
    datatype = BY_GRPS.get(TYPES[number]) if 0 <= number < len(TYPES) else None
    if datatype is None:
        raise InvalidInput(f"{named(name)} has {number} as dtype; expected one of {', '.join(TYPES[1:])}")
    return datatype


def _strings(message: GenericTensor) -> NDArray[Any]:
    array = np.empty(len(message.flat_string), object)
    array[:] = [text.encode() for text in message.flat_string]
    return array


def _gtensors(message: GrpsMessage) -> Tensors:
    tensors = message.gtensors.tensors
    check_parts(tensors, "tensors")
    return Tensors(tuple(_tensor(tensor, {}, index) for index, tensor in enumerate(tensors)))


def _ndarray(_: GrpsMessage) -> Content:
    raise InvalidInput(NDARRAY)


def _map(message: GrpsMessage) -> Map:
    check_number(sum(len(getattr(message.gmap, field)) for field in MAP_FIELDS), "values")
    return Map(
        tuple(
            MapEntry(field, Tensor(key, datatype, _value(datatype, value)))
            for field, datatype in MAP_FIELDS.items()
            for key, value in getattr(message.gmap, field).items()
        )
    )


def _value(datatype: DataType, value: Any) -> NDArray[Any]:
    if datatype is not BYTES:
        return np.array(value, datatype.numpy)
    return element(value.encode() if isinstance(value, str) else value)


_CONTENTS: Final[dict[str, Callable[[GrpsMessage], Content]]] = {
    "str_data": lambda message: Text(message.str_data),
    "bin_data": lambda message: Binary(message.bin_data),
    "gtensors": _gtensors,
    "ndarray": _ndarray,
    "gmap": _map,
}


# -- writing ----------------------------------------------------------------------------------------------------------


def write(content: Content) -> bytes:
    """Returns a success with the content. Raises InvalidInput for ndarray, which only JSON carries."""
    message = success()
    match content:
        case Tensors(tensors):
            parts = [part for tensor in tensors for part in _framed(TENSORS, _written(tensor))]
            return b"".join((message.SerializeToString(), *_framed(GTENSORS, parts)))
        case Text(text):
            message.str_data = text
        case Binary(data):
            message.bin_data = bytes(data)
        case Map(entries):
            message.gmap.CopyFrom(_gmap(entries))
        case _:
            raise InvalidInput(NDARRAY)
    return message.SerializeToString()


def success(**members: Any) -> GrpsMessage:
    return GrpsMessage(status=Status(**SUCCESS), **members)


def refusal(error: ServingError) -> GrpsMessage:
    return GrpsMessage(status=Status(**failure(error)))


def _framed(number: int, parts: list[Part]) -> list[Part]:
    return [fields.head(number, sum(map(len, parts))), *parts]


def _written(tensor: Tensor) -> list[Part]:
    field, array = tensor.datatype.grps_field, tensor.array
    message = GenericTensor(name=tensor.name, dtype=tensor.datatype.grps, shape=array.shape)
    if field in FLOATS and array.size:
        number, dtype = FLOATS[field]
        packed = np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data
        return [message.SerializeToString(), *_framed(number, [packed])]
    values = array.reshape(-1).tolist()
    getattr(message, field).extend([value.decode() for value in values] if tensor.datatype is BYTES else values)
    return [message.SerializeToString()]


def _gmap(entries: tuple[MapEntry, ...]) -> GenericMapData:
    message = GenericMapData()
    for field, tensor in entries:
        value = tensor.array.item()
        getattr(message, field)[tensor.name] = value.decode() if field == "s_s" else value
    return message
