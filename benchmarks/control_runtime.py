"""The control of our own runtime on Lambda: http.client and a generator, without a protocol or a model's runtime."""

import json
import os
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

HEAD = b'{"statusCode":200,"headers":{"content-type":"text/event-stream"}}' + bytes(8)


def pieces(event: dict[str, Any]) -> Iterator[bytes]:
    megabytes = int(event["rawQueryString"].removeprefix("megabytes=") or 0)
    if not megabytes:
        yield b'data: {"y":%d}\n\n' % time.monotonic_ns()
    for _ in range(megabytes):
        yield bytes(2**20)


def main() -> None:
    """Serves until the Runtime API ends."""
    connection = HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    while True:
        connection.request("GET", "/2018-06-01/runtime/invocation/next")
        came = connection.getresponse()
        event = json.loads(came.read())
        connection.putrequest(
            "POST", f"/2018-06-01/runtime/invocation/{came.headers['Lambda-Runtime-Aws-Request-Id']}/response"
        )
        connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        connection.send(b"%x\r\n%b\r\n" % (len(HEAD), HEAD))
        for piece in pieces(event):
            for part in (b"%x\r\n" % len(piece), piece, b"\r\n"):
                connection.send(part)
        connection.send(b"0\r\n\r\n")
        connection.getresponse().read()


if __name__ == "__main__":
    main()
