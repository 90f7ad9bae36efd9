"""An HTTP/1.1 client that costs almost nothing: prepared bytes, raw sockets, keep-alive; it parses only the head."""

import selectors
import socket
import statistics
import time
from collections import deque


def request(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Returns a whole POST in its bytes on the wire."""
    head = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + body


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._missing = -1

    def close(self) -> None:
        self.socket.close()

    def ask(self, wire: bytes) -> tuple[bytes, bytes]:
        """Sends a request. Returns the head and the body of the answer."""
        self.socket.sendall(wire)
        while not self.receive():
            pass
        end = self._buffer.index(b"\r\n\r\n") + 4
        return bytes(self._view[:end]), bytes(self._view[end : self._filled])

    @property
    def head(self) -> bytes:
        """The head of the answer that was received last."""
        return bytes(self._view[: self._buffer.index(b"\r\n\r\n")])

    def receive(self, flags: int = 0) -> bool:
        """Reads once. Returns whether the answer is complete; the next call then begins a new answer."""
        if self._missing == 0:
            self._filled, self._missing = 0, -1
        count = self.socket.recv_into(self._view[self._filled :], flags=flags)
        if not count:
            raise ConnectionError("the server closed the connection")
        self._filled += count
        if self._missing < 0:
            end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
            if end < 0:
                return False
            self._missing = end + 4 + _content_length(self._buffer[:end])
            if self._missing > len(self._buffer):
                self._grow(self._missing)
            self._missing -= self._filled
        else:
            self._missing -= count
        return self._missing == 0

    def watch(self) -> None:
        """Waits for the answer without sleeping.

        The host takes a virtual CPU away that is idle for more than about 50 us, and returns it 30 to 60 us late. A
        client that slept would charge this to every server that takes longer, and not to faster ones.
        """
        while True:
            try:
                if self.receive(socket.MSG_DONTWAIT):
                    return
            except BlockingIOError:
                continue

    def _grow(self, size: int) -> None:
        grown = bytearray(size)
        grown[: self._filled] = self._view[: self._filled]
        self._view.release()
        self._buffer, self._view = grown, memoryview(grown)


def _content_length(head: bytearray) -> int:
    name = b"\r\ncontent-length:"  # with the line's start: inference-header-content-length is another header
    start = head.lower().index(name) + len(name)
    end = head.find(b"\r\n", start)
    return int(head[start : end if end >= 0 else len(head)])


def latency(port: int, wire: bytes, times: int, cut: int = 0) -> float:
    """Returns the median in milliseconds of sequential requests. `cut`: bytes of each that are sent on their own."""
    connection = Connection(port)
    connection.socket.settimeout(None)  # with a timeout, each call of the socket would call poll() first
    try:
        taken = []
        for number in range(times + 3):
            start = time.perf_counter()
            if cut:
                connection.socket.sendall(wire[:cut])
            connection.socket.sendall(wire[cut:])
            connection.watch()
            if number >= 3:  # the first requests warm the connection
                taken.append(time.perf_counter() - start)
        return statistics.median(taken) * 1e3
    finally:
        connection.close()


def throughput(port: int, wire: bytes, duration: float, connections: int = 8) -> float:
    """Returns the answers per second for `connections` clients that send a request after each answer."""
    with selectors.DefaultSelector() as selector:
        clients = [Connection(port) for _ in range(connections)]
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        answered = _drive(selector, deque(clients), wire, duration)
        for client in clients:
            client.close()
    return answered / duration


def _drive(selector: selectors.BaseSelector, idle: deque[Connection], wire: bytes, duration: float) -> int:
    answered = busy = 0
    stop = time.perf_counter() + duration
    while True:
        while idle and time.perf_counter() < stop:
            idle.popleft().socket.sendall(wire)
            busy += 1
        if not busy:
            return answered
        for key, _ in selector.select(30):
            if key.data.receive():
                answered += time.perf_counter() < stop
                busy -= 1
                idle.append(key.data)
