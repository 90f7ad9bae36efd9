"""The control of ours on uvicorn: the least that an ASGI application can do with the same bytes.

/echo/<size>/<header length> reads the body and answers `size` canned bytes, under the headers of a V2 answer.
/orjson/<columns>/0 serves V2's JSON in the simplest way: orjson to lists, numpy, orjson back, without checks.
"""

from collections.abc import Awaitable, Callable, MutableMapping
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


RESULTS: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}


def outputs(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns as many floats as the model would have computed, with as many digits."""
    if count not in RESULTS:
        RESULTS[count] = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    return RESULTS[count]
