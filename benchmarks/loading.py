"""Load and first answer of large models from a warm disk: as `dragoman push --optimize` leaves them, and as they were.

Each figure is that of a new process. The control is what everybody begins with: a session of the file with ONNX
Runtime's own settings, and one run. Ours loads the pushed version as a server does; "later" is a run of the session
that follows the first answer. The control of "not optimised" is the inline file, loaded as a server does: ONNX
Runtime's own settings let threads spin, which costs much on a machine that has other work. The fastest of the rounds
counts: other processes disturb most of them.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.batching_models import encoder
from benchmarks.measure import Row, fastest, table
from core.tensor import Tensor
from handler.commands.publish import versions
from handler.commands.publish.optimize import step

FIGURES = (("first", "ms", 0.4), ("first, CPU", "ms", 0.4), ("memory", "MB", 0.75), ("later, CPU", "ms", None))
TOKENS, WIDTH = 64, 768
"""A transformer of BERT-base's shape, 343 MB."""
STAGES = ((64, 3), (128, 4), (256, 6), (512, 2))
"""Channels and residual blocks of a convolutional net, 68 MB."""
RUNS = 5
INPUTS = {"transformer": ("ids", (1, TOKENS)), "convolution": ("x", (1, 3, 224, 224))}


def convolution(path: Path) -> None:
    """Writes x [n, 3, 224, 224] -> y [n, 1000]: 34 convolutions, each with its normalization, in residual blocks."""
    from onnx import TensorProto, helper, numpy_helper, save  # noqa: PLC0415 - not in the processes that are measured

    random, nodes, constants = np.random.default_rng(0), [], []

    def constant(values: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values, np.float32), f"w{len(constants)}"))
        return f"w{len(constants) - 1}"

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def normal(x: str, into: int, out: int, size: int, stride: int = 1) -> str:
        values = random.standard_normal((out, into, size, size)) / np.sqrt(into * size * size)
        x = add("Conv", x, constant(values), pads=[size // 2] * 4, strides=[stride] * 2)
        statistics = (1 + random.random(out) * part for part in (0.1, 0.1, 0.1, 0.1))
        return add("BatchNormalization", x, *map(constant, statistics))

    x, width = add("MaxPool", add("Relu", normal("x", 3, 64, 7, 2)), kernel_shape=[3, 3], strides=[2, 2]), 64
    for channels, blocks in STAGES:
        for _ in range(blocks):
            stride = 1 if channels == width else 2
            inner = add("Relu", normal(x, width, channels, 3, stride))
            beside = x if channels == width else normal(x, width, channels, 1, stride)
            x, width = add("Relu", add("Add", normal(inner, channels, channels, 3), beside)), channels
    flat = add("Flatten", add("GlobalAveragePool", x))
    nodes.append(helper.make_node("MatMul", [flat, constant(random.standard_normal((width, 1000)) / 20)], ["y"]))
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 3, 224, 224]), ("y", ["n", 1000]))
    ]
    graph = helper.make_graph(nodes, "convolution", described[:1], described[1:], constants)
    path.parent.mkdir(parents=True)
    save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


def feed(kind: str) -> dict[str, Any]:
    name, shape = INPUTS[kind]
    random = np.random.default_rng(1)
    is_text = kind == "transformer"
    return {name: random.integers(0, 1000, shape) if is_text else random.standard_normal(shape).astype(np.float32)}


def child(kind: str, folder: Path, how: str) -> dict[str, float]:
    """Returns the milliseconds of load and first run, their CPU's, the megabytes gained, and a later run's CPU."""
    import onnxruntime  # noqa: PLC0415 - its import is not measured

    from handler.backends import Source, onnx  # noqa: PLC0415
    from handler.lifecycle.room import memory  # noqa: PLC0415
    from handler.settings import Settings  # noqa: PLC0415
    from handler.settings.model import FILE, parse  # noqa: PLC0415

    inputs, settings = feed(kind), Settings.from_env({})
    rest: list[Callable[[], None]] = []
    before, began, used = memory.resident() or 0, time.perf_counter(), time.process_time()
    run: Callable[[], Any]
    if how == "control":
        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        run = partial(session.run, None, inputs)
    else:
        said = parse("m", (folder / FILE).read_bytes() if (folder / FILE).exists() else None)
        model = onnx.load(Source("m", "1", folder, said, later=lambda work, _: rest.append(work)), settings)
        tensors = {spec.name: Tensor(spec.name, spec.datatype, inputs[spec.name]) for spec in model.spec.inputs or ()}
        run = partial(model.predict, tensors, ["y"], {})
    run()
    first, cpu = time.perf_counter() - began, time.process_time() - used
    gained = (memory.resident() or 0) - before
    for work in rest:
        work()
    run()
    later = min(map(partial(timed, run), range(RUNS)))
    return {"first": first * 1e3, "first, CPU": cpu * 1e3, "memory": gained / 1e6, "later, CPU": later}


def timed(run: Callable[[], Any], _: int) -> float:
    began = time.process_time()
    run()
    return (time.process_time() - began) * 1e3


def measured(kind: str, folder: Path, how: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.loading", kind, str(folder), how]
    done = subprocess.run(command, check=True, capture_output=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def optimised(source: Path, to: Path) -> Path:
    """Returns the folder with what `dragoman push --optimize` makes of the model."""
    (version,) = versions.find(source, None).versions
    to.mkdir()
    made, how = step.optimized(version, to, resigned=False)
    if made is version:
        raise RuntimeError(how)
    return to


def main(*, quick: bool = False) -> list[Row]:
    rounds, rows = 3 if quick else 9, []
    with tempfile.TemporaryDirectory() as temporary:
        for kind in INPUTS:
            inline = Path(temporary) / kind / "model.onnx"
            if kind == "transformer":
                encoder(inline, TOKENS, WIDTH)
            else:
                convolution(inline)
            new = optimised(inline.parent, Path(temporary) / f"{kind}-new")
            folders = {"ours": new, "control": inline.parent, "inline": inline.parent}
            taken: dict[str, list[dict[str, float]]] = {how: [] for how in folders}
            for _ in range(rounds + 1):
                for how, folder in folders.items():
                    taken[how].append(measured(kind, folder, how))
            for figure, unit, bar in FIGURES:
                ours, control, inline_too = ([each[figure] for each in runs[1:]] for runs in taken.values())
                rows.append(fastest(f"{kind}: {figure}", ours, control, unit, bar))
                rows.append(fastest(f"{kind}: {figure}, not optimised", ours, inline_too, unit))
    print(table("Large models, optimised before they are pushed: ours against a session of the inline file", rows))
    return rows


if __name__ == "__main__":
    if sys.argv[3:]:
        print(json.dumps(child(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
    else:
        main(quick="--quick" in sys.argv)
