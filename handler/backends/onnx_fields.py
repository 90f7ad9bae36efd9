"""Walks the protobuf fields of an ONNX file, which is mapped: what is skipped, such as weights, costs a few pages."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
T = TypeVar("T")


class MalformedFile(Exception):
    pass


def read(path: Path, walk: Callable[[memoryview], T]) -> T:
    """Calls `walk` with the file's bytes. Raises MalformedFile, OSError."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise MalformedFile("the file is empty")
        # It is unmapped with its last view: an explicit close fails while an error's traceback still holds a view.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return walk(memoryview(mapped))
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedFile("the file is not an ONNX model, or it is cut short") from error


def text(view: memoryview, field: int) -> str:
    member = member_of(view, field)
    return "" if member is None else bytes(member).decode()


def members(view: memoryview, field: int) -> Iterator[memoryview]:
    """Yields the messages or strings of that number."""
    return (member for number, member in fields(view) if number == field and isinstance(member, memoryview))


def member_of(view: memoryview, field: int) -> memoryview | None:
    """Returns the last message or string of that number, which counts in protobuf; None without one."""
    found = None
    for number, member in fields(view):
        if number == field and isinstance(member, memoryview):
            found = member
    return found


def fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields (field number, value) for each field of a message: integers for varints, the bytes for all others.

    Raises MalformedFile, IndexError.
    """
    position, end = 0, len(view)
    while position < end:
        key, position = varint(view, position)
        wire = key & 7
        if wire == VARINT:
            value, position = varint(view, position)
            yield key >> 3, value
            continue
        if wire == LENGTH:
            size, position = varint(view, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise MalformedFile("the file is not an ONNX model")
        if size > end - position:
            raise MalformedFile("the file is cut short")
        yield key >> 3, view[position : position + size]
        position += size


def varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position
        shift += 7
        if shift > 63:  # noqa: PLR2004 - 64 bits are the most
            raise MalformedFile("the file is not an ONNX model")
