"""A pipeline against the same models called one after the other, in process and without any server.

The difference for each step is what naming its tensors, checking them, timing and counting it costs. Slow steps that
do not depend on each other are run side by side: what two of them gain is measured, too.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks import repository
from benchmarks.batching_models import WORDS, encoder
from benchmarks.measure import Row, fastest, interleaved, seconds, table
from core.dtype import DATATYPES
from core.operations import ModelRef
from core.ports import Model
from core.tensor import Tensor
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

BAR_US: Final = 30.0
LENGTHS: Final = (1, 4, 16)
BAR_OF_TWO: Final = 0.6
"""The bar of two steps that wait, as those that ask other services do: half of the time, a tenth for threads."""
TOKENS: Final = 32
WAITS: Final = """
import time
metadata = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]}

def predict(inputs, parameters):
    time.sleep(0.005)
    return {"y": inputs["x"]}
"""
X: Final = {"x": Tensor("x", DATATYPES["FP32"], np.ones((1, 4), np.float32))}
IDS: Final = np.random.default_rng(0).integers(0, WORDS, (1, TOKENS))
FEEDS: Final = {"waits": X, "computes": {"ids": Tensor("ids", DATATYPES["INT64"], IDS)}}


def chain(length: int) -> dict[str, Any]:
    """Returns a pipeline that calls one model again and again."""
    names = ["x", *(f"t{index}" for index in range(1, length)), "y"]
    steps = [
        {"name": f"s{index}", "model": "tiny", "inputs": {"x": names[index]}, "outputs": {"y": names[index + 1]}}
        for index in range(length)
    ]
    return {"steps": steps}


def by_hand(model: Model, length: int) -> Callable[[], None]:
    def run() -> None:
        tensor = X["x"]
        for _ in range(length):
            (tensor,) = model.predict({"x": tensor}, ["y"], {})

    return run


def compare(models: Registry, length: int, times: int, rounds: int) -> Row:
    with models.use(ModelRef("tiny"), Background()) as tiny, models.use(ModelRef(f"p{length}"), Background()) as ours:
        steps = by_hand(tiny, length)
        taken = interleaved(
            {
                "ours": lambda: seconds(lambda: ours.predict(X, ["y"], {}), times) * 1e6 / length,
                "control": lambda: seconds(steps, times) * 1e6 / length,
            },
            rounds,
        )
    above = median(mine - other for mine, other in zip(taken["ours"], taken["control"], strict=True))
    return Row(f"a step of {length}, above the model called directly", above, BAR_US, "us", above / BAR_US, 1.0)


def two(model: str, source: str) -> dict[str, Any]:
    """Returns a pipeline of two independent steps. `source`: the model's input; `y`: its output."""
    steps = [{"name": each, "model": model, "inputs": {source: source}, "outputs": {"y": each}} for each in "ab"]
    return {"steps": steps}


def side_by_side(models: Registry, model: str, bar: float | None, rounds: int) -> Row:
    """Compares a pipeline of two slow steps with the same two calls, one after the other."""
    inputs = FEEDS[model]
    with models.use(ModelRef(model), Background()) as slow, models.use(ModelRef(f"{model}-2"), Background()) as ours:

        def by_turns() -> None:
            slow.predict(inputs, ["y"], {})
            slow.predict(inputs, ["y"], {})

        for _ in range(3):  # the first shows that the steps are slow
            ours.predict(inputs, ["a", "b"], {})
        taken = interleaved(
            {
                "ours": lambda: seconds(lambda: ours.predict(inputs, ["a", "b"], {}), 5) * 1e3,
                "control": lambda: seconds(by_turns, 5) * 1e3,
            },
            rounds,
        )
    return fastest(f"two steps side by side, each {model}", taken["ours"], taken["control"], "ms", bar)


def main(*, quick: bool = False) -> list[Row]:
    times, rounds = (200, 5) if quick else (1000, 15)
    with tempfile.TemporaryDirectory() as folder:
        repository.make(Path(folder))
        for length in LENGTHS:
            file = Path(folder, f"p{length}", "1", "pipeline.json")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(chain(length)))
        encoder(Path(folder, "computes", "1", "model.onnx"), TOKENS)
        waiting = Path(folder, "waits", "1", "model.py")
        waiting.parent.mkdir(parents=True)
        waiting.write_text(WAITS)
        for model, inputs in FEEDS.items():
            file = Path(folder, f"{model}-2", "1", "pipeline.json")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(two(model, *inputs)))
        models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_ALLOW_CODE": "true"}))
        rows = [compare(models, length, times // length + 20, rounds) for length in LENGTHS]
        rows.append(side_by_side(models, "waits", BAR_OF_TWO, rounds))
        rows.append(side_by_side(models, "computes", None, rounds))
    print(table("Pipelines: each step against its model called directly, and two steps side by side", rows))
    return rows


if __name__ == "__main__":
    main()
