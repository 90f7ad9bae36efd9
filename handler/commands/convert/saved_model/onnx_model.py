"""Converts a graph without variables, calls and examples to the bytes of model.onnx."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BY_ONNX, BYTES, DataType
from core.records import NamedTuple
from handler.commands.convert.saved_model import exactness
from handler.commands.convert.saved_model.feeds import Feed
from handler.commands.convert.saved_model.opened import SavedModel
from handler.commands.convert.saved_model.runtime import datatype, onnx, onnxruntime, optimizer, tf, tf2onnx_log, tfonnx
from handler.commands.refused import Refused

OPSET: Final = 17
LARGEST: Final = 2**31 - 1
"""The most bytes of one protobuf message."""
ELEMENTWISE: Final = frozenset(
    {
        *(
            "Abs",
            "Acos",
            "Acosh",
            "Add",
            "And",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "Cast",
            "Ceil",
            "Clip",
            "Cos",
            "Cosh",
        ),
        *(
            "Div",
            "Elu",
            "Equal",
            "Erf",
            "Exp",
            "Floor",
            "Greater",
            "GreaterOrEqual",
            "HardSigmoid",
            "Identity",
            "IsInf",
        ),
        *("IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow"),
        *(
            "Reciprocal",
            "Relu",
            "Round",
            "Selu",
            "Sigmoid",
            "Sign",
            "Sin",
            "Sinh",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Sub",
        ),
        *("Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
    }
)
"""ONNX operations that mean the same at every rank."""


class GraphTensor(NamedTuple):
    """An input or output of the ONNX model. `shape`: -1 is any size, None any rank."""

    name: str
    datatype: DataType
    shape: tuple[int, ...] | None


class Made(NamedTuple):
    model: bytes
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]


def make(
    saved: SavedModel, graph: Any, feeds: Sequence[Feed], outputs: Mapping[str, str], optional: Iterable[Feed]
) -> Made:
    """Makes model.onnx. `outputs`: node -> name. `optional`: feeds that some signature lacks. Raises Refused."""
    exactness.check(graph)
    model = _converted(saved, graph, feeds, outputs)
    _check_ops(model)
    _declare_inputs(model.graph, feeds)
    _forget_shapes(model.graph)
    _give_values(model.graph, optional)
    if model.ByteSize() > LARGEST:
        raise Refused(f"the model has {model.ByteSize()} bytes; one ONNX file carries at most {LARGEST}")
    made = model.SerializeToString()
    _check_loads(made)
    return Made(
        made,
        tuple(_tensor(value) for value in model.graph.input),
        tuple(_tensor(value) for value in model.graph.output),
    )


def _converted(saved: SavedModel, graph: Any, feeds: Sequence[Feed], outputs: Mapping[str, str]) -> Any:
    present = {node.name for node in graph.node}
    used = [feed for feed in feeds if feed.node in present]
    names = {f"{feed.node}:0": feed.name for feed in used} | {f"{node}:0": name for node, name in outputs.items()}
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(graph, name="")
    failed = _Failed()
    tf2onnx_log.addHandler(failed)
    try:
        made = tfonnx.process_tf_graph(
            imported,
            opset=OPSET,
            custom_op_handlers=exactness.HANDLERS,
            input_names=[f"{feed.node}:0" for feed in used],
            output_names=[f"{node}:0" for node in outputs],
            tensors_to_rename=names,
            initialized_tables=saved.tables(graph),
        )
        return optimizer.optimize_graph(made, catch_errors=False).make_model("dragoman convert")
    except Exception as error:  # tf2onnx lets every error of its handlers through
        ops = {node.op for node in graph.node if node.name in failed.nodes}
        what = ", ".join(sorted(ops)) or "the graph"
        raise Refused(f"tf2onnx cannot convert {what}: {' '.join(str(error).split())[:256]}") from error
    finally:
        tf2onnx_log.removeHandler(failed)


class _Failed(logging.Handler):
    """Keeps the names of the nodes that tf2onnx reports as failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.nodes: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("Failed to convert node") and isinstance(record.args, tuple):
            self.nodes.add(str(record.args[0]))


def _check_loads(model: bytes) -> None:
    """Raises Refused if ONNX Runtime lacks a kernel, as it does for some types that ONNX allows."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own classes have no common base
        raise Refused(f"ONNX Runtime cannot load the ONNX model: {' '.join(str(error).split())[:256]}") from error


def _check_ops(model: Any) -> None:
    unknown = sorted({node.op_type for node in _nodes(model.graph) if not onnx.defs.has(node.op_type, node.domain)})
    if unknown:
        raise Refused(f"ONNX lacks {'these operations' if len(unknown) > 1 else 'an operation'}: {', '.join(unknown)}")


def _nodes(graph: Any) -> Iterable[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _declare_inputs(graph: Any, feeds: Sequence[Feed]) -> None:
    """Declares the feeds in their order, also unused ones, with the SavedModel's shapes."""
    del graph.input[:]
    for feed in feeds:
        element = datatype(feed.dtype, f"input {feed.name!r}").onnx
        sizes = None if feed.shape is None else [None if size < 0 else size for size in feed.shape]
        graph.input.append(onnx.helper.make_tensor_value_info(feed.name, element, sizes))


def _forget_shapes(graph: Any) -> None:
    """Removes the shapes of inputs that only elementwise operations read: TensorFlow enforces no declared shape."""
    del graph.value_info[:]
    consumers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    for value in graph.input:
        reached = _reached(value.name, consumers)
        if reached is not None:
            for each in (value, *(output for output in graph.output if output.name in reached)):
                each.type.tensor_type.ClearField("shape")


def _reached(name: str, consumers: Mapping[str, Sequence[Any]]) -> set[str] | None:
    """Returns the tensors computed from this one, or None if an operation among them is not elementwise."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for node in consumers.get(waiting.pop(), ()):
            if node.op_type not in ELEMENTWISE:
                return None
            waiting += [output for output in node.output if output not in found]
            found.update(node.output)
    return found


def _give_values(graph: Any, optional: Iterable[Feed]) -> None:
    """Makes inputs optional: in ONNX, an initializer of the same name is the default. No request reads these zeros."""
    for feed in optional:
        row = datatype(feed.dtype, f"input {feed.name!r}")
        sizes = [max(size, 1) for size in feed.shape or ()]
        if row is BYTES:
            graph.initializer.append(onnx.numpy_helper.from_array(np.full(sizes, "", object), feed.name))
        else:
            zeros = np.zeros(sizes, row.numpy).tobytes()  # raw, because numpy's uint16 stands for BF16
            graph.initializer.append(onnx.helper.make_tensor(feed.name, row.onnx, sizes, zeros, raw=True))


def _tensor(value: Any) -> GraphTensor:
    kind = value.type.tensor_type
    if kind.elem_type not in BY_ONNX:
        raise Refused(f"{value.name!r} is of ONNX type {kind.elem_type}, which no protocol carries")
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    return GraphTensor(value.name, BY_ONNX[kind.elem_type], shape if kind.HasField("shape") else None)
