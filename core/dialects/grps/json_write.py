"""GRPS's answers in JSON: proto3's JSON mapping without fields at their defaults, and nested lists for ndarray.

Integers of 64 bits are strings; floats of 16 bits have the digits of 32. Source: protobuf's ProtoJSON format.
"""

from collections.abc import Callable
from typing import Any, assert_never

import numpy as np

from core.dialects.grps.content import Binary, Content, Map, MapEntry, Numbers, Tensors, Text
from core.dialects.grps.status import SUCCESS
from core.dtype import BYTES, FP16, FP32, INT64
from core.encoding import jsonio, long_json
from core.encoding.jsonio import NonFinite, numeric
from core.encoding.proto_json import floats, from_bytes, integers
from core.tensor import Tensor

Spell = Callable[[str], str]
"""Spells a member's name: as in the protocol, or in proto3's lowerCamelCase."""


def snake(name: str) -> str:
    return name


def write(content: Content | None, spell: Spell, non_finite: NonFinite | None) -> bytes:
    """Returns a success with the content; with `content` None, the status only.

    Raises InvalidInput for NaN and infinities if `non_finite` is None.
    """
    told: dict[str, Any] = {"status": SUCCESS}
    if content is not None:
        name, value = _member(content, spell, non_finite)
        told[spell(name)] = value
    return jsonio.dumps(told)


def _member(content: Content, spell: Spell, non_finite: NonFinite | None) -> tuple[str, Any]:
    match content:
        case Text(text):
            return "str_data", long_json.text(text)
        case Binary(data):
            return "bin_data", from_bytes(data)
        case Numbers(array):
            return "ndarray", numeric(Tensor("ndarray", FP32, array), non_finite)
        case Tensors(tensors):
            told = [_tensor(tensor, spell, _without_null(non_finite)) for tensor in tensors]
            return "gtensors", {"tensors": told} if told else {}
        case Map(entries):
            return "gmap", _map(entries, spell, _without_null(non_finite))
        case _:
            assert_never(content)


def _without_null(non_finite: NonFinite | None) -> NonFinite | None:
    """Returns the form in tensors and maps: protobuf's parsers refuse null as an element or a value."""
    return NonFinite.QUOTED if non_finite is NonFinite.NULL else non_finite


def _tensor(tensor: Tensor, spell: Spell, non_finite: NonFinite | None) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tensor.name} if tensor.name else {}
    told["dtype"] = tensor.datatype.grps
    if tensor.array.ndim:
        told["shape"] = tensor.array.shape
    if tensor.array.size:
        flat = tensor._replace(array=np.ascontiguousarray(tensor.array).reshape(-1))
        told[spell(tensor.datatype.grps_field)] = _elements(flat, non_finite)
    return told


def _elements(flat: Tensor, non_finite: NonFinite | None) -> Any:
    if flat.datatype is BYTES:
        return long_json.array([string.decode() for string in flat.array])
    if flat.datatype is INT64:
        return integers(flat.array)
    if flat.datatype is FP16:
        flat = Tensor(flat.name, FP32, flat.array.astype(np.float32))
    return floats(flat.array, numeric(flat, non_finite))


def _map(entries: tuple[MapEntry, ...], spell: Spell, non_finite: NonFinite | None) -> dict[str, Any]:
    maps: dict[str, dict[str, Any]] = {}
    for field, tensor in entries:
        maps.setdefault(spell(field), {})[tensor.name] = _value(field, tensor, non_finite)
    return maps


def _value(field: str, tensor: Tensor, non_finite: NonFinite | None) -> Any:
    if field == "s_s":
        return long_json.text(tensor.array.item().decode())
    if field == "s_b":
        return from_bytes(tensor.array.item())
    if field == "s_i64":
        return str(tensor.array.item())
    return floats(tensor.array, numeric(tensor, non_finite))
