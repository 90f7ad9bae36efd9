"""Reads the inputs and outputs of a graph from the ONNX file itself.

ONNX Runtime reports a scalar and a tensor of unknown rank alike (shape []), and symbolic sizes as text; the file
distinguishes them. Only the needed protobuf fields are walked (onnx.proto: ModelProto, GraphProto, ValueInfoProto,
TypeProto). Weights are skipped, so a mapped file of any size costs a few pages.
"""

import mmap
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeVar

from core.records import NamedTuple

IR_VERSION, GRAPH, OPSET_IMPORT, FUNCTION = 1, 7, 8, 25
REPLACEABLE: Final = 4
"""The first IR version in which a request can replace an initializer. Before, each of them is listed as an input."""
INITIALIZER, INPUT, OUTPUT, SPARSE_INITIALIZER = 5, 11, 12, 15
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
NODE: Final = 1
NODE_OUTPUT, NODE_OPERATOR, NODE_ATTRIBUTE, NODE_DOMAIN = 2, 4, 5, 7
ATTRIBUTE_GRAPH, ATTRIBUTE_INTS, ATTRIBUTE_STRINGS, ATTRIBUTE_GRAPHS = 6, 8, 9, 11
FUNCTION_NODE: Final = 7
T = TypeVar("T")
TYPE_NAMES: Final = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse tensor", 9: "value that is optional"}
"""TypeProto's members by field number."""


class MalformedFile(Exception):
    pass


class Value(NamedTuple):
    """`kind`: see TYPE_NAMES; `element`: onnx.TensorProto.DataType; `shape`: -1 is any size, None any rank."""

    name: str
    kind: str
    element: int
    shape: tuple[int, ...] | None
    optional: bool = False
    """True if an initializer replaces a missing input."""
    classes: tuple[int | str, ...] = ()
    """The keys of each map in a sequence of maps that the operator ZipMap makes, as skl2onnx exports classifiers."""


def signature(path: Path) -> tuple[list[Value], list[Value]]:
    """Returns the graph's inputs, and its outputs. Raises MalformedFile, OSError."""
    inputs, outputs = _read(path, _graph)
    if not outputs:
        raise MalformedFile("the graph has no outputs")  # the runtime would load it, and refuse each request
    return inputs, outputs


def operators(path: Path, domains: Collection[str]) -> tuple[str, ...]:
    """Returns the sorted names of the operators of some domains that a model has. Raises MalformedFile, OSError.

    A model that does not import any of the domains has none of their operators, and its nodes are not read.
    """
    return _read(path, lambda view: _operators(view, domains))


def _read(path: Path, read: Callable[[memoryview], T]) -> T:
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise MalformedFile("the file is empty")
        # It is unmapped with its last view: an explicit close fails while an error's traceback still holds a view.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return read(memoryview(mapped))
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedFile("the file is not an ONNX model, or cut short") from error


def _operators(view: memoryview, domains: Collection[str]) -> tuple[str, ...]:
    """The runtime refuses a node whose domain the model does not import."""
    if not any(_text(each, 1) in domains for each in _members(view, OPSET_IMPORT)):
        return ()
    nodes = [node for graph in _members(view, GRAPH) for node in _members(graph, NODE)]
    nodes += [node for function in _members(view, FUNCTION) for node in _members(function, FUNCTION_NODE)]
    found = set()
    while nodes:
        node = nodes.pop()
        if _text(node, NODE_DOMAIN) in domains:
            found.add(_text(node, NODE_OPERATOR))
        for attribute in _members(node, NODE_ATTRIBUTE):
            for graph in (*_members(attribute, ATTRIBUTE_GRAPH), *_members(attribute, ATTRIBUTE_GRAPHS)):
                nodes += _members(graph, NODE)
    return tuple(sorted(found))


