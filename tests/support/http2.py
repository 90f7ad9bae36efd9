"""Frames of HTTP/2 on a socket, for connections that no client library would have (RFC 9113)."""

from contextlib import suppress
from typing import Final, NamedTuple, Self

from tests.support.raw import opened

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW: Final = 4


class Frame(NamedTuple):
    """One frame: its type, its flags, the stream and what it has."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def asking(
    stream: int, method: str, path: str, *headers: tuple[str, str], ends: bool = True, authority: str = "x"
) -> bytes:
    """Returns the head of a request. `ends`: it has no body."""
    fields = ((":method", method), (":scheme", "http"), (":authority", authority), (":path", path), *headers)
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
    pieces = [block[start : start + 16_000] for start in range(0, len(block), 16_000)]
    frames = [frame(HEADERS if not number else 9, stream, piece) for number, piece in enumerate(pieces)]
    last = frame(HEADERS if len(pieces) == 1 else 9, stream, pieces[-1], END_HEADERS)
    wire = b"".join([*frames[:-1], last])
    return wire[:4] + bytes([wire[4] | ends]) + wire[5:]


def _text(text: str) -> bytes:
    """Returns a string as HPACK has it without Huffman's code (RFC 7541 5.2)."""
    raw = text.encode()
    size = len(raw)
    if size < 127:
        return bytes([size]) + raw
    size -= 127
    prefix = b"\x7f"
    while size >= 128:
        prefix += bytes([size % 128 | 128])
        size //= 128
    return prefix + bytes([size]) + raw


class Http2:
    """One connection. `window`: bytes of an answer that it takes before it is asked for more."""

    def __init__(self, port: int, window: int = 2**31 - 1) -> None:
        self.socket = opened(port)
        self._kept = b""
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, INITIAL_WINDOW.to_bytes(2) + window.to_bytes(4)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def take(self, size: int, stream: int = 0) -> None:
        """Permits so many further bytes of answers."""
        self.send(frame(WINDOW_UPDATE, stream, size.to_bytes(4)))

    def next(self) -> Frame | None:
        """Returns the next frame, None if the server has ended the connection."""
        while len(self._kept) < 9 or len(self._kept) < 9 + int.from_bytes(self._kept[:3]):
            with suppress(ConnectionError):
                if piece := self.socket.recv(2**16):
                    self._kept += piece
                    continue
            return None
        head, size = self._kept[:9], int.from_bytes(self._kept[:3])
        payload, self._kept = self._kept[9 : 9 + size], self._kept[9 + size :]
        return Frame(head[3], head[4], int.from_bytes(head[5:9]), payload)

    def of(self, stream: int, *kinds: int) -> Frame | None:
        """Returns the next frame of a stream that is of these kinds."""
        while (found := self.next()) is not None and (found.stream != stream or found.kind not in kinds):
            pass
        return found

    def answer(self, stream: int) -> tuple[int, bytes]:
        """Returns the status and the body of an answer. The status is 0 for one that was reset."""
        status, body = 0, bytearray()
        while (found := self.of(stream, HEADERS, DATA, RST_STREAM)) is not None and found.kind != RST_STREAM:
            if found.kind == HEADERS and not status:
                status = int(found.payload[found.payload.index(b"\x03") + 1 :][:3])
            elif found.kind == DATA:
                body += found.payload
            if found.flags & END_STREAM:
                return status, bytes(body)
        return 0, bytes(body)
