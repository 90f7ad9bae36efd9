"""Clients of each protocol for `benchmarks.soak`: each asks once, with a number of its own, and checks the answer."""

import json
from collections.abc import Callable
from typing import Any, Final

import grpc
import numpy as np

from benchmarks.client import Connection, request
from core.schema.open_inference import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse

REQUESTS_PER_CONNECTION: Final = 50
JSON: Final = {"content-type": "application/json"}
INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
STREAM: Final = "/inference.GRPCInferenceService/ModelStreamInfer"
IN_A_STREAM: Final = 3
LOST: Final = (ConnectionError, TimeoutError)
ONE: Final = np.random.default_rng(0).standard_normal(4).astype(np.float32)
"""What the model "tiny" of `benchmarks.repository` adds."""


class Refusal(Exception):
    """The server refused a request: the status, and the text."""


class Http:
    """One connection at a time, replaced after REQUESTS_PER_CONNECTION."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left = 0
        self._connection: Connection | None = None

    def __call__(self, path: str, body: bytes, **headers: str) -> tuple[bytes, bytes]:
        """Returns the head and the body of a good answer."""
        if self._connection is None or not self._left:
            self.close()
            self._connection, self._left = Connection(self._port), REQUESTS_PER_CONNECTION
        self._left -= 1
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            head, answer = self._connection.ask(request(path, body, {**JSON, **named}))
        except LOST:
            self.close()
            raise
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refusal(int(head.split()[1]), answer[:200].decode(errors="replace"))
        return head, answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Rpc:
    """One channel at a time, of a connection of its own, replaced after REQUESTS_PER_CONNECTION calls."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left = 0
        self._channel: grpc.Channel | None = None

    def __call__(self, message: bytes, *, stream: bool = False) -> list[bytes]:
        """Returns the answers: one, or those of a stream of IN_A_STREAM such messages."""
        if self._channel is None or not self._left:
            self.close()
            alone = [("grpc.use_local_subchannel_pool", 1)]
            self._channel, self._left = grpc.insecure_channel(f"127.0.0.1:{self._port}", alone), REQUESTS_PER_CONNECTION
        self._left -= 1
        try:
            if stream:
                return list(self._channel.stream_stream(STREAM)(iter([message] * IN_A_STREAM), timeout=60))
            return [self._channel.unary_unary(INFER)(message, timeout=60)]
        except grpc.RpcError as error:
            self.close()
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ConnectionError(str(error.details())) from error
            raise Refusal(str(error.code()), str(error.details())[:200]) from error

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def same(found: Any, expected: Any) -> None:
    if not np.array_equal(np.asarray(found, np.float32).reshape(-1), np.asarray(expected, np.float32).reshape(-1)):
        raise AssertionError(f"answered {str(found)[:200]}, expected {str(expected)[:200]}")


def tensor(number: float, size: int = 4) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, size], "data": [number] * size}


def output(ask: Http, model: str, document: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the data of a V2 answer's first output, and the whole answer."""
    answer = json.loads(ask(f"/v2/models/{model}/infer", json.dumps({"inputs": [document]}).encode())[1])
    return answer["outputs"][0]["data"], answer


def v2(ask: Http, number: float) -> None:
    same(output(ask, "tiny", tensor(number))[0], number + ONE)


def binary(ask: Http, number: float) -> None:
    raw = np.full(4, number, np.float32).tobytes()
    said = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": len(raw)}}
    document = json.dumps({"inputs": [said], "parameters": {"binary_data_output": True}}).encode()
    head, body = ask("/v2/models/tiny/infer", document + raw, inference_header_content_length=str(len(document)))
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    same(np.frombuffer(body[int(lines[b"inference-header-content-length"]) :], np.float32), number + ONE)


def image(ask: Http, number: float) -> None:
    numbers = np.full((1, 3, 224, 224), number, np.float32)
    _, body = ask("/v1/models/image:predict", json.dumps({"instances": numbers.tolist()}).encode())
    same(json.loads(body)["predictions"][0], [number] * 3)


def strings(ask: Http, number: float) -> None:
    texts = [f"{number} {place}" for place in range(100)]
    found, _ = output(ask, "strings", {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts})
    if found != texts:
        raise AssertionError("other texts came back")


def v1(ask: Http, number: float) -> None:
    _, body = ask("/v1/models/tiny:predict", json.dumps({"instances": [[number] * 4]}).encode())
    same(json.loads(body)["predictions"], number + ONE)


def connect(ask: Http, number: float) -> None:
    said = {"name": "x", "datatype": "FP32", "shape": [1, 4], "contents": {"fp32Contents": [number] * 4}}
    _, body = ask(INFER, json.dumps({"modelName": "tiny", "inputs": [said]}).encode())
    same(json.loads(body)["outputs"][0]["contents"]["fp32Contents"], number + ONE)


def swapped(ask: Http, number: float) -> None:
    """The model that gets new versions: each adds its own number."""
    found, answer = output(ask, "swapped", tensor(number))
    same(found, [number + int(answer["model_version"])] * 4)


def churned(ask: Http, number: float) -> None:
    """The model that is loaded and unloaded."""
    found, _ = output(ask, "batch", tensor(number, 32))
    if len(found) != 8:
        raise AssertionError(f"answered {found}, expected 8 numbers")


def message(number: float) -> bytes:
    said = ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4])
    raw = np.full(4, number, np.float32).tobytes()
    return ModelInferRequest(model_name="tiny", inputs=[said], raw_input_contents=[raw]).SerializeToString()


def unary(ask: Rpc, number: float) -> None:
    answer = ModelInferResponse.FromString(ask(message(number))[0])
    same(np.frombuffer(answer.raw_output_contents[0], np.float32), number + ONE)


def stream(ask: Rpc, number: float) -> None:
    answers = [ModelStreamInferResponse.FromString(each) for each in ask(message(number), stream=True)]
    if [each.error_message for each in answers] != [""] * IN_A_STREAM:
        raise AssertionError(f"a stream answered {answers}")
    for each in answers:
        same(np.frombuffer(each.infer_response.raw_output_contents[0], np.float32), number + ONE)


def clients(port: int, rpc_port: int) -> dict[str, Callable[[float], None]]:
    """Returns a client of each kind, with a connection of its own."""

    def over(each: Callable[[Any, float], None], ask: Http | Rpc) -> Callable[[float], None]:
        return lambda number: each(ask, number)

    over_http = (v2, binary, image, strings, v1, connect, swapped, churned)
    return {
        **{each.__name__: over(each, Http(port)) for each in over_http},
        "grpc": over(unary, Rpc(rpc_port)),
        "grpc stream": over(stream, Rpc(rpc_port)),
    }
