"""A pipeline against the same models called one after the other, in process and without any server.

The difference for each step is what naming its tensors, checking them, timing and counting it costs.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks import repository
from benchmarks.measure import Row, interleaved, seconds, table
from core.dtype import DATATYPES
from core.operations import ModelRef
from core.ports import Model
from core.tensor import Tensor
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

BAR_US: Final = 30.0
LENGTHS: Final = (1, 4, 16)
X: Final = {"x": Tensor("x", DATATYPES["FP32"], np.ones((1, 4), np.float32))}


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


def main(*, quick: bool = False) -> list[Row]:
    times, rounds = (200, 5) if quick else (1000, 15)
    with tempfile.TemporaryDirectory() as folder:
        repository.make(Path(folder))
        for length in LENGTHS:
            file = Path(folder, f"p{length}", "1", "pipeline.json")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(chain(length)))
        models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": folder}))
        rows = [compare(models, length, times // length + 20, rounds) for length in LENGTHS]
    print(table("Pipelines: each step against its model called directly", rows))
    return rows


if __name__ == "__main__":
    main()
