"""The control of gRPC: the least that grpc.aio can do with the same bytes.

python -m benchmarks.control_rpc PORT MODEL

In uvicorn's usual event loop, /control.Echo/<size> takes a message as bytes and answers `size` canned bytes;
/control.Echo/same answers the message itself. /control.Echo/model runs MODEL, an ONNX file from x to y, on the image at
the message's end, and answers with y after the bytes that preceded x: it copies x to aligned memory, runs, and joins.
"""

import sys
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import uvloop
from grpc import aio

from benchmarks.control import CANNED
from benchmarks.per_request import IMAGE

SIZE = prod(IMAGE) * 4


class Echo(grpc.GenericRpcHandler):
    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(model, options)
        self.behaviours = {"same": same, "model": partial(infer, session)}

    def service(self, handler_call_details: Any) -> Any:
        asked = handler_call_details.method.rpartition("/")[2]
        if asked in self.behaviours:
            return grpc.unary_unary_rpc_method_handler(self.behaviours[asked])
        size = int(asked)
        answer = CANNED.get(size) or CANNED.setdefault(size, b"x" * size)

        async def canned(_body: bytes, _context: Any) -> bytes:
            return answer

        return grpc.unary_unary_rpc_method_handler(canned)


async def same(body: bytes, _context: Any) -> bytes:
    return body


async def infer(session: Any, body: bytes, _context: Any) -> bytes:
    x = np.frombuffer(body, "<f4", offset=len(body) - SIZE)
    x = x if x.flags.aligned else x.copy()
    (y,) = session.run(["y"], {"x": x.reshape(IMAGE)})
    return b"".join((body[:-SIZE], memoryview(y).cast("B")))


async def serve(port: int, model: Path) -> None:
    server = aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Echo(model),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
