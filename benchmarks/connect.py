"""Remote calls over plain HTTP against REST: the same inference on the same server, connection and client.

Connect with protobuf and gRPC-Web are compared with REST's binary tensors, Connect with JSON with REST's JSON.
"""

import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from google.protobuf import json_format

from benchmarks import client, repository
from benchmarks.measure import Row, interleaved, row, table
from benchmarks.per_request import IMAGE, Case, binary_case, json_case
from benchmarks.rpc import METHOD
from benchmarks.rpc import Case as Message
from benchmarks.server import uvicorn
from core.schema.open_inference import ModelInferRequest

BAR = 1.2
MODELS = (("image", IMAGE), ("echo", IMAGE), ("tiny", (1, 4)))
TIMES = dict(zip(MODELS, (300, 300, 1500), strict=True))


def proto(message: bytes) -> bytes:
    return client.request(METHOD, message, {"Content-Type": "application/proto"})


def web(message: bytes) -> bytes:
    envelope = struct.pack(">BI", 0, len(message)) + message
    return client.request(METHOD, envelope, {"Content-Type": "application/grpc-web+proto"})


def typed(message: bytes) -> bytes:
    """Returns the request with the same numbers as text."""
    request = ModelInferRequest.FromString(message)
    raw = request.raw_input_contents.pop()
    request.inputs[0].contents.fp32_contents.extend(struct.unpack(f"<{len(raw) // 4}f", raw))
    body = json_format.MessageToJson(request, indent=None).encode()
    return client.request(METHOD, body, {"Content-Type": "application/json"})


class Pair(NamedTuple):
    """A call, and the same request over REST."""

    name: str
    wire: bytes
    rest: Case
    bar: float | None = None


def measured(pair: Pair, port: int, rounds: int) -> Row:
    wires = {"ours": pair.wire, "control": pair.rest.wire}
    for wire in wires.values():
        connection = client.Connection(port)
        head, body = connection.ask(wire)
        connection.close()
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{pair.name}: {head!r} {body[:300]!r}")
    taken = interleaved(
        {side: partial(client.latency, port, wire, pair.rest.times) for side, wire in wires.items()}, rounds
    )
    return row(f"{pair.name}, p50", taken["ours"], taken["control"], "ms", pair.bar)


@contextmanager
def server() -> Iterator[int]:
    """Yields the port of ours, with the models of `repository` loaded."""
    with tempfile.TemporaryDirectory() as folder:
        repository.make(Path(folder))
        environ = {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_PRELOAD": "*", "DRAGOMAN_LOG_LEVEL": "WARNING"}
        with uvicorn("handler.asgi:app", environ) as port:
            yield port


def main(*, quick: bool = False) -> list[Row]:
    rounds = 3 if quick else 9
    image, echo, tiny = (Message(model, shape, 0).message for model, shape in MODELS)
    of_image, of_echo, of_tiny = (binary_case(model, shape, 0, times) for (model, shape), times in TIMES.items())
    pairs = (
        Pair("image over Connect", proto(image), of_image, BAR),
        Pair("echo over Connect", proto(echo), of_echo, BAR),
        Pair("image over gRPC-Web", web(image), of_image),
        Pair("tiny over Connect", proto(tiny), of_tiny),
        Pair("tiny over gRPC-Web", web(tiny), of_tiny),
        Pair("image as JSON over Connect", typed(image), json_case("image", IMAGE, 0, 40)),
    )
    with server() as port:
        rows = [measured(pair, port, rounds) for pair in pairs]
    print(table("Connect and gRPC-Web against REST with the same tensors, on the same uvicorn", rows))
    return rows


if __name__ == "__main__":
    main()
