"""Requests over one connection and over eight, against the least possible work.

Ours runs on uvicorn (uvloop, httptools) as `dragoman serve` does, with its protocol. The controls run in the same
rounds: a bare uvicorn process that answers as many canned bytes to the same request, and for JSON tensors orjson and
numpy, in this process (no HTTP, no validation) and behind a bare uvicorn of their own.
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from benchmarks import client, control, repository
from benchmarks.measure import Row, interleaved, row, seconds, table
from benchmarks.server import OURS, process, uvicorn

BAR_TINY = 1.7
BAR_BINARY = 1.15
BAR_STRINGS = 2.5
BAR_STRINGS_BINARY = 4.0
BAR_PAUSES = 1.15
PAUSES = 10
PAUSE = 0.2, 0.07
"""Seconds that a server runs, and that it is stopped."""
# The p50 of the project's first prototype, divided by the p50 of the same prototype with orjson for reading.
PROTOTYPE = {"image": 3.5 / 7.1, "batch": 1.0 / 1.3, "large": 4.6 / 3.9}
ALLOWANCE = 1.5
# glibc may return large buffers to the system and fault them in again at each request, or keep them, depending on the
# process's history: a factor of four for 600 kB. The control always keeps them.
STEADY = {"MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "33554432"}


@dataclass(frozen=True)
class Case:
    """One request. `columns`: the answer's, for the control that computes one. `path`: with {} for the model."""

    name: str
    model: str
    body: bytes
    columns: int
    times: int
    header_length: int = 0
    bar: float | None = None
    path: str = "/v2/models/{}/infer"

    @property
    def headers(self) -> dict[str, str]:
        return {"Inference-Header-Content-Length": str(self.header_length)} if self.header_length else {}

    @property
    def wire(self) -> bytes:
        return client.request(self.path.format(self.model), self.body, self.headers)


def json_case(model: str, shape: tuple[int, ...], columns: int, times: int, bar: float | None = None) -> Case:
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": data.reshape(-1)}
    body = orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Case(f"{model} JSON {list(shape)}", model, body, columns, times, bar=bar)


def binary_case(model: str, shape: tuple[int, ...], columns: int, times: int, bar: float | None = None) -> Case:
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32).tobytes()
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    return Case(f"{model} binary {list(shape)}", model, head + data, columns, times, len(head), bar)


def with_lengths(texts: list[str]) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)


def strings_cases(times: int) -> tuple[Case, Case]:
    """Returns the requests of 1000 texts, which a model returns, in JSON and binary."""
    texts = repository.texts()
    raw = with_lengths(texts)
    tensor = {"name": "x", "shape": [len(texts)], "datatype": "BYTES"}
    text = orjson.dumps({"inputs": [tensor | {"data": texts}]})
    parameters = {"binary_data_size": len(raw)}
    head = orjson.dumps({"inputs": [tensor | {"parameters": parameters}], "parameters": {"binary_data_output": True}})
    return (
        Case("strings JSON [1000]", "strings", text, 0, times, bar=BAR_STRINGS),
        Case("strings binary [1000]", "strings", head + raw, 0, times, len(head), BAR_STRINGS_BINARY),
    )


IMAGE = (1, 3, 224, 224)
TINY = json_case("tiny", (1, 4), 4, 1500, BAR_TINY)
IMAGE_BINARY = binary_case("image", IMAGE, 3, 300, BAR_BINARY)
STRINGS = strings_cases(300)
JSON_CASES = (
    json_case("image", IMAGE, 3, 40),
    json_case("batch", (1000, 32), 8, 100),
    json_case("large", (1, 16), repository.LARGE, 60),
)
OTHERS = (
    binary_case("tiny", (1, 4), 4, 1500, BAR_TINY),
    binary_case("batch", (1000, 32), 8, 500),
    binary_case("large", (1, 16), repository.LARGE, 500),
)


def echo(case: Case, port: int) -> bytes:
    """Returns the request to the control, which answers as many bytes as ours on `port`, under the same headers."""
    connection = client.Connection(port)
    head, body = connection.ask(case.wire)
    connection.close()
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{case.name}: {head!r} {body[:300]!r}")
    binary = 1 if b"inference-header-content-length" in head.lower() else 0
    return client.request(f"/echo/{len(body)}/{binary}", case.body, case.headers)


def against_echo(case: Case, ours: int, bare: int, rounds: int) -> Row:
    other = echo(case, ours)
    taken = interleaved(
        {
            "ours": lambda: client.latency(ours, case.wire, case.times),
            "control": lambda: client.latency(bare, other, case.times),
        },
        rounds,
    )
    return row(f"{case.name}, p50", taken["ours"], taken["control"], "ms", case.bar)


def in_two_segments(case: Case, ours: int, bare: int, rounds: int) -> Row:
    """Compares requests whose body is sent behind the head, as Python's HTTP clients do."""
    other, size = echo(case, ours), len(case.body)

    def each(port: int, wire: bytes) -> Callable[[], float]:
        return lambda: client.latency(port, wire, case.times, len(wire) - size)

    taken = interleaved({"ours": each(ours, case.wire), "control": each(bare, other)}, rounds)
    return row(f"{case.name}, head and body apart, p50", taken["ours"], taken["control"], "ms", case.bar)


