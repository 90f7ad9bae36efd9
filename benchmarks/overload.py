"""Goodput under ten times as many requests as the server can answer, from clients that leave when they lose patience.

The control is the server's own capacity, measured in the same run: as many clients as keep its threads busy, each with
one request at a time. Requests come at fixed times, however long answers take (an open loop), over a connection each.
An answer counts if it is 200 and comes before its client leaves. Health is asked meanwhile, twenty times a second. The
model sleeps, so that client and server do not take CPU from each other.
"""

import asyncio
import json
import socket
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measure import Row, table
from benchmarks.server import uvicorn

SERVICE_SECONDS: Final = 0.03
THREADS: Final = 2
FACTOR: Final = 10
PATIENCE: Final = (5.0, 1.0)
"""Seconds after which a client leaves."""
HEALTH_SECONDS: Final = 0.05
MODEL: Final = f"""
import time
import numpy as np
metadata = {{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [1]}}],
             "outputs": [{{"name": "y", "datatype": "FP32", "shape": [1]}}]}}
def predict(inputs, parameters):
    time.sleep({SERVICE_SECONDS})
    return {{"y": inputs["x"]}}
"""
BODY: Final = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
HEAD: Final = "POST /v2/models/slow/infer HTTP/1.1\r\nhost: b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
INFER: Final = (HEAD % len(BODY)).encode() + BODY
HEALTH: Final = b"GET /v2/health/live HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n"


async def ask(port: int, request: bytes, patience: float = 60.0) -> int:
    """Returns the status of one request, 0 if its client has left before."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                return int((await reader.read())[9:12] or 0)
            finally:
                writer.close()
    return 0


def healths(port: int, seconds: float) -> list[float]:
    """Returns the seconds of each answer about health, twenty a second, for so long."""
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(HEALTH)
            connection.recv(4096)
        taken.append(time.perf_counter() - begun)
        time.sleep(HEALTH_SECONDS)
    return taken


async def capacity(port: int, seconds: float) -> float:
    """Returns answers per second to as many clients as there are threads, and two more."""
    end, answers = time.perf_counter() + seconds, 0

    async def client() -> None:
        nonlocal answers
        while time.perf_counter() < end:
            good = await ask(port, INFER) == 200
            answers += good

    await asyncio.gather(*(client() for _ in range(THREADS + 2)))
    return answers / seconds


async def goodput(port: int, rate: float, seconds: float, patience: float) -> tuple[float, list[float]]:
    """Returns good answers per second at that rate of requests, and the seconds of each answer about health."""
    loop, asked = asyncio.get_running_loop(), list[asyncio.Task[int]]()
    with ProcessPoolExecutor(1) as beside:  # a thread would wait for this one
        watch = loop.run_in_executor(beside, healths, port, seconds)
        start = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            asked.append(loop.create_task(ask(port, INFER, patience)))
        statuses = await asyncio.gather(*asked)
        good = statuses.count(200) / (time.perf_counter() - start)
        return good, await watch


async def measure(port: int, seconds: float) -> list[Row]:
    await ask(port, INFER)
    most = await capacity(port, seconds / 2)
    rows = []
    for patience in PATIENCE:
        good, waits = await goodput(port, FACTOR * most, seconds, patience)
        name = f"{FACTOR}x overload, clients leave after {patience:g} s"
        rows.append(Row(f"{name}: capacity / goodput", most, good, "per s", most / max(good, 0.001), 1.25))
        for share in (50, 99):
            taken = float(np.percentile(waits, share)) * 1e3
            bar = 1.0 if share == 99 else None
            rows.append(Row(f"{name}: health p{share} / 50 ms", taken, 50.0, "ms", taken / 50, bar))
    return rows


def main(*, quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "slow", "1", "model.py")
        model.parent.mkdir(parents=True)
        model.write_text(MODEL)
        settings = {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_ALLOW_CODE": "true", "DRAGOMAN_THREADS": str(THREADS)}
        with uvicorn("handler.asgi:app", settings) as port:
            rows = asyncio.run(measure(port, 8.0 if quick else 20.0))
    print(table("Overload", rows))
    return rows


if __name__ == "__main__":
    main(quick=True)
