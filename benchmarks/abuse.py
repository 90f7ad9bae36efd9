"""What one anonymous request costs a server: CPU per MB that was sent, how long health waits, the peak of memory.

    python -m benchmarks abuse
    python -m benchmarks.abuse --checkout ../older [--only TEXT] [--size MB]

Each case of `abuse_cases.CASES` goes to a server in its own process. It may be of another checkout: only HTTP
and gRPC are needed. The server's CPU is what the kernel charged it, user and system. The bytes of gzip count inflated.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import abuse_crowds, overload
from benchmarks.abuse_cases import CASES, Case
from benchmarks.client import Connection, request
from benchmarks.measure import Row, table
from benchmarks.server import ROOT, free_port, wait

MB: Final = 1e6
CPU_BAR: Final = 0.5
"""Seconds of the server's CPU per MB that was sent."""
STALL_BAR: Final = 100.0
"""Milliseconds that health may wait while one request of at most 5 MB is worked on."""
SERVE: Final = "import sys; from handler.cli import main; sys.exit(main())"
PLATFORM: Final = {"DRAGOMAN_PLATFORM": "mlflow", "DRAGOMAN_DEFAULT_MODEL": "columns"}
"""For the routes of a platform, too."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
LIVE: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
INTERVAL: Final = 0.02
MOST_SECONDS: Final = 120
LARGEST: Final = 5_000_000


class Server(NamedTuple):
    """A server that runs. `port`: of HTTP; `rpc`: of gRPC."""

    pid: int
    port: int
    rpc: int

    def cpu(self) -> float:
        """Returns the seconds that its process has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak(self) -> float:
        """Returns the most memory since the last `forget`, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def forget(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


class Figure(NamedTuple):
    """What one request did. `sent`, `counted`: bytes on the wire, and inflated. `stall`: milliseconds."""

    case: Case
    sent: int
    counted: int
    status: str
    cpu: float
    stall: float
    rise: float

    @property
    def rate(self) -> float:
        """Seconds of CPU per MB; of a body below 100 kB as if it had 100 kB, as any request costs something."""
        return self.cpu / (max(self.counted, 100_000) / MB)

    @property
    def is_good(self) -> bool:
        return (self.case.tokenizes or self.rate <= CPU_BAR) and self.stall <= STALL_BAR


@contextmanager
def serving(checkout: Path, settings: Mapping[str, str] = PLATFORM) -> Iterator[Server]:
    """Yields a server of the checkout with the benchmarks' models."""
    from benchmarks import abuse_models  # noqa: PLC0415 - onnx

    with tempfile.TemporaryDirectory() as folder:
        abuse_models.make(Path(folder))
        port, rpc = free_port(), free_port()
        command = [sys.executable, "-c", SERVE, "serve", "--port", str(port), "--grpc-port", str(rpc)]
        sources = "".join(path.read_text("utf-8") for path in (checkout / "handler").rglob("settings*/*.py"))
        sources += "".join(path.read_text("utf-8") for path in (checkout / "handler").glob("settings.py"))
        known = {name: value for name, value in settings.items() if name in sources}  # an older one refuses others
        environ = {**os.environ, **known, "PYTHONPATH": str(checkout), "DRAGOMAN_REPOSITORY": folder}
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=checkout, env=environ, stdout=quiet, stderr=quiet)
        try:
            wait(process, port)
            wait(process, rpc)
            yield Server(process.pid, port, rpc)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(30)


