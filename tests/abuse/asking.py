"""Makes one inference of a model from n to y in the form of each protocol, and returns what became of it."""

from __future__ import annotations

import http.client
import json
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
import numpy as np

from tests.support.remote import Remote, question, raw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server import Server

SECONDS: Final = 60


class Told(NamedTuple):
    """What a client received. `status`: HTTP's, or the name of gRPC's code. `text`: the body, or the details."""

    status: Any
    text: str
    headers: dict[str, str] = {}  # noqa: RUF012 - of a tuple, and never changed


def v2(model: str, n: int) -> tuple[str, bytes]:
    """Returns the target and the body of a V2 request."""
    given = {"name": "n", "datatype": "INT64", "shape": [1], "data": [n]}
    return f"/v2/models/{model}/infer", json.dumps({"inputs": [given]}).encode()


def _v1(model: str, n: int) -> tuple[str, bytes]:
    return f"/v1/models/{model}:predict", json.dumps({"inputs": {"n": [n]}}).encode()


def _grps(model: str, n: int) -> tuple[str, bytes]:
    body = {
        "model": model,
        "gtensors": {"tensors": [{"name": "n", "dtype": "DT_INT64", "shape": [1], "flat_int64": [n]}]},
    }
    return "/grps/v1/infer/predict", json.dumps(body).encode()


def _connect(model: str, n: int) -> tuple[str, bytes]:
    given = {"name": "n", "datatype": "INT64", "shape": ["1"], "contents": {"int64Contents": [str(n)]}}
    return "/inference.GRPCInferenceService/ModelInfer", json.dumps({"modelName": model, "inputs": [given]}).encode()


def _own(model: str, n: int) -> tuple[str, bytes]:
    return f"/own/{model}", b"%d" % n


OVER_HTTP: Final[dict[str, Callable[[str, int], tuple[str, bytes]]]] = {
    "v2": v2, "v1": _v1, "grps": _grps, "connect": _connect,
}  # fmt: skip
CUSTOM: Final = OVER_HTTP | {"custom": _own}


def post(server: Server, target: str, body: bytes = b"", method: str = "POST", seconds: float = SECONDS) -> Told:
    """Sends one request over a new connection. Raises TimeoutError after so many seconds without an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)) as connection:
        connection.request(method, target, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return Told(answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()})


def ask(server: Server, model: str, n: int, protocol: str = "v2", seconds: float = SECONDS) -> Told:
    """Makes one inference. The client leaves after `seconds`."""
    if protocol != "grpc":
        return post(server, *CUSTOM[protocol](model, n), seconds=seconds)
    message = question(model, raw("n", "INT64", np.array([n])))
    with closing(Remote(server.rpc_netloc)) as remote:
        try:
            remote.ask("ModelInfer", message, timeout=seconds)
        except grpc.RpcError as error:
            return Told(error.code().name, error.details())
    return Told(200, "")


def leave(server: Server, model: str, n: int, protocol: str = "v2") -> Callable[[], None]:
    """Sends a request. Returns what closes its connection, without the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    target, body = CUSTOM[protocol](model, n)
    connection.request("POST", target, body, {"content-type": "application/json"})
    return connection.close


def entered(gate: Path, n: int) -> int:
    """Returns how many times the model `waits` has begun with this n."""
    return len(list(gate.glob(f"{n}.*")))


def failures(server: Server, model: str) -> int:
    """Returns how many inferences of the model failed, by its statistics."""
    with suppress(KeyError):
        stats = json.loads(post(server, f"/v2/models/{model}/versions/1/stats", method="GET").text)
        return int(stats["model_stats"][0]["inference_stats"]["fail"]["count"])
    return -1
