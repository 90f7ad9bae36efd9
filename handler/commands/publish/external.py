"""Finds the files beside an ONNX model that hold its weights (onnx.proto: TensorProto.external_data)."""

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from handler.backends.onnx_file import MalformedFile, fields
from handler.commands.refused import Refused

GRAPH, FUNCTIONS = 7, 25
"""Numbers of ModelProto's fields."""
EXTERNAL_DATA: Final = 13
"""Number of TensorProto's field. Its entries have a key (1) and a value (2)."""
CHILDREN: Final = {
    "model": {GRAPH: "graph", FUNCTIONS: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Message -> its fields that may lead to a tensor."""


def locations(path: Path) -> tuple[str, ...]:
    """Returns sorted paths relative to the model's folder. Raises Refused for a broken file or a path outside."""
    try:
        found = sorted(set(_below(_mapped(path), "model")))
    except (MalformedFile, IndexError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, MalformedFile) else "the file is not an ONNX model, or it is cut short"
        raise Refused(f"{path}: {reason}") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    for location in found:
        if PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts:
            raise Refused(f"{path} keeps weights in {location!r}, outside its folder")
    return tuple(str(PurePosixPath(location)) for location in found)


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise MalformedFile("the file is empty")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _below(view: memoryview, message: str) -> Iterator[str]:
    if message == "tensor":
        yield from _of_tensor(view)
        return
    for number, member in fields(view):
        child = CHILDREN[message].get(number)
        if child is not None and isinstance(member, memoryview):
            yield from _below(member, child)


def _of_tensor(view: memoryview) -> Iterator[str]:
    for number, entry in fields(view):
        if number == EXTERNAL_DATA and isinstance(entry, memoryview):
            texts = {key: bytes(member).decode() for key, member in fields(entry) if isinstance(member, memoryview)}
            if texts.get(1) == "location":
                yield texts.get(2, "")
