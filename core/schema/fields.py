"""Takes large `bytes` fields out of a message's encoding, and puts them into it, without protobuf's copies.

A message is a sequence of fields in any order. Each is a varint of number and wire type, then the value; `bytes` are a
length and the bytes (protobuf's "Encoding" document). protobuf copies each into the message, and again for each access.
"""

from typing import Final

Part = bytes | memoryview
LENGTH_DELIMITED: Final = 2
FIXED: Final = {1: 8, 5: 4}
"""The sizes of the wire types whose size is fixed."""
MOST_FIELDS: Final = 256
"""With more fields, protobuf is faster than this walk in Python."""


def split(body: bytes, number: int) -> tuple[bytes, list[memoryview]] | None:
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


def _skip(body: bytes, key: int, position: int) -> tuple[int, int]:
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


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Returns a number of at most 35 bits and the next position; a position beyond the body for any other varint."""
    number = shift = 0
    for byte in body[position : position + 5]:
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
