"""Answers in pieces through Lambda's Runtime API: our own runtime, and the least that could send the same."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, interleaved, row, table
from tests.support.publishing import publish, say
from tests.support.runtime_api import RuntimeStandIn, runtime_api

ROOT = Path(__file__).parents[1]
MODEL = b'''
"""Says what time it is, a second time after 20 ms; or sends so many megabytes."""
import time
import numpy as np

metadata = {"inputs": [{"name": "n", "datatype": "INT64", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def stream(inputs, parameters):
    yield {"y": np.array([time.monotonic_ns()])}
    time.sleep(0.02)
    yield {"y": np.array([time.monotonic_ns()])}

def predict(inputs, parameters):
    return {"y": inputs["n"]}

def http(request):
    return 200, {}, (bytes(2**20) for _ in range(int(request.query["megabytes"])))
'''
LARGE = 100
LIMIT_MS = 20.0
LIMIT_MB = 16.0


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[RuntimeStandIn, int]]:
    """Runs Python with the arguments as a runtime; yields the API that it takes events from, and its process id."""
    with runtime_api() as api:
        own = {
            "AWS_LAMBDA_RUNTIME_API": api.address, "AWS_LAMBDA_FUNCTION_NAME": "f", "PYTHONPATH": str(ROOT),
            "DRAGOMAN_REPOSITORY": str(folder), "DRAGOMAN_ALLOW_CODE": "true", "DRAGOMAN_PRELOAD": "clock",
            "DRAGOMAN_RESPONSE_STREAMING": "true",
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, *arguments], env=os.environ | own, cwd=ROOT)
        try:
            yield api, process.pid
        finally:
            process.terminate()
            process.wait()


def event(path: str, body: str = "", query: str = "") -> dict[str, Any]:
    """Returns a Function URL's event."""
    http = {"method": "POST", "path": path, "sourceIp": "203.0.113.9"}
    context = {"http": http, "stage": "$default", "domainName": "x.lambda-url.us-east-1.on.aws"}
    return {"version": "2.0", "requestContext": context, "headers": {}, "body": body, "rawQueryString": query}


def first(api: RuntimeStandIn) -> float:
    """Returns the milliseconds from the model's first yield to its arrival."""
    taken = api.send(event("/v2/models/clock/generate_stream", '{"n": 1}')).wait()
    made = int(json.loads(taken.pieces[1].removeprefix(b"data: "))["y"])
    return (taken.came[1] - made) / 1e6


def large(api: RuntimeStandIn) -> float:
    """Returns the seconds from the head's arrival to the end."""
    taken = api.send(event("/own/clock", query=f"megabytes={LARGE}"))
    taken.keep = False
    taken.wait()
    if taken.size < LARGE * 2**20:
        raise RuntimeError(f"only {taken.size} bytes came")
    return (taken.came[-1] - taken.came[0]) / 1e9


def peak(pid: int) -> float:
    """Returns the most MB that a process has had in memory."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(found[1]) / 1024 if found is not None else 0.0


def main(*, quick: bool = False) -> list[Row]:
    """Returns the rows, and prints them."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary) / "models"
        publish(folder, "clock", 1, MODEL, "model.py")
        say(folder, "clock", http={"path": "/own/clock"})
        ours, pid = stack.enter_context(running(folder, "-m", "dragoman.runtime"))
        bare, _ = stack.enter_context(running(folder, "-m", "benchmarks.control_runtime"))
        for api in (ours, bare):
            first(api)
        before = peak(pid)
        rows = _rows(ours, bare, rounds=20 if quick else 200)
        grown = peak(pid) - before
        rows.append(Row(f"an answer of {LARGE} MB, memory", grown, LIMIT_MB, "MB", grown / LIMIT_MB, 1.0))
    print(table("Answers in pieces, to the Runtime API", rows))
    return rows


def _rows(ours: RuntimeStandIn, bare: RuntimeStandIn, rounds: int) -> list[Row]:
    firsts = interleaved({"ours": lambda: first(ours), "bare": lambda: first(bare)}, rounds)
    larges = interleaved({"ours": lambda: large(ours), "bare": lambda: large(bare)}, max(3, rounds // 20))

    usual, slowest, bares = statistics.median(firsts["ours"]), max(firsts["ours"]), max(firsts["bare"])
    return [
        Row("first piece", usual, LIMIT_MS, "ms", usual / LIMIT_MS, 1.0),
        _beside("first piece, beside a bare runtime", firsts, "ms"),
        Row("first piece, the slowest of each", slowest, bares, "ms", slowest / bares),
        _beside(f"an answer of {LARGE} MB", larges, "s"),
    ]


def _beside(name: str, values: dict[str, list[float]], unit: str) -> Row:
    found: Sequence[Sequence[float]] = (values["ours"], values["bare"])
    return row(name, *found, unit)


if __name__ == "__main__":
    main()
