"""`dragoman serve --workers N` against one worker: answers per second, and the memory of a large model.

Both servers run at the same time and take turns, so that each measures the same minutes of the machine. The client
needs about a tenth of the server's CPU time; on a machine with two processors, the server has that much less. The
kernel spreads connections by a hash of their addresses. A few are rarely spread evenly, so CONNECTIONS is large.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

from benchmarks import repository
from benchmarks.client import Connection, request, throughput
from benchmarks.measure import Row, interleaved, row, table
from benchmarks.per_request import IMAGE, TINY, Case, json_case
from benchmarks.server import ROOT, free_port, wait

CONNECTIONS: Final = 32
GAIN: Final = 1 / 1.7
"""The bar of the time for an answer, with twice the workers."""
WORKERS: Final = 4
MEMORY: Final = 1.5
"""The bar of the memory of WORKERS, against one."""
COLUMNS: Final = 1024
ROWS: Final = 340 * 1024 * 1024 // (4 * COLUMNS)
PART: Final = ROWS // 40
JSON: Final = {"content-type": "application/json"}


@contextmanager
def serving(folder: Path, workers: int, *flags: str, **settings: str) -> Iterator[tuple[int, int]]:
    """Yields the port and the process of a server once all of its workers answer."""
    port = free_port()
    command = [sys.executable, "-m", "dragoman", "serve", "--port", str(port), "--workers", str(workers)]
    command += ["--repository", str(folder), "--no-access-log", "--log-level", "WARNING"]
    command += flags
    environ = {**os.environ, **{f"DRAGOMAN_{name}": text for name, text in settings.items()}}
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        wait(process, port)
        while workers > 1 and f"\ndragoman_processes {workers}" not in asked(port, "/metrics"):
            time.sleep(0.1)
        time.sleep(1.0)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def asked(port: int, path: str, document: Any = None) -> str:
    body = None if document is None else json.dumps(document).encode()
    asking = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, JSON)
    with urllib.request.urlopen(asking, timeout=300) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())


def gain(case: Case, ports: dict[int, int], rounds: int, seconds: float) -> Row:
    """Compares the milliseconds for an answer of two workers with those of one. `ports`: by workers."""

    def per_answer(workers: int) -> float:
        return 1e3 / throughput(ports[workers], case.wire, seconds, CONNECTIONS)

    taken = interleaved({"two": lambda: per_answer(2), "one": lambda: per_answer(1)}, rounds)
    return row(f"{case.name}, 2 workers against 1", taken["two"], taken["one"], "ms/answer", GAIN)


def write(folder: Path, name: str, nodes: Any, x: Any) -> None:
    """Writes a model of 340 MB of weights, as external data."""
    weights = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [COLUMNS])
    graph = helper.make_graph(nodes, name, [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    (folder / name / "1").mkdir(parents=True)
    path = folder / name / "1" / "model.onnx"
    save(model, path, save_as_external_data=True, location="weights", size_threshold=1024)
    checker.check_model(path)


def mean(*node: Any) -> list[Any]:
    return [helper.make_node(*node), helper.make_node("ReduceMean", ["rows"], ["y"], axes=[0], keepdims=0)]


LARGE: Final = {
    "table": (
        mean("Gather", ["w", "x"], ["rows"]),
        helper.make_tensor_value_info("x", TensorProto.INT64, ["n"]),
        [
            {"name": "x", "datatype": "INT64", "shape": [PART], "data": [*range(first, first + PART)]}
            for first in range(0, ROWS, PART)
        ],
    ),
    "matrix": (
        mean("MatMul", ["x", "w"], ["rows"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, ROWS]),
        [{"name": "x", "datatype": "FP32", "shape": [1, ROWS], "data": [1.0] * ROWS}],
    ),
}
"""Models of 340 MB, and the requests that use all of it. One reads rows of its weights as they are, the other's weights
are packed anew by the runtime."""


def memory(process: int) -> float:
    """Returns the MB of a server's processes. A page that several of them have mapped counts once, in parts."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    total = 0
    for each in (process, *children):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def held(folder: Path, name: str, workers: int) -> float:
    """Returns the MB of a server of so many workers which have all loaded a model and used it."""
    with serving(folder, workers, MEMORY_LIMIT="0") as (port, process):
        asked(port, f"/v2/repository/models/{name}/load", {})
        bodies = (json.dumps({"inputs": [tensor]}).encode() for tensor in LARGE[name][2])
        wires = [request(f"/v2/models/{name}/infer", body) for body in bodies]
        for _ in range(8 * workers):  # each worker gets some of so many connections
            client = Connection(port)
            for wire in wires:
                head, body = client.ask(wire)
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"{head!r} {body[:300]!r}")
            client.close()
        time.sleep(2.0)  # an idle process returns what it has freed
        return memory(process)


def main(*, quick: bool = False) -> list[Row]:
    rounds, seconds = (3, 0.5) if quick else (9, 2.0)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        repository.make(folder)
        ports = {count: stack.enter_context(serving(folder, count, PRELOAD="*"))[0] for count in (1, 2)}
        rows += [gain(case, ports, rounds, seconds) for case in (TINY, json_case("image", IMAGE, 3, 40))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, (nodes, x, _) in LARGE.items():
            write(folder, model, nodes, x)
            taken = [held(folder, model, count) for count in (WORKERS, 1)]
            bar = MEMORY if model == "table" else None
            rows.append(row(f"memory with a {model} of 340 MB, {WORKERS} workers", taken[:1], taken[1:], "MB", bar))
    print(table("`dragoman serve --workers`: against one worker", rows))
    return rows


if __name__ == "__main__":
    main()
