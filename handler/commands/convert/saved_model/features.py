"""The features that a classify or regress signature parses from its examples: ParseExample's dense outputs."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from core.records import NamedTuple
from handler.commands.convert.saved_model.graph import Nodes, node_of, tensor
from handler.commands.convert.saved_model.opened import SavedSignature
from handler.commands.convert.saved_model.runtime import tf
from handler.commands.refused import Refused

PARSERS: Final = ("ParseExample", "ParseExampleV2")
PREDICTS: Final = "it takes serialized examples, and its outputs are not those of a classify or regress signature"


class Feature(NamedTuple):
    """`shape`: of one example, -1 for a size that varies. `default`: a flat list, None for a required feature."""

    name: str
    tensor: str
    dtype: int
    shape: tuple[int, ...]
    default: list[Any] | None


class Parser(NamedTuple):
    node: str
    dense: tuple[Feature, ...]
    others: tuple[str, ...]
    """The names of sparse and ragged features."""


def parsers(nodes: Nodes, signature: SavedSignature) -> list[Parser]:
    """Returns every node that parses the signature's examples."""
    examples = signature.examples
    if examples is None:
        return []
    found = [node for node in nodes.values() if node.op in PARSERS]
    return [_parser(nodes, node) for node in found if nodes.root(node.input[0]) == tensor(examples.tensor)]


def _parser(nodes: Nodes, node: Any) -> Parser:
    read = _v1 if node.op == "ParseExample" else _v2
    keys, defaults, others = read(nodes, node)
    kinds = node.attr["Tdense"].list.type
    shapes = node.attr["dense_shapes"].list.shape
    offset = 3 * len(node.attr["sparse_types"].list.type)  # indices, values and shapes come first
    dense = [
        Feature(
            key, f"{node.name}:{offset + index}", kinds[index], _shape(shapes[index]), _default(nodes, defaults[index])
        )
        for index, key in enumerate(keys)
    ]
    return Parser(node.name, tuple(dense), tuple(others))


def _v1(nodes: Nodes, node: Any) -> tuple[list[str], list[str], list[str]]:
    """Reads ParseExample's inputs: serialized, names, then a tensor per sparse key, per dense key, per default."""
    sparse, dense = node.attr["Nsparse"].i, node.attr["Ndense"].i
    tensors = list(node.input[2 : 2 + sparse + 2 * dense])
    keys = [str(_constant(nodes, name).item(), "utf-8") for name in tensors[: sparse + dense]]
    return keys[sparse:], tensors[sparse + dense :], keys[:sparse]


def _v2(nodes: Nodes, node: Any) -> tuple[list[str], list[str], list[str]]:
    """Reads ParseExampleV2's inputs: serialized, names, vectors of sparse, dense and ragged keys, then the defaults."""
    sparse, dense, ragged = [
        [str(key, "utf-8") for key in _constant(nodes, name).reshape(-1)] for name in node.input[2:5]
    ]
    return dense, list(node.input[5 : 5 + len(dense)]), sparse + ragged


def _constant(nodes: Nodes, name: str) -> Any:
    node = nodes[node_of(nodes.root(name))]
    if node.op != "Const":
        raise Refused(f"{name!r}, a parameter of ParseExample, is computed by {node.op}; expected a constant")
    return tf.make_ndarray(node.attr["value"].tensor)


def _default(nodes: Nodes, name: str) -> list[Any] | None:
    values: list[Any] = _constant(nodes, name).reshape(-1).tolist()
    return values or None


def _shape(proto: Any) -> tuple[int, ...]:
    return (-1,) if proto.unknown_rank else tuple(dim.size for dim in proto.dim)


def check_examples(signatures: Sequence[SavedSignature]) -> None:
    """Raises Refused for a signature that would predict from examples that another signature parses."""
    parsed = {tensor(each.examples.tensor) for each in signatures if each.examples is not None}
    for signature in signatures:
        if signature.examples is None and any(tensor(port.tensor) in parsed for port in signature.inputs.values()):
            raise _refused(signature, PREDICTS)


def check_cut(nodes: Nodes, signature: SavedSignature, parsed: Iterable[Parser], used: set[str]) -> None:
    """Raises Refused if the `used` nodes, which compute the outputs, still need serialized examples."""
    for parser in parsed:
        if parser.node in used:
            many = ", ".join(parser.others)
            raise _refused(signature, f"features {many} are sparse or ragged, which plain tensors cannot carry")
    if any(nodes[name].op in PARSERS for name in used):
        raise _refused(signature, PREDICTS)
    if signature.examples is not None and node_of(signature.examples.tensor) in used:
        examples = tensor(signature.examples.tensor)
        readers = {nodes[name].op for name in used for source in nodes[name].input if nodes.root(source) == examples}
        ops = ", ".join(sorted(readers - {"Identity"})) or "its outputs"
        raise _refused(signature, f"its examples are read by {ops}; expected ParseExample alone")


def check_lengths(signature: SavedSignature, needed: Iterable[Feature]) -> None:
    for feature in needed:
        if min(feature.shape, default=0) < 0:
            raise _refused(
                signature, f"feature {feature.name!r} has a size that varies with each example; expected a fixed shape"
            )


def _refused(signature: SavedSignature, reason: str) -> Refused:
    return Refused(f"signature {signature.name!r}: {reason}; choose others with --signature")
