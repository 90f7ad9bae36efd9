"""Reads the inputs and outputs of a graph from the ONNX file itself.

ONNX Runtime reports a scalar and a tensor of unknown rank alike (shape []), and symbolic sizes as text; the file
distinguishes them. Only the needed protobuf fields are walked (onnx.proto: ModelProto, GraphProto, ValueInfoProto,
TypeProto).
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from core.records import NamedTuple
from handler.backends.onnx_fields import MalformedFile, fields, member_of, members, read, text, varint

IR_VERSION, GRAPH, OPSET_IMPORT, FUNCTION = 1, 7, 8, 25
REPLACEABLE: Final = 4
"""The first IR version in which a request can replace an initializer. Before, each of them is listed as an input."""
INITIALIZER, INPUT, OUTPUT, SPARSE_INITIALIZER = 5, 11, 12, 15
NODE: Final = 1
NODE_OUTPUT, NODE_OPERATOR, NODE_ATTRIBUTE, NODE_DOMAIN = 2, 4, 5, 7
ATTRIBUTE_GRAPH, ATTRIBUTE_INTS, ATTRIBUTE_STRINGS, ATTRIBUTE_GRAPHS = 6, 8, 9, 11
FUNCTION_NODE: Final = 7
TYPE_NAMES: Final = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse tensor", 9: "value that is optional"}
"""TypeProto's members by field number."""


UNCARRIED: Final = {
    14: "COMPLEX64", 15: "COMPLEX128", 17: "FLOAT8E4M3FN", 18: "FLOAT8E4M3FNUZ", 19: "FLOAT8E5M2", 20: "FLOAT8E5M2FNUZ",
    21: "UINT4", 22: "INT4", 23: "FLOAT4E2M1", 24: "FLOAT8E8M0", 25: "UINT2", 26: "INT2",
}  # fmt: skip
"""The members of onnx.TensorProto.DataType that the protocols do not have."""


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
    inputs, outputs = read(path, _graph)
    if not outputs:
        raise MalformedFile("the graph has no outputs")  # the runtime would load it, and refuse each request
    return inputs, outputs


def operators(path: Path, domains: Collection[str]) -> tuple[str, ...]:
    """Returns the sorted names of the operators of some domains that a model has. Raises MalformedFile, OSError.

    A model that does not import any of the domains has none of their operators, and its nodes are not read.
    """
    return read(path, lambda view: _operators(view, domains))


def _operators(view: memoryview, domains: Collection[str]) -> tuple[str, ...]:
    """The runtime refuses a node whose domain the model does not import."""
    if not any(text(each, 1) in domains for each in members(view, OPSET_IMPORT)):
        return ()
    first = [node for graph in members(view, GRAPH) for node in members(graph, NODE)]
    first += [node for function in members(view, FUNCTION) for node in members(function, FUNCTION_NODE)]
    found = {text(node, NODE_OPERATOR) for node in with_nested(first) if text(node, NODE_DOMAIN) in domains}
    return tuple(sorted(found))


def with_nested(nodes: Iterable[memoryview]) -> Iterator[memoryview]:
    """Yields each node, and those of its subgraphs."""
    rest = list(nodes)
    while rest:
        node = rest.pop()
        yield node
        for attribute in members(node, NODE_ATTRIBUTE):
            for graph in (*members(attribute, ATTRIBUTE_GRAPH), *members(attribute, ATTRIBUTE_GRAPHS)):
                rest += members(graph, NODE)


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
    sparse = (values for each in found[SPARSE_INITIALIZER] for values in members(each, 1))
    initializers = {text(values, 8) for values in (*found[INITIALIZER], *sparse)}
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
        if number == NODE and isinstance(node, memoryview) and text(node, NODE_OPERATOR) == "ZipMap":
            attributes = [m for n, m in fields(node) if n == NODE_ATTRIBUTE and isinstance(m, memoryview)]
            yield text(node, NODE_OUTPUT), tuple(key for attribute in attributes for key in _keys(attribute))


def _keys(attribute: memoryview) -> Iterator[int | str]:
    for number, member in fields(attribute):
        if number == ATTRIBUTE_STRINGS and isinstance(member, memoryview):
            yield bytes(member).decode()
        elif number == ATTRIBUTE_INTS and isinstance(member, int):
            yield _signed(member)
        elif number == ATTRIBUTE_INTS and isinstance(member, memoryview):  # packed
            position = 0
            while position < len(member):
                value, position = varint(member, position)
                yield _signed(value)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _value(view: memoryview) -> Value:
    described = member_of(view, 2) or view[:0]
    for number, member in fields(described):
        if number in TYPE_NAMES and isinstance(member, memoryview):
            element = next((v for n, v in fields(member) if n == 1 and isinstance(v, int)), 0)
            return Value(text(view, 1), TYPE_NAMES[number], element, _shape(member_of(member, 2)))
    return Value(text(view, 1), "value of no type", 0, None)


def _shape(view: memoryview | None) -> tuple[int, ...] | None:
    if view is None:
        return None
    sizes = []
    for number, dimension in fields(view):
        if number == 1 and isinstance(dimension, memoryview):
            size = next((v for n, v in fields(dimension) if n == 1 and isinstance(v, int)), -1)
            sizes.append(size if 0 <= size < 2**63 else -1)
    return tuple(sizes)
