"""The control of ours on uvicorn: the least that an ASGI application can do with the same bytes.

/echo/<size>/<header length> reads the body and answers `size` canned bytes, under the headers of a V2 answer.
/orjson/<columns>/0 serves V2's JSON in the simplest way: orjson to lists, numpy, orjson back, without checks.
/model/<name>/0 does the same and runs a model of the folder CONTROL_REPOSITORY between.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CANNED: dict[int, bytes] = {}


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    _, kind, size, binary = scope["path"].split("/")
    if kind == "orjson":
        answer = through_orjson(body, int(size))
    elif kind == "model":
        answer = through_model(body, size)
    else:
        answer = CANNED.get(int(size)) or CANNED.setdefault(int(size), b"x" * int(size))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    if binary != "0":
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", b"%d" % len(answer)),
            (b"inference-header-content-length", binary.encode()),
        ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def through_orjson(body: bytes, columns: int) -> bytes:
    """Reads a V2 request into arrays and writes an answer of [1 or n, columns], in the shortest code."""
    tensor = orjson.loads(body)["inputs"][0]
    data = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
    rows = data.shape[0]
    answer = {
        "model_name": "m",
        "model_version": "1",
        "outputs": [{"name": "y", "shape": [rows, columns], "datatype": "FP32", "data": outputs(rows * columns)}],
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


@cache
def session(name: str) -> Any:
    """Returns a model's session, which computes in one thread, as ours."""
    import onnxruntime as ort  # noqa: PLC0415 - the other controls need none

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(Path(os.environ["CONTROL_REPOSITORY"]) / name / "1" / "model.onnx", options)


def through_model(body: bytes, name: str) -> bytes:
    """Reads a V2 request of one tensor x, runs the model, and writes its output y, in the shortest code."""
    tensor = orjson.loads(body)["inputs"][0]
    is_text = tensor["datatype"] == "BYTES"
    data = np.array(tensor["data"], object if is_text else np.float32).reshape(tensor["shape"])
    (found,) = session(name).run(None, {"x": data})
    output = {"name": "y", "shape": found.shape, "datatype": tensor["datatype"], "data": found.reshape(-1).tolist()}
    return orjson.dumps({"model_name": "m", "model_version": "1", "outputs": [output]})


RESULTS: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}


def outputs(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns as many floats as the model would have computed, with as many digits."""
    if count not in RESULTS:
        RESULTS[count] = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    return RESULTS[count]