class Health(threading.Thread):
    """Asks for health until it is stopped. `longest`: the longest wait for an answer, in seconds."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self._connection = Connection(port)
        self._connection.socket.settimeout(MOST_SECONDS)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            began = time.perf_counter()
            self._connection.ask(LIVE)
            self.longest = max(self.longest, time.perf_counter() - began)

    def stop(self) -> float:
        self._ended.set()
        self.join(MOST_SECONDS)
        self._connection.close()
        return self.longest


def measured(server: Server, case: Case, size: int) -> Figure:
    """Sends the case once, with a body of `size` bytes before it is zipped."""
    body = case.body(size)
    ask = _rpc(server, case, body) if case.rpc else _http(server, case, body)
    server.forget()
    before, resting = server.cpu(), server.peak()
    health = Health(server.port)
    health.start()
    status = ask()
    stall = health.stop()
    cpu = server.cpu() - before
    counted = size if case.zipped else len(body)
    return Figure(case, len(body), counted, status, cpu, stall * 1e3, server.peak() - resting)


def _http(server: Server, case: Case, body: bytes) -> Any:
    def ask() -> str:
        connection = Connection(server.port)
        connection.socket.settimeout(MOST_SECONDS)
        try:
            return connection.ask(request(case.path, body, case.head()))[0].split(maxsplit=2)[1].decode()
        except (OSError, ValueError) as error:  # a stream has no length
            return "200" if isinstance(error, ValueError) else type(error).__name__
        finally:
            connection.close()

    return (
        (lambda: _drained(server, case, body))
        if "connect+" in str(case.headers) or "web+" in str(case.headers)
        else ask
    )


def _drained(server: Server, case: Case, body: bytes) -> str:
    """Returns the status of an answer that may be a stream: read to the end of its chunks."""
    import http.client  # noqa: PLC0415 - for the few answers without a length

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=MOST_SECONDS)
    try:
        connection.request("POST", case.path, body, case.headers)
        answer = connection.getresponse()
        answer.read()
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()
    return str(answer.status)


def _rpc(server: Server, case: Case, body: bytes) -> Any:
    import grpc  # noqa: PLC0415 - for gRPC's cases

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(f"127.0.0.1:{server.rpc}", options)
    grpc.channel_ready_future(channel).result(10)

    def ask() -> str:
        try:
            if case.frames:
                call = channel.stream_stream(case.path)
                deadline = MOST_SECONDS
                list(call(iter([b""] * (len(body) // 5)), timeout=deadline))
            else:
                channel.unary_unary(case.path)(body, timeout=MOST_SECONDS)
        except grpc.RpcError as error:
            return str(error.code().name)
        finally:
            channel.close()
        return "OK"

    return ask


def _least(server: Server, case: Case, size: int) -> Figure:
    """Measures a case beyond a bar up to three times: what else the machine does can only add to a figure."""
    figure = measured(server, case, size)
    for _ in range(2):
        if figure.is_good:
            break
        again = measured(server, case, size)
        figure = figure._replace(cpu=min(figure.cpu, again.cpu), stall=min(figure.stall, again.stall))
    return figure


def _line(figure: Figure) -> str:
    case = figure.case
    mark = "" if figure.is_good else "  <--"
    sizes = f"{figure.sent / MB:8.3f} {figure.counted / MB:8.3f}"
    costs = f"{figure.cpu:8.2f} {figure.rate:8.2f} {figure.stall:8.0f} {figure.rise:8.0f}"
    return f"{case.dialect:8} {case.name:34} {sizes} {figure.status:>18} {costs}{mark}"


def run(checkout: Path, sizes: tuple[int, ...], only: str = "") -> list[Figure]:
    """Prints a line for each case and size, and returns the figures. A server that does not answer is replaced."""
    heads = ("MB sent", "inflated", "status", "CPU s", "s per MB", "stall ms", "+RSS MB")
    print("\n" + " " * 43, *(f"{head:>{8 if head != 'status' else 18}}" for head in heads))
    figures: list[Figure] = []
    cases = [case for case in CASES if only in f"{case.dialect} {case.name}"]
    for group in [cases[start : start + 12] for start in range(0, len(cases), 12)]:
        with serving(checkout) as server:
            for case in group:
                for size in sizes:
                    with suppress(OSError, StopIteration):
                        figures.append(_least(server, case, size))
                        print(_line(figures[-1]), flush=True)
    return figures


def crowds(checkout: Path) -> list[Row]:
    with serving(checkout, abuse_crowds.SETTINGS) as server:
        return abuse_crowds.rows(server.pid, server.port)


def tokenized(figure: Figure) -> Row:
    """Compares a request of many texts with the tokenizer alone, for the same texts."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - an extra, for this row alone

    from benchmarks import abuse_models  # noqa: PLC0415 - onnx

    tokenizer, texts = Tokenizer.from_str(json.dumps(abuse_models.TOKENIZER)), json.loads(figure.case.body(figure.sent))
    began = time.process_time()
    tokenizer.encode_batch(texts["text"])
    alone = (time.process_time() - began) / (figure.counted / MB)
    name = f"abuse: CPU s per MB, {figure.case.name} / the tokenizer alone"
    return Row(name, figure.rate, alone, "s/MB", figure.rate / alone)


def main(*, quick: bool = False) -> list[Row]:
    """Measures this checkout. Returns the worst of either figure beside its bar."""
    figures = run(ROOT, (LARGEST,) if quick else (200_000, LARGEST))
    stalls = [figure for figure in figures if figure.sent <= LARGEST * 1.01]
    worst = max((figure for figure in figures if not figure.case.tokenizes), key=lambda figure: figure.rate)
    accepted = [figure for figure in figures if figure.case.tokenizes and figure.status == "200"]
    longest = max(stalls, key=lambda figure: figure.stall)
    middle = statistics.median(figure.rate for figure in figures)
    return [
        *crowds(ROOT),
        *overload.main(quick=quick),
        Row(f"abuse: CPU s per MB, {worst.case.name}", worst.rate, middle, "s/MB", worst.rate, CPU_BAR),
        *map(tokenized, accepted),
        Row(f"abuse: stall, {longest.case.name}", longest.stall, STALL_BAR, "ms", longest.stall / STALL_BAR, 1.0),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the server to measure; default: this one")
    parser.add_argument("--only", default="", help="the cases whose dialect and name have this text")
    parser.add_argument("--size", type=float, nargs="*", default=[LARGEST / MB], help="MB of a body; default: 5")
    parser.add_argument("--crowds", action="store_true", help="many clients at once, and no cases")
    given = parser.parse_args()
    if given.crowds:
        print(table("Crowds", crowds(given.checkout.resolve())))
        sys.exit()
    run(given.checkout.resolve(), tuple(int(size * MB) for size in given.size), given.only)
