"""Takes large `bytes` fields out of a message's encoding, and puts them into it, without protobuf's copies.

A message is a sequence of fields in any order. Each is a varint of number and wire type, then the value; `bytes` are a
length and the bytes (protobuf's "Encoding" document). protobuf copies each into the message, and again for each access.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from core.bounds import MOST_PARTS
from core.errors import TooMany

Part = bytes | memoryview
SLICE: Final = 65_536
"""Elements that are converted at a time: two or three milliseconds in which no other thread of Python runs."""
LENGTH_DELIMITED: Final = 2
FIXED: Final = {1: 8, 5: 4}
"""The sizes of the wire types whose size is fixed."""
GROUPS: Final = {3: 1, 4: -1}
"""The wire types that begin and end a group, whose fields lie between. Proto3 has none, but protobuf skips them."""
LONGEST_VARINT: Final = 10
"""Bytes: those of a negative number. protobuf takes as many for a length."""
FIRST_FIELDS: Final = 8
"""Encoders write fields in the order of their numbers, so that short texts come before tensors."""
MOST_WALKED: Final = 32_768
"""The most fields of a long message that are counted: thirty milliseconds of Python."""
LONGEST_SHAPE: Final = 1024
"""Bytes; more dimensions than any tensor has."""
MOST_FIELDS: Final = 256
"""With more fields, protobuf is faster than this walk in Python."""


def array(values: Iterable[Any], size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns the `size` numbers of a repeated field. Other threads run between the slices."""
    if size <= SLICE:
        return np.fromiter(values, dtype, size)
    found, each = np.empty(size, dtype), iter(values)
    for start in range(0, size, SLICE):
        end = min(size, start + SLICE)
        found[start:end] = np.fromiter(each, dtype, end - start)
    return found


def split(body: Part, number: int) -> tuple[bytes, list[memoryview]] | None:
    """Returns the message without the repeated field `number`, and that field's values; None: protobuf must do it."""
    view, end = memoryview(body), len(body)
    rest: list[Part] = []
    values: list[memoryview] = []
    position = kept = 0
    for _ in range(MOST_FIELDS):
        if position >= end:
            return b"".join((*rest, view[kept:])), values
        start = position
        key, position = _varint(body, position)
        found, position = _skip(body, key, position)
        if not start < position <= end:
            return None
        if key == number << 3 | LENGTH_DELIMITED:
            rest.append(view[kept:start])
            values.append(view[position - found : position])
            kept = position
    return None


def first_texts(body: Part, numbers: Sequence[int]) -> list[str]:
    """Returns the texts of those numbers among a message's first fields, "" for one that is not among them."""
    found = dict.fromkeys(numbers, "")
    try:
        for key, start, end in islice(_walk(body, 0, len(body), count(1)), FIRST_FIELDS):
            if key & 7 == LENGTH_DELIMITED and key >> 3 in found:
                found[key >> 3] = str(body[start:end], "utf-8")
                if all(found.values()):
                    break
    except ValueError:
        pass  # what follows is not a message
    return list(found.values())


def texts(body: Part, numbers: Sequence[int]) -> tuple[str, ...] | None:
    """Returns the texts of a message's fields of those numbers, "" for one that it lacks; None: protobuf must do it."""
    found: dict[int, tuple[int, int]] = {}
    try:
        for key, start, end in _walk(body, 0, len(body), count(1)):
            if key & 7 == LENGTH_DELIMITED:
                found[key >> 3] = start, end
        return tuple(str(body[slice(*found.get(number, (0, 0)))], "utf-8") for number in numbers)
    except ValueError:  # UnicodeDecodeError among them
        return None
    except TooMany:
        return None


def check(body: Part, nested: Mapping[int, int], kind: Any = None) -> None:
    """Raises TooMany for a message with more parts than a request may have, itself or in its fields `nested`.

    `nested`: the numbers of the fields that are messages, each with that of its packed shape, 0 if it has none.
    `kind`: the message's descriptor, which has the names of the fields.
    protobuf makes eight bytes of each byte there, and eighty of an empty message. Raises DecodeError for bytes that
    cannot be counted: protobuf must not read what nobody has counted.
    """
    steps = count(1)
    try:
        for key, start, end in _walk(body, 0, len(body), steps, kind):
            if key >> 3 in nested and key & 7 == LENGTH_DELIMITED:
                shape = nested[key >> 3] << 3 | LENGTH_DELIMITED
                part = None if kind is None else kind.fields_by_number[key >> 3].message_type
                for inner, begun, ended in _walk(body, start, end, steps, part):
                    if inner == shape and ended - begun > LONGEST_SHAPE:
                        raise TooMany(f"a shape has {ended - begun} bytes; at most {LONGEST_SHAPE} are accepted")
    except ValueError:
        raise DecodeError("not a message") from None


def _walk(
    body: Part, position: int, end: int, steps: Iterator[int], kind: Any = None
) -> Iterator[tuple[int, int, int]]:
    """Yields the key of each field of a message and where its value lies. Fields inside groups are counted only.

    Raises TooMany after too many of one key or of all, ValueError for bytes that are not a message.
    """
    counts: Counter[int] = Counter()
    depth = 0
    while position < end:
        start = position
        key, position = _varint(body, position)
        step = GROUPS.get(key & 7, 0)
        depth += step
        size, position = (0, position) if step else _skip(body, key, position)
        if depth < 0 or not start < position <= end:
            raise ValueError(key)
        counts[key] += 1
        if counts[key] > MOST_PARTS:
            raise TooMany(f"the message has more than {MOST_PARTS} values of {_called(key >> 3, kind)}")
        if next(steps) > MOST_WALKED:
            raise TooMany(f"the message has more than {MOST_WALKED} fields")
        if depth == 0:
            yield key, position - size, position
    if depth:
        raise ValueError(depth)


def _called(number: int, kind: Any) -> str:
    """Returns a field's name, or its number if it is unknown. `kind`: its message's descriptor."""
    field = None if kind is None else kind.fields_by_number.get(number)
    return f"field {number}" if field is None else f"'{field.name}'"


def _skip(body: Part, key: int, position: int) -> tuple[int, int]:
    """Returns the size of a field's value and the next field's position; 0 for a field that protobuf must judge."""
    kind = key & 7
    if kind == LENGTH_DELIMITED:
        size, position = _varint(body, position)
        return size, position + size
    if kind == 0:
        _, position = _varint(body, position)
        return 0, position
    size = FIXED.get(kind, 0)
    return size, position + size if size else 0


def _varint(body: Part, position: int) -> tuple[int, int]:
    """Returns a number of at most 70 bits and the next position; a position beyond the body for any other varint."""
    number = shift = 0
    for byte in body[position : position + LONGEST_VARINT]:
        position += 1
        if byte < 128:  # noqa: PLR2004 - the last byte of a varint has no highest bit
            return number | byte << shift, position
        number |= (byte & 127) << shift
        shift += 7
    return 0, len(body) + 1


def head(number: int, size: int) -> bytes:
    """Returns the key and length that precede `size` bytes of the field `number`, which is below 16."""
    varint = bytearray([number << 3 | LENGTH_DELIMITED])
    while size > 127:  # noqa: PLR2004 - seven bits in each byte
        varint.append(size & 127 | 128)
        size >>= 7
    varint.append(size)
    return bytes(varint)
