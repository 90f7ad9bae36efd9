"""GRPS's requests in JSON: proto3's JSON mapping, and nested lists for ndarray.

Long arrays of numbers are read straight into numpy. A body that this reading refuses is read again exactly, so a
message names the first mistake in the same words, and with the same digits, for a body of any size.
Source: GRPS's interface document; protobuf's ProtoJSON format.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from core.bounds import MOST_PARTS, check_number, check_parts
from core.dialects.grps.content import (
    FLAT_FIELDS,
    LARGEST_SIZE,
    MAP_FIELDS,
    TYPES,
    Binary,
    Content,
    GrpsQuestion,
    Map,
    MapEntry,
    Numbers,
    Tensors,
    Text,
    element,
    other_field,
)
from core.dialects.grps.numbers import flat, nested, scalar, to_bytes
from core.dtype import BY_GRPS, BYTES, FP64, DataType
from core.encoding import jsonio, proto_json
from core.errors import InvalidInput, TooMany, shown
from core.tensor import Tensor, check_count, check_rank, checked_shape, named
from core.wire import Part

BARE: Final = (b"NaN", b"Inf")
"""The text of numbers that JSON does not have; it may also be part of a string."""
NO_FIELD: Final = "No legal field in json."
OCTETS_ONLY: Final = "bin_data should use application/octet-stream format."
ALIAS: Final = "flat_double"
"""The spelling of flat_float64 in the interface document's examples."""
LONGEST_NUMBER: Final = 10
"""The most digits of a dimension, and of an enumeration's number."""


@cache
def camel(name: str) -> str:
    """Returns proto3's spelling of a field's name in JSON.

    >>> camel("flat_float32"), camel("s_i64")
    ('flatFloat32', 'sI64')
    """
    first, *rest = name.split("_")
    return first + "".join(word[0].upper() + word[1:] for word in rest)


def document(body: Part, loads: Callable[[Part], Any] = jsonio.loads_exact) -> dict[str, Any]:
    """Returns the members of a message. Raises InvalidInput."""
    value = loads(body)
    content = bytes(body)
    if any(token in content for token in BARE):
        _refuse_bare(value)
    if not isinstance(value, dict):
        raise InvalidInput(f"the body is {shown(value)}; expected an object")
    return value


def _refuse_bare(value: Any) -> None:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
        elif isinstance(found, float) and not math.isfinite(found):
            raise InvalidInput(
                'the body is not JSON: send NaN and infinities as the strings "NaN", "Infinity", "-Infinity"'
            )


def member(owner: Mapping[str, Any], name: str) -> Any:
    """Returns a member in either spelling, None if it is absent or null. Raises InvalidInput if both are there."""
    value, other = owner.get(name), owner.get(camel(name))
    if value is None or camel(name) == name:
        return other
    if other is not None:
        raise _doubled(name, camel(name))
    return value


def _refuse_other_field(members: Mapping[str, Any], datatype: DataType, called: str) -> None:
    """Raises InvalidInput if another datatype's field has elements, under the name that the client wrote."""
    for field in (*FLAT_FIELDS, ALIAS):
        for spelling in (field, camel(field)):
            if not _is_empty(members.get(spelling)):
                raise other_field(called, datatype, spelling)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | np.ndarray) and not len(value))


def _doubled(one: str, other: str) -> InvalidInput:
    return InvalidInput(f"'{one}' and '{other}' are the same member; expected one of them")


def text(value: Any, name: str) -> str:
    """Returns a member that is a string. Raises InvalidInput for any other type."""
    if not isinstance(value, str):
        raise InvalidInput(f"'{name}' is {shown(value)}; expected a string")
    return value


def read(body: Part, *, binary: bool = False) -> GrpsQuestion:
    """Reads a request. Raises InvalidInput.

    `binary`: bin_data is permitted in the JSON, as base64. HTTP has a content type of its own for it.
    """
    try:
        return _question(document(body, jsonio.loads_shaped), binary=binary)
    except TooMany:
        raise
    except InvalidInput:
        return _question(document(body), binary=binary)


