"""Sends bytes on a socket, for requests that no client library would send."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 30


def opened(port: int) -> socket.socket:
    """Opens a new connection."""
    return socket.create_connection((HOST, port), SECONDS)


@contextmanager
def crowd(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Opens many new connections."""
    with ExitStack() as stack:
        yield [stack.enter_context(opened(port)) for _ in range(number)]


def talk(port: int, *pieces: bytes) -> bytes:
    """Sends pieces on a new connection, as far as the server takes them. Returns its answers until it closes."""
    with opened(port) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return rest(connection)


def poured(connection: socket.socket, piece: bytes, most: int) -> bool:
    """Sends the piece again and again. Returns whether the server accepted as many bytes."""
    with suppress(ConnectionError):
        for _ in range(most // len(piece)):
            connection.sendall(piece)
        return True
    return False


def rest(connection: socket.socket) -> bytes:
    """Returns everything until the server closes the connection, which must happen within SECONDS."""
    got = b""
    with suppress(ConnectionError):
        while piece := connection.recv(2**16):
            got += piece
    return got


def answer(connection: socket.socket) -> bytes:
    """Returns one answer: its head, and as much of its body as its length says."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += _more(connection)
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += _more(connection)
    return head + b"\r\n\r\n" + body


def _more(connection: socket.socket) -> bytes:
    piece = connection.recv(2**16)
    assert piece, "the server closed the connection"
    return piece


def status(answer: bytes) -> int:
    """Returns the status of an answer; 0 if there is none."""
    return int(answer[9:12]) if answer else 0


def head(method: str, target: str, *headers: str, version: str = "1.1") -> bytes:
    """Returns the request line and the headers."""
    return "\r\n".join([f"{method} {target} HTTP/{version}", "Host: x", *headers, "", ""]).encode()
