"""Starts the product as a stranger would: in a separate process, with uvicorn, on a free port of the loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.ports import free_ports
from tests.support.wire import Wire

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 60
STOP_SECONDS: Final = 40
ATTEMPTS: Final = 3
UVICORN: Final = ("--log-level", "warning", "--http", "handler.edge.server.protocol:BoundedHttp", "--ws", "none")


_RUNNING: Final[dict[subprocess.Popen[bytes], Path]] = {}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    rpc_port: int = 0

    @property
    def netloc(self) -> str:
        """Returns host and port, in tritonclient's form."""
        return f"{HOST}:{self.port}"

    @property
    def rpc_netloc(self) -> str:
        """Returns host and port of gRPC."""
        return f"{HOST}:{self.rpc_port}"

    def wire(self) -> Wire:
        return Wire(HOST, self.port)

    def runs(self) -> bool:
        """Returns whether the process is still the one that was started."""
        return self.process.poll() is None


@contextmanager
def serve(log: Path, **settings: str) -> Iterator[Server]:
    """Runs a server with only these DRAGOMAN_* settings, and ends it."""

    def arguments(port: int) -> list[str]:
        return ["-m", "uvicorn", "handler.asgi:app", "--host", HOST, "--port", str(port), *UVICORN]

    with running(arguments, 1, log, settings) as (process, (port,)):
        yield Server(port, process, log)


@contextmanager
def serve_http2(log: Path, **settings: str) -> Iterator[Server]:
    """Runs a server that has HTTP and gRPC on one port, with only these settings, and ends it."""

    def arguments(port: int) -> list[str]:
        return ["-m", "dragoman", "serve", "--host", HOST, "--port", str(port), "--http2"]

    with running(arguments, 1, log, settings) as (process, (port,)):
        yield Server(port, process, log, port)


@contextmanager
def serve_rpc(log: Path, **settings: str) -> Iterator[Server]:
    """Runs a server of HTTP and gRPC by the command line, with only these settings, and ends it."""
    if os.environ.get("TEST_HTTP2"):  # see CONTRIBUTING.md
        with serve_http2(log, **settings) as server:
            yield server
        return

    def arguments(port: int, rpc_port: int) -> list[str]:
        return ["-m", "dragoman", "serve", "--host", HOST, "--port", str(port), "--grpc-port", str(rpc_port)]

    with running(arguments, 2, log, settings) as (process, (port, rpc_port)):
        yield Server(port, process, log, rpc_port)


def nothing(*_: int) -> Mapping[str, str]:
    """Returns no variables for any ports."""
    return {}


@contextmanager
def running(
    arguments: Callable[..., list[str]],
    count: int,
    log: Path,
    settings: Mapping[str, str],
    more: Callable[..., Mapping[str, str]] = nothing,
    folder: Path = ROOT,
) -> Iterator[tuple[subprocess.Popen[bytes], Sequence[int]]]:
    """Runs Python in the folder with the arguments for so many ports, and yields when it answers on all of them.

    `more`: further variables for the ports, under their whole names.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DRAGOMAN_", "AWS_", "S3_"))}
    environment = inherited | {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    process, ports = _started(arguments, count, log, environment | {"PYTHONFAULTHANDLER": "1"}, more, folder)
    _RUNNING[process] = log
    try:
        yield process, ports
    finally:
        del _RUNNING[process]
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # uvicorn waits for requests that never end
            process.kill()
            process.wait()
            raise


def stacks() -> list[str]:
    """Ends the servers of this process, each with the stacks of its threads at the end of its log. Returns the logs."""
    logs = []
    for process, log in _RUNNING.items():
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        logs.append(log.read_text(errors="replace")[-20_000:])
    return logs


def _started(
    arguments: Callable[..., list[str]],
    count: int,
    log: Path,
    environment: Mapping[str, str],
    more: Callable[..., Mapping[str, str]],
    folder: Path,
) -> tuple[subprocess.Popen[bytes], Sequence[int]]:
    for _ in range(ATTEMPTS):
        ports = free_ports(count)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments(*ports)],
                cwd=folder,
                env={**environment, **more(*ports)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if _answers(process, ports):
            return process, ports
        process.kill()
        process.wait()
    raise RuntimeError("the server did not start:\n" + log.read_text(errors="replace")[-4000:])


def _answers(process: subprocess.Popen[bytes], ports: Sequence[int]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            for port in ports:
                socket.create_connection((HOST, port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
