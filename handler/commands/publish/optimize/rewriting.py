"""Joins a graph that ONNX Runtime optimised with its publisher's own description (onnx.proto: ModelProto, GraphProto).

ONNX Runtime writes the operator sets that it knows itself, which an older one may refuse, and the shapes that it has
inferred. Neither is a change that its publisher asked for.
"""

from collections.abc import Iterator
from typing import Final

from handler.backends.onnx_fields import fields, members, text
from handler.backends.onnx_file import (
    FUNCTION,
    GRAPH,
    INPUT,
    IR_VERSION,
    NODE,
    NODE_DOMAIN,
    NODE_OPERATOR,
    OPSET_IMPORT,
    OUTPUT,
    REPLACEABLE,
    with_nested,
)

TRAINING: Final = 20
"""Number of ModelProto's field, of which ONNX Runtime knows nothing."""


class Unjoinable(Exception):
    pass


def joined(source: memoryview, optimised: memoryview) -> bytes:
    """Returns the model with the optimised graph, and everything else of the source: versions, metadata, its inputs.

    Raises Unjoinable, MalformedFile, IndexError.
    """
    head = [each for each in fields(source) if each[0] not in (GRAPH, TRAINING, FUNCTION)]
    version = next((value for number, value in head if number == IR_VERSION), 0)
    if not isinstance(version, int) or version < REPLACEABLE:
        raise Unjoinable(f"its file has the ONNX IR version {version}, and {REPLACEABLE} is the least")
    graph, functions = _graph(optimised), [each for each in fields(optimised) if each[0] == FUNCTION]
    known = {text(each, 1) for each in members(source, OPSET_IMPORT)}
    if foreign := {_plain(text(node, NODE_DOMAIN)) for node in _nodes(graph)} - {_plain(each) for each in known}:
        raise Unjoinable(f"ONNX Runtime puts operations of its own into it: those of {', '.join(sorted(foreign))}")
    if _casts(graph) > _casts(_graph(source)):
        raise Unjoinable(
            "ONNX Runtime computes some of it in another type here, because it lacks a kernel for this processor"
        )
    described = [each for each in fields(_graph(source)) if each[0] in (INPUT, OUTPUT)]
    rest = [each for each in fields(graph) if each[0] not in (INPUT, OUTPUT)]
    return _message([*head, (GRAPH, memoryview(_message([*rest, *described]))), *functions])


def _graph(model: memoryview) -> memoryview:
    return next(members(model, GRAPH))


def _casts(graph: memoryview) -> int:
    return sum(text(node, NODE_OPERATOR) == "Cast" for node in _nodes(graph))


def _nodes(graph: memoryview) -> Iterator[memoryview]:
    return with_nested(members(graph, NODE))


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _message(members: list[tuple[int, int | memoryview]]) -> bytes:
    """Writes a message of varints and of parts with a length, which are all that models and graphs have."""
    parts: list[bytes | memoryview] = []
    for number, value in members:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        else:
            parts += [_varint(number << 3 | 2), _varint(len(value)), value]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