def against_orjson(case: Case, ours: int, bare: int, rounds: int) -> tuple[Row, Row]:
    """Compares ours with orjson + numpy in this process, and behind HTTP."""
    other = client.request(f"/orjson/{case.columns}/0", case.body)
    bar = PROTOTYPE[case.model] * ALLOWANCE

    def inside() -> float:
        return seconds(lambda: control.through_orjson(case.body, case.columns), case.times) * 1e3

    taken = interleaved(
        {
            "ours": lambda: client.latency(ours, case.wire, case.times),
            "inside": inside,
            "http": lambda: client.latency(bare, other, case.times),
        },
        rounds,
    )
    return (
        row(f"{case.name} / orjson+numpy in process", taken["ours"], taken["inside"], "ms", bar),
        row(f"{case.name} / orjson+numpy on uvicorn", taken["ours"], taken["http"], "ms", bar),
    )


def against_model(case: Case, ours: int, bare: int, rounds: int) -> Row:
    """Compares ours with the shortest code around the same model, behind HTTP: what the model and its runtime cost."""
    other = client.request(f"/model/{case.model}/0", case.body)
    taken = interleaved(
        {
            "ours": lambda: client.latency(ours, case.wire, case.times),
            "control": lambda: client.latency(bare, other, case.times),
        },
        rounds,
    )
    return row(f"{case.name} / orjson, the model, orjson on uvicorn", taken["ours"], taken["control"], "ms")


def at_eight(case: Case, ours: int, bare: int, rounds: int, duration: float) -> Row:
    """Compares the milliseconds of wall time per answer with eight connections, so its ratio reads like the others."""
    other = echo(case, ours)

    def per_answer(port: int, wire: bytes) -> Callable[[], float]:
        return lambda: 1e3 / client.throughput(port, wire, duration)

    taken = interleaved({"ours": per_answer(ours, case.wire), "control": per_answer(bare, other)}, rounds)
    return row(f"{case.name}, 8 connections", taken["ours"], taken["control"], "ms/answer")


def after_pauses(case: Case, rounds: int, duration: float) -> Row:
    """Compares a server with itself before it was stopped some times, as a quota of the processor stops a container.

    Its requests took as long as the pauses, which says nothing of the model.
    """
    taken: dict[str, list[float]] = {"after": [], "before": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            repository.make(Path(folder))
            environ = {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_PRELOAD": case.model, "DRAGOMAN_LOG_LEVEL": "WARNING"}
            with process("handler.asgi:app", environ, http=OURS) as (server, port):
                client.throughput(port, case.wire, duration)
                taken["before"].append(1e3 / client.throughput(port, case.wire, duration))
                pauses = threading.Thread(target=pause, args=(server.pid,))
                pauses.start()
                client.throughput(port, case.wire, PAUSES * sum(PAUSE))
                pauses.join()
                taken["after"].append(1e3 / client.throughput(port, case.wire, duration))
    return row(f"{case.name}, 8 connections, after pauses", taken["after"], taken["before"], "ms/answer", BAR_PAUSES)


def pause(pid: int) -> None:
    run, stop = PAUSE
    for _ in range(PAUSES):
        time.sleep(run)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(stop)
        os.kill(pid, signal.SIGCONT)


@contextmanager
def servers() -> Iterator[tuple[int, int]]:
    """Yields the ports of ours, with the models of `repository` loaded, and of the control."""
    with tempfile.TemporaryDirectory() as folder:
        repository.make(Path(folder))
        environ = {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_PRELOAD": "*", "DRAGOMAN_LOG_LEVEL": "WARNING"}
        controls = {**STEADY, "CONTROL_REPOSITORY": folder}
        with (
            uvicorn("handler.asgi:app", environ, http=OURS) as ours,
            uvicorn("benchmarks.control:app", controls) as bare,
        ):
            yield ours, bare


def main(*, quick: bool = False) -> list[Row]:
    rounds, duration = (3, 0.3) if quick else (9, 1.0)
    rows: list[Row] = []
    with servers() as (ours, bare):
        rows += [against_echo(case, ours, bare, rounds) for case in (TINY, IMAGE_BINARY, *STRINGS)]
        rows += [in_two_segments(case, ours, bare, rounds) for case in (TINY, IMAGE_BINARY)]
        rows += [against_model(case, ours, bare, rounds) for case in (TINY, STRINGS[0])]
        for case in JSON_CASES:
            rows += against_orjson(case, ours, bare, rounds)
        rows += [against_echo(case, ours, bare, rounds) for case in OTHERS]
        for case in (TINY, IMAGE_BINARY, *JSON_CASES, *STRINGS):
            rows.append(at_eight(case, ours, bare, 3 if quick else 5, duration))
    rows.append(after_pauses(TINY, 3 if quick else 5, duration))
    print(table("Requests as `dragoman serve` answers them: against a bare echo, and against orjson + numpy", rows))
    return rows


if __name__ == "__main__":
    main()
