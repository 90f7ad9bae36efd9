"""The wait of an instance's first client, by Lambda's type of initialisation, with a model of 50 MB in an S3 server.

It runs the deployed artifact under the Runtime Interface Emulator; the steps are those of the answer's Server-Timing.
The emulator takes no snapshots: for SnapStart, a stand-in (tests/e2e/snapshot.py) calls the hooks in a process that
continues, so the figure lacks Lambda's own time to restore the memory.
"""

import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from benchmarks import repository
from benchmarks.cold_start import INIT, build, upload
from benchmarks.measure import Row
from tests.e2e import rie, s3, snapshot

MB = 50
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]})
EVENT = rie.event("POST", "/v2/models/weights/infer", REQUEST)
STEP = re.compile(r"(\w+);dur=([\d.]+)")
STEPS = ("fetch", "load", "decode", "infer", "encode")
Steps = dict[str, float]


def write(folder: Path) -> None:
    """Writes the model FP32 x -> y = x + one of 50 MB of weights."""
    weights = numpy_helper.from_array(np.random.default_rng(0).random(MB * 10**6 // 4, np.float32), "w")
    index = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    nodes = [helper.make_node("Gather", ["w", "i"], ["g"]), helper.make_node("Add", ["x", "g"], ["y"])]
    repository.write(folder, "weights", ([1], [1]), nodes, weights, index)


def answered(invoke: Callable[[object], dict[str, dict[str, str]]]) -> Steps:
    """Returns an answer's milliseconds by step."""
    answer = invoke(EVENT)
    if answer.get("statusCode") != 200:
        raise RuntimeError(str(answer))
    return {name: float(ms) for name, ms in STEP.findall(answer["headers"]["server-timing"])}


def emulated(artifact: Path, variables: Mapping[str, str], *, waits_for_init: bool) -> Steps:
    with rie.running(artifact, variables) as instance:
        steps = answered(instance.invoke)
        (init,) = INIT.findall(instance.log.read_text(errors="replace"))
    whole = sum(steps.values())
    return steps | {"INIT": float(init), "client waits": whole + float(init) * waits_for_init}


def restored(artifact: Path, variables: Mapping[str, str]) -> Steps:
    with snapshot.taken(artifact, variables) as instance:
        hooks = instance.restore() * 1e3
        steps = answered(instance.invoke)
    return steps | {"hooks": hooks, "client waits": hooks + sum(steps.values())}


def main(*, quick: bool = False) -> list[Row]:
    rounds = 2 if quick else 7
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        artifact = build(folder / "artifact")
        write(folder / "models")
        store = stack.enter_context(s3.running())
        upload(store, folder / "models")
        lazy = store.variables()
        preload = {**lazy, "DRAGOMAN_PRELOAD": "weights"}
        provisioned = {**preload, "AWS_LAMBDA_INITIALIZATION_TYPE": "provisioned-concurrency"}
        strategies: dict[str, Callable[[], Steps]] = {
            "on-demand": lambda: emulated(artifact, lazy, waits_for_init=True),
            "on-demand, PRELOAD": lambda: emulated(artifact, preload, waits_for_init=True),
            "provisioned-concurrency": lambda: emulated(artifact, provisioned, waits_for_init=False),
            "snap-start (stand-in)": lambda: restored(artifact, preload),
        }
        for measure in strategies.values():
            measure()  # the files are in the page cache from here on
        runs: dict[str, list[Steps]] = {name: [] for name in strategies}
        for _ in range(rounds):
            for name, measure in strategies.items():
                runs[name].append(measure())
    show(runs)
    return []


def show(runs: Mapping[str, list[Steps]]) -> None:
    columns = ("INIT", "hooks", *STEPS, "client waits")
    print(f"\nThe first answer of a new instance, a model of {MB} MB in S3: median milliseconds")
    print(f"{'':24}" + "".join(f"{column:>14}" for column in columns))
    for name, steps in runs.items():
        medians = [statistics.median(run.get(column, 0) for run in steps) for column in columns]
        print(f"{name:24}" + "".join(f"{value:14.1f}" for value in medians))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
