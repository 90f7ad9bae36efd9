"""What gRPC is measured against: the least that grpc.aio can do with the same bytes.

python -m benchmarks.control_rpc PORT

/control.Echo/<size> takes a message as bytes and answers `size` canned ones, /control.Echo/same the message itself, in
uvicorn's usual event loop.
"""

import sys
from typing import Any

import grpc
import uvloop
from grpc import aio

from benchmarks.control import CANNED


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        asked = handler_call_details.method.rpartition("/")[2]
        if asked == "same":
            return grpc.unary_unary_rpc_method_handler(same)
        size = int(asked)
        answer = CANNED.get(size) or CANNED.setdefault(size, b"x" * size)

        async def canned(_body: bytes, _context: Any) -> bytes:
            return answer

        return grpc.unary_unary_rpc_method_handler(canned)


async def same(body: bytes, _context: Any) -> bytes:
    return body


async def serve(port: int) -> None:
    server = aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
