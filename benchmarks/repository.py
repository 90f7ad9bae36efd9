"""Models that compute almost nothing, so benchmarks measure the serving; written with onnx at run time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, helper, numpy_helper, save

IR_VERSION = 8
OPSET = 13
LARGE = 150_528
STRINGS = 1000

Shape = Sequence[int | str]


def constant(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), name)


def write(
    folder: Path,
    name: str,
    shapes: tuple[Shape, Shape],
    nodes: list[NodeProto],
    *constants: TensorProto,
    kind: int = TensorProto.FLOAT,
) -> None:
    """Writes x -> y, both FP32 unless `kind` is another type, as version 1 of a model."""
    x, y = (helper.make_tensor_value_info(n, kind, s) for n, s in zip("xy", shapes, strict=True))
    graph = helper.make_graph(nodes, name, [x], [y], list(constants))
    model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])
    checker.check_model(model)
    (folder / name / "1").mkdir(parents=True)
    save(model, folder / name / "1" / "model.onnx")


def texts() -> list[str]:
    """Returns STRINGS different texts of 14 to 22 characters, 18 on average."""
    sizes = np.random.default_rng(0).integers(14, 23, STRINGS).tolist()
    return [f"item-{number:012d}-text"[:size] for number, size in enumerate(sizes)]


def make(folder: Path) -> None:
    node: Callable[..., Any] = helper.make_node
    write(folder, "tiny", (["n", 4], ["n", 4]), [node("Add", ["x", "one"], ["y"])], constant("one", 4))
    mean = node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)
    write(folder, "image", (["n", 3, 224, 224], ["n", 3]), [mean])
    write(folder, "strings", (["n"], ["n"]), [node("Identity", ["x"], ["y"])], kind=TensorProto.STRING)
    write(folder, "echo", (["n", 3, 224, 224], ["n", 3, 224, 224]), [node("Identity", ["x"], ["y"])])
    write(folder, "batch", (["n", 32], ["n", 8]), [node("MatMul", ["x", "w"], ["y"])], constant("w", 32, 8))
    # An addition spreads one number of the input over many: the floats have all their digits and cost no time.
    spread = [node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1), node("Add", ["mean", "c"], ["y"])]
    write(folder, "large", (["n", 16], ["n", LARGE]), spread, constant("c", 1, LARGE))
