"""Lambda's Runtime API on loopback, as its published contract says: events go out, answers come in, piece by piece.

Sources: AWS documentation, "Using the Lambda runtime API for custom runtimes", "Implementing response streaming in a
custom runtime", "Runtime hooks for Lambda SnapStart". Long events are sent in chunks, as Lambda's server (Go) does.
"""

from __future__ import annotations

import base64
import json
import queue
import socket
import socketserver
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from typing import Any, Final

from tests.support import web

SECONDS: Final = 60.0
PREFIX: Final = "/2018-06-01/runtime"
CHUNKED_FROM: Final = 2048


class Taken:
    """One event and what the runtime has sent for it. `kind`: "response" or "error". `keep`: keeps the pieces.

    `gone`: the connection was dropped. `came`: when each piece came, on time.monotonic_ns().
    """

    def __init__(self, event: bytes, seconds: float, headers: dict[str, str]) -> None:
        self.id = str(uuid.uuid4())
        self.event, self.seconds, self.more = event, seconds, headers
        self.kind, self.mode = "", ""
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.came: list[int] = []
        self.size = 0
        self.keep, self.cut, self.gone = True, "", False
        self.status = 202
        self.connection: Any = None
        self.done = threading.Event()
        self._changed = threading.Condition()

    def add(self, piece: bytes) -> None:
        with self._changed:
            self.size += len(piece)
            self.came.append(time.monotonic_ns())
            if self.keep:
                self.pieces.append(piece)
            self._changed.notify_all()

    def drop(self) -> None:
        """Drops the connection of the answer, as if nobody wanted the rest."""
        self.gone = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def until(self, count: int) -> list[bytes]:
        """Waits for so many pieces, the head among them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.pieces) >= count or self.done.is_set(), SECONDS)
            assert len(self.pieces) >= count, self.pieces
            return list(self.pieces)

    def wait(self) -> Taken:
        """Waits for the end of the answer."""
        assert self.done.wait(SECONDS), (self.kind, self.size)
        return self

    @property
    def document(self) -> Any:
        """Returns what a buffered answer, or an error, says."""
        self.wait()
        assert self.mode == "", self.mode
        return json.loads(b"".join(self.pieces))

    @property
    def head(self) -> dict[str, Any]:
        """Returns a streamed answer's status, headers and cookies."""
        found: dict[str, Any] = json.loads(b"".join(self.until(1)).partition(bytes(8))[0])
        return found

    @property
    def body(self) -> bytes:
        """Returns a streamed answer's body."""
        self.wait()
        assert self.mode == "streaming", (self.kind, self.pieces)
        return b"".join(self.pieces).partition(bytes(8))[2]

    @property
    def error(self) -> Any:
        """Returns the error in a streamed answer's trailers; None if it ended well."""
        self.wait()
        text = self.trailers.get("lambda-runtime-function-error-body")
        return None if text is None else json.loads(base64.b64decode(text))


class RuntimeStandIn(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The server. `polling`: requests for an event that wait now. `errors`: of init and restore, by path."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.waiting: queue.Queue[Taken | None] = queue.Queue()
        self.taken: dict[str, Taken] = {}
        self.polling = 0
        self._changed = threading.Condition()
        self.errors: dict[str, tuple[str, Any]] = {}
        self.snapshot, self.restored = threading.Event(), threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def poll(self, more: int) -> None:
        with self._changed:
            self.polling += more
            self._changed.notify_all()

    def await_polling(self, count: int) -> None:
        """Waits until so many requests for an event wait at the same time."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.polling >= count, SECONDS)

    def send(self, event: Any, seconds: float = SECONDS, status: int = 202, cut: str = "", **more: str) -> Taken:
        """Offers an event, as JSON, or as the bytes that it is. `seconds`: until the function's end. `more`: headers.

        `status`: for the answer. `cut`: ends the connection after the event ("early") or as an answer comes ("late").
        """
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        one = Taken(body, seconds, {name.replace("_", "-"): value for name, value in more.items()})
        one.status, one.cut = status, cut
        self.taken[one.id] = one
        self.waiting.put(one)
        return one


class _Exchange(web.Handler):
    server: RuntimeStandIn

    def do_GET(self) -> None:
        if self.path == f"{PREFIX}/restore/next":
            self.server.snapshot.set()
            self.server.restored.wait(SECONDS)
            self.answer(200)
            return
        assert self.path == f"{PREFIX}/invocation/next", self.path
        self.server.poll(1)
        one = self.server.waiting.get()
        self.server.poll(-1)
        if one is None:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Lambda-Runtime-Aws-Request-Id", one.id)
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + one.seconds) * 1000)))
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:f")
        for name, value in one.more.items():
            self.send_header(name, value)
        if len(one.event) < CHUNKED_FROM:
            self.send_header("Content-Length", str(len(one.event)))
            self.end_headers()
            self.wfile.write(one.event)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(one.event), one.event))
        if one.cut == "late":
            self.connection.recv(1)
        self.close_connection = bool(one.cut)

    def do_POST(self) -> None:
        rest = self.path.removeprefix(PREFIX)
        if rest in ("/init/error", "/restore/error"):
            self.server.errors[rest] = (self.headers["Lambda-Runtime-Function-Error-Type"], json.loads(self.body()))
            self.answer(202, b"{}")
            return
        _, _, number, kind = rest.split("/")
        one = self.server.taken[number]
        one.kind, one.connection = kind, self.connection
        one.headers = {name.lower(): value for name, value in self.headers.items()}
        one.mode = one.headers.get("lambda-runtime-function-response-mode", "")
        if self._read(one):
            self.answer(one.status, b'{"status":"OK"}')
        else:
            self.close_connection = True
        one.done.set()

    def _read(self, one: Taken) -> bool:
        """Reads an answer. Returns False if it has no end."""
        if one.headers.get("transfer-encoding") != "chunked":
            one.add(self.body())
            return True
        try:
            while size := int(self.rfile.readline(), 16):
                one.add(self.rfile.read(size))
                assert self.rfile.readline() == b"\r\n"
        except (ValueError, OSError):
            assert one.gone or not self.rfile.readline()
            one.gone = True
            return False
        one.trailers = self._trailers(one)
        return True

    def _trailers(self, one: Taken) -> dict[str, str]:
        lines = b""
        while (line := self.rfile.readline()) != b"\r\n":
            lines += line
        announced = {name.strip().lower() for name in one.headers.get("trailer", "").split(",")}
        found = BytesParser().parsebytes(lines + b"\r\n", headersonly=True)
        return {name.lower(): value for name, value in found.items() if name.lower() in announced}  # as Go does


@contextmanager
def runtime_api() -> Iterator[RuntimeStandIn]:
    """Runs the server. At its end a runtime that polls loses its connection."""
    with RuntimeStandIn() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        for _ in range(max(1, server.polling)):
            server.waiting.put(None)
        server.shutdown()
