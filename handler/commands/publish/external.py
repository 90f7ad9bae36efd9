"""Finds the files beside an ONNX model that hold its weights (onnx.proto: TensorProto.external_data)."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from handler.backends.onnx_fields import MalformedFile, fields, members, read, text
from handler.backends.onnx_file import FUNCTION, GRAPH
from handler.commands.refused import Refused

EXTERNAL_DATA: Final = 13
"""Number of TensorProto's field. Its entries have a key (1) and a value (2)."""
CHILDREN: Final = {
    "model": {GRAPH: "graph", FUNCTION: "function"},
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
        found = read(path, lambda view: sorted(set(_below(view))))
    except MalformedFile as error:
        raise Refused(f"{path}: {error}") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    for location in found:
        if PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts:
            raise Refused(f"{path} keeps weights in {location!r}, outside its folder")
    return tuple(str(PurePosixPath(location)) for location in found)


def _below(model: memoryview) -> Iterator[str]:
    rest = [("model", model)]
    while rest:
        message, view = rest.pop()
        if message == "tensor":
            yield from _of_tensor(view)
            continue
        for number, member in fields(view):
            child = CHILDREN[message].get(number)
            if child is not None and isinstance(member, memoryview):
                rest.append((child, member))


def _of_tensor(view: memoryview) -> Iterator[str]:
    return (text(entry, 2) for entry in members(view, EXTERNAL_DATA) if text(entry, 1) == "location")
