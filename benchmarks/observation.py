"""What counting a tiny request, writing its line and looking at its key cost, against the same request without that.

CPU time, in one process and without sockets, as the least of many rounds that take turns; and the p50 over one
connection, of two servers that take turns. The lines go nowhere, because the cost of a file or a terminal is not ours.
A client waits for less than the CPU time: a record ends, and its line is written, when the answer was sent.
"""

import asyncio
import hashlib
import os
import time
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import client
from benchmarks.measure import Row, fastest, interleaved, row, table
from benchmarks.server import uvicorn
from handler.edge.app import App
from handler.edge.observe.record import RECORD, Record
from handler.settings import Settings

MODELS: Final = Path(__file__).parents[1] / "models"
BODY: Final = b'{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,2,5]}]}'
PATH: Final = "/v2/models/half_plus_three/infer"
TIMES: Final = 200
BAR: Final = 1.06
BAR_KEYS: Final = 1.05
KEY: Final = "a-key-of-benchmarks"
KEYS: Final = {"DRAGOMAN_AUTH": "keys", "DRAGOMAN_KEYS": f"b sha256:{hashlib.sha256(KEY.encode()).hexdigest()} infer"}
ROUNDS: Final = 8
Message = dict[str, Any]


def scope() -> dict[str, Any]:
    """Returns the head of a tiny request, as uvicorn passes it."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    return {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


async def receive() -> Message:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(_: Any) -> None:
    return


async def bare(app: App) -> None:
    """Answers a request that nobody watches."""
    await app.serve(scope(), receive, send)


async def watched(app: App) -> None:
    await app(scope(), receive, send)


async def measured(app: App, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the microseconds of a request in each round: watched, and bare."""
    RECORD.set(Record("POST", "/", b"-"))
    ways = (watched, bare)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for index, way in enumerate(ways):
            begun = time.process_time_ns()
            for _ in range(TIMES):
                await way(app)
            taken[index].append((time.process_time_ns() - begun) / TIMES / 1e3)
    return taken


def main(*, quick: bool) -> list[Row]:
    """Returns rows for each form of the log."""
    environ = {"DRAGOMAN_REPOSITORY": str(MODELS)}
    on, off = {"DRAGOMAN_ACCESS_LOG": "true"}, {"DRAGOMAN_ACCESS_LOG": "false", "DRAGOMAN_METRICS": "off"}
    wire = client.request(PATH, BODY, {})
    found = []
    for form in ("text", "json"):
        app = App(Settings.from_env(environ | on | {"DRAGOMAN_LOG_FORMAT": form}))
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            ours, control = asyncio.run(measured(app, 30 if quick else 150))
            app.close()
        found.append(fastest(f"tiny, metrics and {form} access log, CPU", ours, control, "us"))
        with (
            uvicorn("handler.asgi:app", environ | on | {"DRAGOMAN_LOG_FORMAT": form}, quiet=True) as watched_port,
            uvicorn("handler.asgi:app", environ | off, quiet=True) as bare_port,
        ):
            ways = {"on": partial(client.latency, watched_port, wire, 2000)}
            ways["off"] = partial(client.latency, bare_port, wire, 2000)
            p50 = interleaved(ways, ROUNDS + 2)
        found.append(row(f"tiny, metrics and {form} access log, p50", p50["on"][2:], p50["off"][2:], "ms", BAR))
    wires = {"on": client.request(PATH, BODY, {"x-api-key": KEY}), "off": wire}
    with (
        uvicorn("handler.asgi:app", environ | off | KEYS, quiet=True) as keyed_port,
        uvicorn("handler.asgi:app", environ | off, quiet=True) as open_port,
    ):
        ways = {"on": partial(client.latency, keyed_port, wires["on"], 2000)}
        ways["off"] = partial(client.latency, open_port, wires["off"], 2000)
        p50 = interleaved(ways, ROUNDS + 2)
    found.append(row("tiny, with a key, p50", p50["on"][2:], p50["off"][2:], "ms", BAR_KEYS))
    print(table("A request that is counted and logged, against one that is not", found))
    return found