def _graph(view: memoryview) -> tuple[list[Value], list[Value]]:
    version, graph = 0, None
    for number, member in fields(view):
        if number == GRAPH and isinstance(member, memoryview) and graph is None:
            graph = member
        elif number == IR_VERSION and isinstance(member, int):
            version = member
    if graph is None:
        raise MalformedFile("the file holds no graph")
    found: dict[int, list[memoryview]] = {INITIALIZER: [], INPUT: [], OUTPUT: [], SPARSE_INITIALIZER: []}
    for number, member in fields(graph):
        if number in found and isinstance(member, memoryview):
            found[number].append(member)
    sparse = (values for each in found[SPARSE_INITIALIZER] for values in _members(each, 1))
    initializers = {_text(values, 8) for values in (*found[INITIALIZER], *sparse)}
    inputs = [_value(each) for each in found[INPUT]]
    outputs = [_value(each) for each in found[OUTPUT]]
    if version < REPLACEABLE:
        inputs = [value for value in inputs if value.name not in initializers]
    return [value._replace(optional=value.name in initializers) for value in inputs], _with_classes(graph, outputs)


def _with_classes(graph: memoryview, outputs: list[Value]) -> list[Value]:
    if all(output.kind != "sequence" for output in outputs):
        return outputs
    classes = dict(_zipmaps(graph))
    return [output._replace(classes=classes.get(output.name, ())) for output in outputs]


def _zipmaps(graph: memoryview) -> Iterator[tuple[str, tuple[int | str, ...]]]:
    """Yields the output of each node ZipMap (ai.onnx.ml) and the keys of its maps."""
    for number, node in fields(graph):
        if number == NODE and isinstance(node, memoryview) and _text(node, NODE_OPERATOR) == "ZipMap":
            attributes = [m for n, m in fields(node) if n == NODE_ATTRIBUTE and isinstance(m, memoryview)]
            yield _text(node, NODE_OUTPUT), tuple(key for attribute in attributes for key in _keys(attribute))


def _keys(attribute: memoryview) -> Iterator[int | str]:
    for number, member in fields(attribute):
        if number == ATTRIBUTE_STRINGS and isinstance(member, memoryview):
            yield bytes(member).decode()
        elif number == ATTRIBUTE_INTS and isinstance(member, int):
            yield _signed(member)
        elif number == ATTRIBUTE_INTS and isinstance(member, memoryview):  # packed
            position = 0
            while position < len(member):
                value, position = _varint(member, position)
                yield _signed(value)


def _signed(varint: int) -> int:
    return varint - 2**64 if varint >= 2**63 else varint


def _value(view: memoryview) -> Value:
    described = _member(view, 2) or view[:0]
    for number, member in fields(described):
        if number in TYPE_NAMES and isinstance(member, memoryview):
            element = next((v for n, v in fields(member) if n == 1 and isinstance(v, int)), 0)
            return Value(_text(view, 1), TYPE_NAMES[number], element, _shape(_member(member, 2)))
    return Value(_text(view, 1), "value of no type", 0, None)


def _shape(view: memoryview | None) -> tuple[int, ...] | None:
    if view is None:
        return None
    sizes = []
    for number, dimension in fields(view):
        if number == 1 and isinstance(dimension, memoryview):
            size = next((v for n, v in fields(dimension) if n == 1 and isinstance(v, int)), -1)
            sizes.append(size if 0 <= size < 2**63 else -1)
    return tuple(sizes)


def _text(view: memoryview, field: int) -> str:
    member = _member(view, field)
    return "" if member is None else bytes(member).decode()


def _members(view: memoryview, field: int) -> Iterator[memoryview]:
    """Yields the messages or strings of that number."""
    return (member for number, member in fields(view) if number == field and isinstance(member, memoryview))


def _member(view: memoryview, field: int) -> memoryview | None:
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
        key, position = _varint(view, position)
        wire = key & 7
        if wire == VARINT:
            value, position = _varint(view, position)
            yield key >> 3, value
            continue
        if wire == LENGTH:
            size, position = _varint(view, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise MalformedFile("the file is not an ONNX model")
        if size > end - position:
            raise MalformedFile("the file is cut short")
        yield key >> 3, view[position : position + size]
        position += size


def _varint(view: memoryview, position: int) -> tuple[int, int]:
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
