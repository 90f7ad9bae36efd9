"""What counting a tiny request, writing its line and looking at its key cost, against the same request without that.

And what a scrape costs, against the simplest code that writes the same samples.

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
from handler.edge.observe.exposition import written
from handler.edge.observe.facts import OTHER
from handler.edge.observe.facts import REASONS as FAULTS
from handler.edge.observe.families import FAMILIES
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
SCRAPED: Final = 300
REASONS: Final = sorted({OTHER, *FAULTS.values()})
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


def facts() -> dict[tuple[str, tuple[str, ...]], Any]:
    """Returns the facts of a server of many models, of which each has an inference."""
    numbers = ("success", "runs", "request_ns", "queue_ns", "input_ns", "infer_ns", "output_ns", "pending")
    found = {(name, (f"model-{model}", "1")): 12_345_678 for model in range(SCRAPED) for name in numbers}
    return found | {("failure", (f"model-{model}", "1", reason)): 1 for model in range(SCRAPED) for reason in REASONS}


def lines(found: dict[tuple[str, tuple[str, ...]], Any]) -> bytes:
    """Returns Triton's metrics in the simplest way: one f-string for each sample, nothing escaped."""
    texts = []
    for family in (each for each in FAMILIES if each.server == "triton"):
        texts.append(f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n")
        for (fact, values), number in found.items():
            if fact == family.fact:
                labels = ",".join(f'{key}="{values[at]}"' for key, at in zip(family.labels, family.shows, strict=True))
                texts.append(f"{family.name}{{{labels}}} {float(number * family.scale)}\n")
    return "".join(texts).encode()


def scraped(rounds: int) -> Row:
    """Returns the CPU time of a scrape of many models."""
    found, ways = facts(), (lambda found: written(found, ["triton"]), lines)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for index, way in enumerate(ways):
            begun = time.process_time_ns()
            way(found)
            taken[index].append((time.process_time_ns() - begun) / 1e6)
    return fastest(f"a scrape of {SCRAPED} models, CPU", *taken, "ms")


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
    found.append(scraped(10 if quick else 50))
    print(table("A request that is counted and logged, against one that is not", found))
    return found
