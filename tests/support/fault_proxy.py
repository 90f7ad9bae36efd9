"""A proxy in front of an S3 server that does to its answers what networks and stores do, as a list says.

Requests go through as they came, Host included, so that signatures stay valid. Each request takes the next fault of
`faults`, if there is one left that is meant for it.
"""

import contextlib
import http.client
import io
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.support import web

PIECE = 16 * 1024
RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of an answer, `after` so many bytes of its body if that matters.

    truncate: the connection ends. reset: the same with RST. stall: no more bytes arrive. flip: one bit is wrong.
    short: fewer bytes, and a Content-Length that agrees. refuse: no answer. latency: `seconds` before the answer.
    expired, slow, error: such a refusal instead. swap: `then` is called, and the connection ends.
    """

    kind: str
    after: int = 0
    seconds: float = 0.0
    then: Callable[[], object] | None = None


REFUSALS = {"expired": (403, "ExpiredToken"), "slow": (503, "SlowDown"), "error": (500, "InternalError")}


class Proxy:
    """The proxy. `only`: a part of the path that a request needs to meet a fault. `asked`: method and path of each."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.only = ""
        self.asked: list[tuple[str, str | None]] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server: web.Server | None = None
        self._port = 0
        self._open: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def next(self, path: str, asked: str | None) -> Fault | None:
        """Returns the fault of this request."""
        with self._lock:
            self.asked.append((path, asked))
            if self.only not in path:
                return None
            return self.faults.pop(0) if self.faults else self.always

    def up(self) -> None:
        """Listens, the second time on the same port."""
        self.closing.clear()
        handler = type("Handler", (Handler,), {"proxy": self})
        self._server = web.Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Refuses connections, and resets those that are there, like a server that is killed."""
        self.closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._lock:
            for each in list(self._open):
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    each.shutdown(socket.SHUT_RDWR)

    def opened(self, each: socket.socket, *, is_open: bool) -> None:
        """Records a connection."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)(each)


class Handler(web.Handler):
    proxy: Proxy
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.proxy.opened(self.connection, is_open=True)

    def finish(self) -> None:
        self.proxy.opened(self.connection, is_open=False)
        with contextlib.suppress(OSError):
            super().finish()

    def do_HEAD(self) -> None:
        """Answers without faults of a body."""
        self.do_GET()

    def do_GET(self) -> None:
        fault = self.proxy.next(self.path, self.headers.get("Range"))
        if fault is not None and fault.kind in REFUSALS:
            self._refuse(*REFUSALS[fault.kind])
            return
        if fault is not None and fault.kind == "refuse":
            self.close_connection = True
            return
        if fault is not None and fault.kind == "latency":
            time.sleep(fault.seconds)
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            self._pass(upstream.getresponse(), fault)
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()

    def _refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
        self.wfile.flush()

    def _pass(self, response: http.client.HTTPResponse, fault: Fault | None) -> None:
        chunked = None if "Content-Length" in response.headers else io.BytesIO(response.read())
        length = int(response.headers["Content-Length"]) if chunked is None else len(chunked.getvalue())
        fault = fault if self.command == "GET" else None
        kind, after = (fault.kind, min(fault.after, max(0, length - 1))) if fault is not None else ("", 0)
        self.send_response_only(response.status)
        for name, value in response.headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(after if kind == "short" else length))
        self.end_headers()
        if self.command == "GET":
            stop = after if kind in ("truncate", "reset", "stall", "short", "swap") else length
            self._copy(chunked or response, stop, after if kind == "flip" else -1)
            if fault is not None and stop < length and kind != "short":
                self._end(fault)

    def _copy(self, response: http.client.HTTPResponse | io.BytesIO, stop: int, flip: int) -> None:
        """Sends so much of the body, with one wrong bit."""
        position = 0
        while position < stop:
            piece = response.read(min(PIECE, stop - position))
            if not piece:
                raise ConnectionError
            if position <= flip < position + len(piece):
                at = flip - position
                piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
            self.wfile.write(piece)
            position += len(piece)
        self.wfile.flush()

    def _end(self, fault: Fault) -> None:
        self.close_connection = True
        if fault.then is not None:
            fault.then()
        if fault.kind == "stall":
            self.connection.settimeout(0.05)
            while not self.proxy.closing.is_set():  # until the client leaves
                try:
                    if not self.connection.recv(1):
                        return
                except TimeoutError:
                    continue
        if fault.kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.rfile.close()
            self.wfile.close()
            self.connection.close()


@contextlib.contextmanager
def running(upstream: str) -> Iterator[Proxy]:
    """Runs a proxy; faults can be added while it runs."""
    proxy = Proxy(upstream)
    proxy.up()
    try:
        yield proxy
    finally:
        proxy.down()
