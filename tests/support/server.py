"""Starts the product as a stranger would: its own process, uvicorn, a free port on the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.ports import free_ports
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 30
STOP_SECONDS: Final = 20
ATTEMPTS: Final = 3
COMMAND: Final = "import sys; from handler.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    rpc_port: int = 0

    @property
    def netloc(self) -> str:
        """Host and port, as tritonclient wants them."""
        return f"{HOST}:{self.port}"

    @property
    def rpc_netloc(self) -> str:
        """Host and port of gRPC."""
        return f"{HOST}:{self.rpc_port}"

    def wire(self) -> Wire:
        """A new connection."""
        return Wire(HOST, self.port)

    def runs(self) -> bool:
        """Whether the process still is the one that was started."""
        return self.process.poll() is None


@contextmanager
def serve(log: Path, **settings: str) -> Iterator[Server]:
    """Run a server with these DRAGOMAN_* settings only, and end it."""

    def arguments(port: int) -> list[str]:
        return ["-m", "uvicorn", "handler.asgi:app", "--host", HOST, "--port", str(port), "--log-level", "warning"]

    with running(arguments, 1, log, settings) as (process, (port,)):
        yield Server(port, process, log)


@contextmanager
def serve_rpc(log: Path, **settings: str) -> Iterator[Server]:
    """Runs a server of HTTP and gRPC by the command line, with these settings only, and ends it."""

    def arguments(port: int, rpc_port: int) -> list[str]:
        return ["-c", COMMAND, "serve", "--host", HOST, "--port", str(port), "--grpc-port", str(rpc_port)]

    with running(arguments, 2, log, settings) as (process, (port, rpc_port)):
        yield Server(port, process, log, rpc_port)


@contextmanager
def running(
    arguments: Callable[..., list[str]], count: int, log: Path, settings: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Sequence[int]]]:
    """Python with the arguments for so many ports, from when it answers on all of them."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DRAGOMAN_", "AWS_", "S3_"))}
    environment = inherited | {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    process, ports = _started(arguments, count, log, environment)
    try:
        yield process, ports
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # uvicorn waits for requests that never end
            process.kill()
            process.wait()
            raise


def _started(
    arguments: Callable[..., list[str]], count: int, log: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Sequence[int]]:
    for _ in range(ATTEMPTS):
        ports = free_ports(count)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments(*ports)],
                cwd=ROOT,
                env=environment,
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
