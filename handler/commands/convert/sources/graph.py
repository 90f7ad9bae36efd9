"""Small repairs of ONNX graphs that converters of tree models make: maps become tensors, unused outputs go."""

from collections.abc import Sequence
from typing import Any, Final

from handler.commands.convert.sources.original import library
from handler.commands.refused import Refused

SCORES: Final = "probabilities"


def without_maps(made: Any) -> Any:
    """Replaces the operator ZipMap by its input: a tensor [rows, classes], called "probabilities"."""
    helper = library("onnx.helper", "onnx", "convert")
    proto = library("onnx", "onnx", "convert").TensorProto
    graph = made.graph
    for node in [each for each in graph.node if each.op_type == "ZipMap"]:
        graph.node.remove(node)
        graph.node.append(helper.make_node("Identity", [node.input[0]], [SCORES], name="dragoman_scores"))
        place = [output.name for output in graph.output].index(node.output[0])
        kept = list(graph.output)
        kept[place] = helper.make_tensor_value_info(SCORES, proto.FLOAT, [None, None])
        del graph.output[:]
        graph.output.extend(kept)
    return made


def with_open_rows(made: Any) -> Any:
    """Leaves the number of rows in the outputs open. onnxmltools writes 1 for that of the labels."""
    for output in made.graph.output:
        sizes = output.type.tensor_type.shape.dim
        if sizes:
            sizes[0].Clear()
    return made


def renamed_inputs(made: Any, names: Sequence[str]) -> Any:
    """Gives the inputs other names. Raises Refused for the name of an output."""
    if taken := sorted({*names}.intersection(outputs(made))):
        raise Refused(f"input {taken[0]!r} has the name of an output: train with another name for this column")
    new = dict(zip((value.name for value in made.graph.input), names, strict=True))
    for value in made.graph.input:
        value.name = new[value.name]
    for node in made.graph.node:
        node.input[:] = [new.get(each, each) for each in node.input]
    return made


def negated_output(made: Any, name: str) -> None:
    """Negates the numbers of an output."""
    helper = library("onnx.helper", "onnx", "convert")
    opposite = _freed(made, name)
    made.graph.node.append(helper.make_node("Neg", [opposite], [name], name="dragoman_scores"))


def squared_output(made: Any, name: str) -> None:
    """Squares the numbers of an output, which keep their signs."""
    helper = library("onnx.helper", "onnx", "convert")
    root = _freed(made, name)
    size = f"{root}_size"
    made.graph.node.append(helper.make_node("Abs", [root], [size], name="dragoman_size"))
    made.graph.node.append(helper.make_node("Mul", [root, size], [name], name="dragoman_square"))


def _freed(made: Any, name: str) -> str:
    """Gives the tensor that was an output another name, and returns that."""
    found = f"{name}_before"
    for node in made.graph.node:
        node.input[:] = [found if each == name else each for each in node.input]
        node.output[:] = [found if each == name else each for each in node.output]
    return found


def outputs(made: Any) -> list[str]:
    return [output.name for output in made.graph.output]


def without_notes(made: Any) -> Any:
    """Removes what exporters note for their own debugging: names of modules, and paths of the machine."""
    del made.metadata_props[:]
    for each in (made.graph, *made.graph.node, *made.graph.input, *made.graph.output, *made.graph.value_info):
        each.doc_string = ""
        del each.metadata_props[:]
    return made


def rename_outputs(made: Any, names: list[str]) -> None:
    """Gives the outputs other names, by a node each: another node may read the tensor under its old one."""
    helper = library("onnx.helper", "onnx", "convert")
    for value, name in zip(made.graph.output, names, strict=True):
        made.graph.node.append(helper.make_node("Identity", [value.name], [name], name=f"dragoman_{name}"))
        value.name = name