def _question(members: Mapping[str, Any], *, binary: bool) -> GrpsQuestion:
    model = member(members, "model")
    found = {kind: value for kind in _CONTENTS if (value := member(members, kind)) is not None}
    if not found:
        raise InvalidInput(NO_FIELD)
    if len(found) > 1:
        one, other, *_ = found
        raise InvalidInput(f"the message has both '{one}' and '{other}'; expected one of them")
    ((kind, value),) = found.items()
    if kind == "bin_data" and not binary:
        raise InvalidInput(OCTETS_ONLY)
    return GrpsQuestion("" if model is None else text(model, "model"), _CONTENTS[kind](value))


def _gtensors(value: Any) -> Tensors:
    tensors = _object(value, "gtensors").get("tensors")
    if tensors is None:
        return Tensors(())
    if not isinstance(tensors, list):
        raise InvalidInput(f"'tensors' is {shown(tensors)}; expected an array of tensors")
    check_parts(tensors, "tensors")
    return Tensors(tuple(_tensor(tensor, f"tensors[{index}]") for index, tensor in enumerate(tensors)))


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"'{name}' is {shown(value)}; expected an object")
    return value


def _tensor(value: Any, place: str) -> Tensor:
    """Reads one tensor. `place`: its name in messages if it has none. Raises InvalidInput."""
    members = _object(value, place)
    name = "" if members.get("name") is None else text(members["name"], "name")
    called = name or place
    datatype = _datatype(members.get("dtype"), called)
    shape = _shape(members.get("shape"), called)
    data = member(members, datatype.grps_field)
    if datatype is FP64 and (alias := member(members, ALIAS)) is not None:
        if data is not None:
            raise _doubled(ALIAS, datatype.grps_field)
        data = alias
    if _is_empty(data) and 0 not in shape:  # beside the right field, all others are ignored
        _refuse_other_field(members, datatype, called)
    if isinstance(data, list) and len(data) > MOST_PARTS:
        check_count(len(data), shape, called)  # before each is read
    return flat(called, datatype, shape, [] if data is None else data)._replace(name=name)


def _datatype(value: Any, name: str) -> DataType:
    number = (
        value if isinstance(value, str) and len(value) != 1 else _whole(value)
    )  # a number of a datatype has one digit
    if type(number) is int and 0 <= number < len(TYPES):
        value = TYPES[number]
    datatype = BY_GRPS.get(value) if isinstance(value, str) else None
    if datatype is None:
        raise InvalidInput(f"{named(name)} has {shown(value)} as dtype; expected one of {', '.join(TYPES[1:])}")
    return datatype


def _shape(value: Any, name: str) -> tuple[int, ...]:
    if value is None:
        return ()
    if isinstance(value, list | np.ndarray):
        check_rank(len(value) if isinstance(value, list) else value.size, name)
    sizes = value.tolist() if isinstance(value, np.ndarray) else value
    sizes = [_whole(size) for size in sizes] if isinstance(sizes, list) else sizes
    return checked_shape(sizes, name, LARGEST_SIZE)


def _whole(value: Any) -> Any:
    """Returns a dimension, or an enumeration's number, as an int: JSON may have a string of digits, or 2.0."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _map(value: Any) -> Map:
    maps = _object(value, "gmap")
    given = {field: _object(found, field) for field in MAP_FIELDS if (found := member(maps, field)) is not None}
    check_number(sum(map(len, given.values())), "values")
    return Map(
        tuple(
            MapEntry(field, _value(field, key, found))
            for field, values in given.items()
            for key, found in values.items()
        )
    )


def _value(field: str, key: str, value: Any) -> Tensor:
    datatype = MAP_FIELDS[field]
    if datatype is not BYTES:
        return scalar(key, datatype, value)
    if not isinstance(value, str):
        raise InvalidInput(f"{named(key)} has {shown(value)} where {field} needs a string")
    return Tensor(key, BYTES, element(to_bytes(key, value) if field == "s_b" else value.encode()))


def _bin_data(value: Any) -> Binary:
    given = text(value, "bin_data")
    try:
        return Binary(proto_json.to_bytes(given))
    except ValueError:
        raise InvalidInput(f"'bin_data' is {shown(given)}; expected base64") from None


_CONTENTS: Final[dict[str, Callable[[Any], Content]]] = {
    "str_data": lambda value: Text(text(value, "str_data")),
    "gtensors": _gtensors,
    "gmap": _map,
    "ndarray": lambda value: Numbers(nested("ndarray", value).array),
    "bin_data": _bin_data,
}
