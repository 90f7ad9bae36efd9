"""python -m benchmarks.soak [--minutes 60] [--rate 20] [--http2]: a server under everything at once, for an hour.

Clients of every protocol ask `dragoman serve --workers 2` for answers that can be checked, at a rate that leaves the
machine mostly idle. Meanwhile one model gets a new version every few seconds, another one is loaded and unloaded, and
one of the workers is killed. A request may be refused (503, or because its model is unloaded). A client may lose one
request with its connection to the worker that was killed, and those that it began before that process had ended: until
then the system may give it new connections. Anything else is a failure, and the program ends with exit code 1. With
`--http2` clients of gRPC use the same port as the others.

The worker that is never killed must not grow: its memory, descriptors and threads in the last tenth of the time are
compared with those in the second tenth.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from onnx import helper, numpy_helper

from benchmarks import repository
from benchmarks.measure import Row, row, table
from benchmarks.server import free_port
from benchmarks.soak_clients import LOST, Http, Refusal, clients
from benchmarks.workers import serving

NEW_VERSION_SECONDS: Final = 10.0
VERSIONS_KEPT: Final = 3
CHURN_SECONDS: Final = 3.0
KILL_SECONDS: Final = 60.0
SAMPLE_SECONDS: Final = 2.0
GROWTH: Final = 1.05
"""The bar of what the surviving worker holds at the end, against the beginning."""


def publish(folder: Path, version: int) -> None:
    """Writes a version of the model "swapped", which adds its own number, and removes the oldest."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        number = numpy_helper.from_array(np.full(1, version, np.float32), "number")
        nodes = [helper.make_node("Add", ["x", "number"], ["y"])]
        repository.write(Path(name), "swapped", (["n", 4], ["n", 4]), nodes, number)
        (folder / "swapped").mkdir(exist_ok=True)
        (Path(name) / "swapped" / "1").rename(folder / "swapped" / str(version))
    shutil.rmtree(folder / "swapped" / str(version - VERSIONS_KEPT), ignore_errors=True)


