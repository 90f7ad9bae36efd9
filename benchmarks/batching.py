"""64 clients with one request at a time each, of one row, to models with batching and to the same models without it.

Both are on the same server and take turns. Every round has its throughput and its p99; the best rounds are compared,
for on two cores the clients, and whatever else runs, disturb most of them. A single client is measured the same way.
"""

import json
import selectors
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import batching_models as models
from benchmarks.client import Connection, latency, request
from benchmarks.measure import Row, fastest, interleaved, table
from benchmarks.server import uvicorn

CLIENTS: Final = 64
DELAY_MS: Final = 5
BATCHING: Final = {"batching": {"max_batch_size": 32, "max_delay_ms": DELAY_MS}}
GAIN: Final = 0.5
"""The bar of a model that gains: half of the time for an answer."""
TOKENS: Final = (4, 32)
"""In a request to an encoder. With 4 it mostly waits for its weights, which a batch reads once; with 32 it computes."""


def make(folder: Path) -> dict[str, bytes]:
    """Writes the models, each with batching (`-on`) and without (`-off`). Returns a request's body for each name."""
    random = np.random.default_rng(1)
    bodies = {}
    for side in ("on", "off"):
        for tokens in TOKENS:
            models.encoder(folder / f"encoder-{tokens}-{side}" / "1" / "model.onnx", tokens)
            bodies[f"encoder-{tokens}"] = _body("ids", "INT64", random.integers(0, models.WORDS, (1, tokens)))
        models.trees(folder / f"trees-{side}" / "1" / "model.onnx")
        bodies["trees"] = _body("x", "FP32", random.standard_normal((1, models.FEATURES)).round(6))
    for model in folder.glob("*-on"):
        (model / "model-settings.json").write_text(json.dumps(BATCHING))
    return bodies


def _body(name: str, datatype: str, array: Any) -> bytes:
    tensor = {"name": name, "datatype": datatype, "shape": array.shape, "data": array.reshape(-1).tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


def crowd(port: int, wire: bytes, seconds: float) -> tuple[int, list[float]]:
    """Returns the number of good answers to 64 clients, which ask again at once, and the seconds of every answer.

    Without batching, a request may wait for longer than DRAGOMAN_QUEUE_TIME, and is refused.
    """
    taken: list[float] = []
    good = 0
    with selectors.DefaultSelector() as selector:
        asked: dict[Connection, float] = {}
        for _ in range(CLIENTS):
            client = Connection(port)
            selector.register(client.socket, selectors.EVENT_READ, client)
            asked[client] = time.perf_counter()
            client.socket.sendall(wire)
        end = time.perf_counter() + seconds
        while asked:
            for key, _ in selector.select(30):
                if key.data.receive():
                    now = time.perf_counter()
                    good += key.data.head.startswith(b"HTTP/1.1 200 ")
                    taken.append(now - asked.pop(key.data))
                    if now < end:
                        asked[key.data] = now
                        key.data.socket.sendall(wire)
                    else:
                        selector.unregister(key.data.socket)
                        key.data.close()
    return good, taken


def measure(port: int, name: str, body: bytes, rounds: int, seconds: float) -> list[Row]:
    """Returns the rows of one model."""
    wires = {side: request(f"/v2/models/{name}-{side}/infer", body) for side in ("on", "off")}
    tails: dict[str, list[float]] = {"on": [], "off": []}

    def many(side: str) -> float:
        begun = time.perf_counter()
        good, taken = crowd(port, wires[side], seconds)
        tails[side].append(float(np.percentile(taken, 99)) * 1e3)
        return (time.perf_counter() - begun) / good * 1e3

    for wire in wires.values():
        latency(port, wire, 30)  # loads it, and lets it prove itself quick if it is
    times = interleaved({side: partial(many, side) for side in wires}, rounds)
    single = interleaved({side: partial(latency, port, wires[side], 100) for side in wires}, rounds)
    bar = GAIN if name == f"encoder-{TOKENS[0]}" else None
    late = [each + DELAY_MS for each in tails["off"]]
    alone = [each + DELAY_MS for each in single["off"]]
    return [
        fastest(f"{name}, {CLIENTS} clients: time for an answer, on / off", times["on"], times["off"], "ms", bar),
        fastest(f"{name}, {CLIENTS} clients: p99, on / off and the delay", tails["on"], late, "ms", 1.0),
        fastest(f"{name}, one client: p50, on / off", single["on"], single["off"], "ms"),
        fastest(f"{name}, one client: p50, on / off and the delay", single["on"], alone, "ms", 1.0),
    ]


def main(*, quick: bool) -> list[Row]:
    rounds, seconds = (2, 3.0) if quick else (5, 4.0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bodies = make(Path(folder))
        with uvicorn("handler.asgi:app", {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_QUEUE": "256"}) as port:
            for name, body in bodies.items():
                rows += measure(port, name, body, rounds, seconds)
    print(table("Batching", rows))
    return rows


if __name__ == "__main__":
    main(quick=True)
