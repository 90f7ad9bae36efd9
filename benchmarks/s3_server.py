"""A store that costs almost nothing: s3_server.py FOLDER RATE prints its port and answers GET and HEAD by sendfile.

RATE is in bytes per second and connection, 0 for unthrottled; S3's is about 85 MB/s. The store accepts any signature.
Keys are file names; those that begin with `checked-` have a CRC32, as S3 sends it. ETags are those of uploads in parts,
which no client can check: the controls check nothing.
"""

import base64
import os
import socket
import sys
import threading
import time
import zlib
from functools import cache
from pathlib import Path

PIECE = 256 * 1024


@cache
def crc32(path: Path) -> str:
    return base64.b64encode(zlib.crc32(path.read_bytes()).to_bytes(4)).decode()


def head(folder: Path, request: bytes) -> tuple[bytes, Path, int, int]:
    """Returns the answer's head, and the file, the start and the end of the bytes that follow it."""
    first, *lines = request.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    asked = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    path = folder / target.partition("?")[0].rpartition("/")[2]
    size = path.stat().st_size
    start, end, status, more = 0, size, "200 OK", ""
    if "range" in asked:
        low, _, high = asked["range"].removeprefix("bytes=").partition("-")
        start, end, status = int(low), min(int(high or size) + 1, size), "206 Partial Content"
        more = f"Content-Range: bytes {start}-{end - 1}/{size}\r\n"
    elif path.name.startswith("checked-") and "x-amz-checksum-mode" in asked:
        more = f"x-amz-checksum-crc32: {crc32(path)}\r\n"
    text = (
        f'HTTP/1.1 {status}\r\nContent-Length: {end - start}\r\nETag: "{size:032x}-9"\r\n{more}'
        "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nAccept-Ranges: bytes\r\n\r\n"
    )
    return text.encode(), path, start, end if method == "GET" else start


def send(connection: socket.socket, path: Path, span: tuple[int, int], rate: float) -> None:
    position, end = span
    due = time.monotonic()
    with path.open("rb") as file:
        while position < end:
            count = min(PIECE, end - position) if rate else end - position
            sent = os.sendfile(connection.fileno(), file.fileno(), position, count)
            position += sent
            if rate:
                due += sent / rate
                time.sleep(max(0.0, due - time.monotonic()))


def serve(connection: socket.socket, folder: Path, rate: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    try:
        while True:
            while b"\r\n\r\n" not in received:
                data = connection.recv(65536)
                if not data:
                    return
                received += data
            request, _, received = received.partition(b"\r\n\r\n")
            answer, path, start, end = head(folder, request)
            connection.sendall(answer)
            send(connection, path, (start, end), rate)
    except OSError:  # the client has closed the connection
        return
    finally:
        connection.close()


def main(folder: str, rate: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection, Path(folder), float(rate)), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
