"""Joins a graph that ONNX Runtime optimised with its publisher's own description (onnx.proto: ModelProto, GraphProto).

ONNX Runtime writes the operator sets that it knows itself, which an older one may refuse, and the shapes that it has
inferred. Neither is a change that its publisher asked for.
"""

from collections.abc import Iterator
from typing import Final

from handler.backends.onnx_file import GRAPH, INPUT, NODE, NODE_ATTRIBUTE, OUTPUT, fields

VERSION, OPERATOR_SETS, TRAINING, FUNCTIONS = 1, 8, 20, 25
NODE_DOMAIN: Final = 7
SUBGRAPHS: Final = (6, 11)
"""Numbers of AttributeProto's fields of one graph, and of several."""
LEAST_VERSION: Final = 4
"""Before it, weights are listed among the inputs, and the optimised graph has others."""


class Unjoinable(Exception):
    pass


def joined(source: memoryview, optimised: memoryview) -> bytes:
    """Returns the model with the optimised graph, and everything else of the source: versions, metadata, its inputs.

    Raises Unjoinable, MalformedFile, IndexError.
    """
    head = [each for each in fields(source) if each[0] not in (GRAPH, TRAINING, FUNCTIONS)]
    version = next((value for number, value in head if number == VERSION), 0)
    if not isinstance(version, int) or version < LEAST_VERSION:
        raise Unjoinable(f"its file has the ONNX IR version {version}, and {LEAST_VERSION} is the least")
    graph, functions = _graph(optimised), [each for each in fields(optimised) if each[0] == FUNCTIONS]
    known = {_text(value, 1) for number, value in head if number == OPERATOR_SETS and isinstance(value, memoryview)}
    if foreign := set(_domains(graph)) - {_plain(each) for each in known}:
        raise Unjoinable(f"ONNX Runtime puts operations of its own into it: those of {', '.join(sorted(foreign))}")
    described = [each for each in fields(_graph(source)) if each[0] in (INPUT, OUTPUT)]
    rest = [each for each in fields(graph) if each[0] not in (INPUT, OUTPUT)]
    return _message([*head, (GRAPH, memoryview(_message([*rest, *described]))), *functions])


def _graph(model: memoryview) -> memoryview:
    return next(value for number, value in fields(model) if number == GRAPH and isinstance(value, memoryview))


def _domains(graph: memoryview) -> Iterator[str]:
    """Yields the operator set of each node, in subgraphs, too."""
    for number, node in fields(graph):
        if number == NODE and isinstance(node, memoryview):
            yield _plain(_text(node, NODE_DOMAIN))
            for key, attribute in fields(node):
                if key == NODE_ATTRIBUTE and isinstance(attribute, memoryview):
                    for kind, subgraph in fields(attribute):
                        if kind in SUBGRAPHS and isinstance(subgraph, memoryview):
                            yield from _domains(subgraph)


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _text(message: memoryview, field: int) -> str:
    found = (value for number, value in fields(message) if number == field and isinstance(value, memoryview))
    return next((bytes(value).decode() for value in found), "")


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