class Soak:
    """What happened, counted by client and outcome, and what the surviving worker held."""

    def __init__(self, port: int, rpc_port: int, process: int, folder: Path, seconds: float) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self.held: dict[str, list[tuple[float, float]]] = {"memory": [], "descriptors": [], "threads": []}
        self._port, self._rpc_port, self._process, self._folder = port, rpc_port, process, folder
        self._survivor = workers(process)[0]
        self._start = time.monotonic()
        self._end = self._start + seconds
        self._deaths: list[tuple[float, float]] = []

    def run(self, rate: float) -> None:
        chores = ((self._publish, NEW_VERSION_SECONDS), (self._churn, CHURN_SECONDS), (self._kill, KILL_SECONDS))
        threads = [threading.Thread(target=self._every, args=(pause, chore)) for chore, pause in chores]
        threads.append(threading.Thread(target=self._every, args=(SAMPLE_SECONDS, self._sample)))
        for name, ask in clients(self._port, self._rpc_port).items():
            threads.append(threading.Thread(target=self._ask, args=(name, ask, 1 / rate)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _every(self, pause: float, chore: Callable[[], None]) -> None:
        while (now := time.monotonic()) < self._end:
            try:
                chore()
            except Exception as error:  # noqa: BLE001 - the rest goes on, and the report has it
                self.failures.append(f"{now - self._start:.0f} s, {chore.__name__}: {error!r}")
            time.sleep(max(0.0, min(now + pause, self._end) - time.monotonic()))

    def _ask(self, name: str, ask: Callable[[float], None], pause: float) -> None:
        number, lost = 0, 0
        while (now := time.monotonic()) < self._end:
            number = (number + 1) % 1000
            try:
                ask(float(number))
            except Refusal as error:
                outcome = f"refused {error.args[0]}"
                if not honest(error, name):
                    self._fail(now, name, error)
            except LOST as error:
                outcome, lost = "lost", lost + 1
                if not self._is_excused(now, lost):
                    self._fail(now, name, error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
                outcome = "wrong"
                self._fail(now, name, error)
            else:
                outcome, lost = "answered", 0
            self.counts[name, outcome] += 1
            time.sleep(max(0.0, now + pause - time.monotonic()))

    def _is_excused(self, begun: float, lost: int) -> bool:
        """Decides whether a lost request was a dead worker's. `lost`: how many its client has lost in a row."""
        now = time.monotonic()
        return any(kill < now and (begun < end or (lost == 1 and begun < kill + 1)) for kill, end in self._deaths)

    def _fail(self, now: float, name: str, error: Exception) -> None:
        self.failures.append(f"{now - self._start:.1f} s, {name}: {error!r}")

    def _publish(self) -> None:
        newest = max(int(path.name) for path in (self._folder / "swapped").iterdir())
        publish(self._folder, newest + 1)

    def _churn(self) -> None:
        for change in ("unload", "load"):
            try:
                Http(self._port)(f"/v2/repository/models/batch/{change}", b"{}")
            except LOST:
                if not any(time.monotonic() - kill < 2 for kill, _ in self._deaths):
                    raise
            self.counts[change, "done"] += 1
            time.sleep(CHURN_SECONDS / 3)

    def _kill(self) -> None:
        if time.monotonic() - self._start < KILL_SECONDS / 2:
            return
        others = [each for each in workers(self._process) if each != self._survivor]
        start = time.monotonic()
        self._deaths.append((start, float("inf")))
        os.kill(others[0], signal.SIGKILL)
        while lives(others[0]):
            time.sleep(0.001)
        self._deaths[-1] = start, time.monotonic()
        self.counts["worker", "killed"] += 1

    def _sample(self) -> None:
        now = time.monotonic() - self._start
        status = Path(f"/proc/{self._survivor}/status").read_text()
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        self.held["memory"].append((now, int(lines["VmRSS"].split()[0]) / 1024))
        self.held["threads"].append((now, int(lines["Threads"])))
        self.held["descriptors"].append((now, len([*Path(f"/proc/{self._survivor}/fd").iterdir()])))

    def rows(self) -> list[Row]:
        whole = self._end - self._start
        return [
            row(
                f"{what} of the worker that lives on",
                [statistics.median(value for at, value in values if at >= 0.9 * whole)],
                [statistics.median(value for at, value in values if 0.1 * whole <= at < 0.2 * whole)],
                "MB" if what == "memory" else "",
                GROWTH,
            )
            for what, values in self.held.items()
        ]


def honest(error: Refusal, name: str) -> bool:
    """Returns whether a request may be refused so: the server is full, or the model was unloaded."""
    status, text = error.args
    return status in (503, "StatusCode.RESOURCE_EXHAUSTED") or (name == "churned" and "unload" in text)


def lives(process: int) -> bool:
    """Returns whether a process still has its sockets: a zombie has none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def workers(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--rate", type=float, default=20, help="requests per second of each client (default: %(default)s)"
    )
    parser.add_argument("--http2", action="store_true", help="one port for all clients")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "models"
        folder.mkdir()
        repository.make(folder)
        publish(folder, 1)
        rpc_port = 0 if arguments.http2 else free_port()
        flags = ("--grpc-port", str(rpc_port)) if rpc_port else ("--http2",)
        with serving(folder, 2, *flags, PRELOAD="*", REPOSITORY_POLL="2") as (port, process):
            soak = Soak(port, rpc_port or port, process, folder, 60 * arguments.minutes)
            soak.run(arguments.rate)
    for (what, outcome), count in sorted(soak.counts.items()):
        print(f"{what:14} {outcome:32} {count:9}")
    print(table(f"{arguments.minutes:g} minutes", soak.rows()))
    print(f"\n{len(soak.failures)} failures", *soak.failures[:50], sep="\n")
    sys.exit(bool(soak.failures))


if __name__ == "__main__":
    main()
