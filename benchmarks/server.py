"""Runs a server in its own process for the time of a benchmark."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


OURS = "handler.edge.server.protocol:BoundedHttp"
"""The protocol with which `dragoman serve` runs uvicorn."""


@contextmanager
def uvicorn(
    app: str, environ: Mapping[str, str] | None = None, *, http: str = "httptools", quiet: bool = False
) -> Iterator[int]:
    """Yields the port of `app` under uvicorn; see `process`."""
    with process(app, environ, http=http, quiet=quiet) as (_, port):
        yield port


@contextmanager
def process(
    app: str, environ: Mapping[str, str] | None = None, *, http: str = "httptools", quiet: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yields the process and the port of `app` under uvicorn with uvloop, without an access log of uvicorn's.

    `http`: uvicorn's protocol, or OURS. `quiet`: what it writes goes nowhere.
    """
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--loop", "uvloop", "--http", http]
    command += ["--log-level", "warning", "--no-access-log"]
    output = subprocess.DEVNULL if quiet else None
    started = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(environ or {})}, stderr=output)
    try:
        wait(started, port)
        yield started, port
    finally:
        started.terminate()
        started.wait(30)


def wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError("the server did not start within 30 s")
