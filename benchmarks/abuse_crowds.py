"""What many anonymous clients cost a server at once: memory under large bodies, and the work of clients that left."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.client import Connection, request
from benchmarks.measure import Row
from benchmarks.overload import INFER

CLIENTS: Final = 50
BODY: Final = 64_000_000
BUDGET: Final = 512
"""DRAGOMAN_BYTES_IN_FLIGHT, in MB."""
BESIDE: Final = 1.25
"""A server may have this much more than its budget: sockets' buffers, and what the allocator keeps."""
GONE: Final = 300
WAIT_BAR: Final = 0.5
"""Seconds that another client may wait once the clients have gone; the work of all of them takes ten times as long."""
SETTINGS: Final = {
    "DRAGOMAN_BYTES_IN_FLIGHT": f"{BUDGET}MB",
    "DRAGOMAN_ALLOW_CODE": "true",
    "DRAGOMAN_THREADS": "2",
    "DRAGOMAN_MAX_BODY_BYTES": str(BODY + 1000),
}
SECONDS: Final = 120


def _large() -> bytes:
    """Returns an inference with BODY bytes of binary data."""
    given = {"name": "x", "shape": [BODY // 16, 4], "datatype": "FP32", "parameters": {"binary_data_size": BODY}}
    head = json.dumps({"inputs": [given], "outputs": [{"name": "z"}]}).encode()
    headers = {"inference-header-content-length": str(len(head)), "connection": "close"}
    return request("/v2/models/tiny/infer", head + bytes(BODY), headers)


def _send(port: int, message: bytes) -> socket.socket | None:
    """Returns the connection that has sent it, None for one that the server has refused before."""
    connection = socket.create_connection(("127.0.0.1", port), SECONDS)
    try:
        connection.sendall(message)
    except OSError:
        connection.close()
        return None
    return connection


def _memory(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


@contextmanager
def _risen(pid: int) -> Iterator[list[float]]:
    """Yields a list that gets the MB by which memory was larger at its peak than before."""
    found: list[float] = []
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = _memory(pid, "VmRSS")
    yield found
    found.append(_memory(pid, "VmHWM") - before)


def stalled(pid: int, port: int) -> float:
    """Returns the MB of uploads that stop before their last byte."""
    message = _large()[:-1]
    with _risen(pid) as risen, ExitStack() as opened, ThreadPoolExecutor(CLIENTS) as clients:
        for connection in clients.map(partial(_send, port), [message] * CLIENTS):
            if connection is not None:
                opened.enter_context(connection)
    return risen[0]


def complete(pid: int, port: int) -> tuple[float, float]:
    """Returns the MB of as many whole requests, and those that stay a moment later."""
    message, before = _large(), _memory(pid, "VmRSS")

    def answered(_: int) -> None:
        connection = _send(port, message)
        with suppress(OSError):
            while connection is not None and connection.recv(65536):
                pass

    with _risen(pid) as risen, ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(answered, range(CLIENTS)))
    deadline = time.monotonic() + 10
    while (kept := _memory(pid, "VmRSS") - before) > BUDGET / 8 and time.monotonic() < deadline:
        time.sleep(0.1)
    return risen[0], kept


def gone(port: int) -> float:
    """Returns the seconds that another client waits after many have sent a request of 30 ms each, and left."""
    Connection(port).ask(INFER)
    for connection in [_send(port, INFER) for _ in range(GONE)]:
        if connection is not None:
            connection.close()
    other, begun = Connection(port), time.perf_counter()
    other.socket.settimeout(SECONDS)
    other.ask(INFER)
    return time.perf_counter() - begun


def rows(pid: int, port: int) -> list[Row]:
    """Returns the figures of a server with SETTINGS."""
    wait = gone(port)
    large, kept = complete(pid, port)
    stopped = stalled(pid, port)
    what = f"abuse: {CLIENTS} bodies of 64 MB"
    return [
        Row(f"{what}, stalled: memory / budget", stopped, BUDGET, "MB", stopped / BUDGET, BESIDE),
        Row(f"{what}, complete: memory / budget", large, BUDGET, "MB", large / BUDGET, BESIDE),
        Row(f"{what}: what stays / budget", kept, BUDGET, "MB", kept / BUDGET, 0.25),
        Row(f"abuse: an answer after {GONE} clients left", wait, WAIT_BAR, "s", wait / WAIT_BAR, 1.0),
    ]
