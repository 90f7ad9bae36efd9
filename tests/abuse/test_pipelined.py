"""Many requests on one connection: 25 bytes each for the client, and objects of two kilobytes each for the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from handler.edge.server.flow import BODIES, HEADS, MOST_WAITING
from handler.edge.server.protocol import BoundedHttp

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE: Final = 256_000
"""The most bytes that uvloop reads at a time."""
LENGTH: Final = PIECE * 3 // 2
COUNT: Final = 30_000
HOST: Final = b"Host:\r\n"
CHUNK: Final = b"Transfer-Encoding: chunked\r\n\r\n1\r\n"
SHORTEST: Final = len(b"GET / HTTP/1.1\r\n%b\r\n" % HOST)


class Reading(asyncio.Transport):
    """A connection whose client sends as long as the server reads. `out`: the paths that were answered, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.closed, self.out = True, False, bytearray()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None:
        self.out += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("start", "most"),
    [
        (b"", HEADS // SHORTEST + MOST_WAITING),
        (b"POST /first HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, LENGTH), HEADS // SHORTEST + MOST_WAITING),
        (b"POST /first HTTP/1.1\r\n%b%b" % (HOST, CHUNK), BODIES // SHORTEST + MOST_WAITING),
    ],
    ids=["heads", "behind a body", "behind a chunk"],
)
def test_few_requests_of_a_connection_wait_in_memory_and_all_are_answered_in_order(start: bytes, most: int) -> None:
    """The server does not read on while it has unparsed bytes, whatever the application waits for."""
    gate: asyncio.Event

    async def application(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        while (await receive()).get("more_body"):
            pass
        await gate.wait()
        path = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(path))]})
        await send({"type": "http.response.body", "body": path})

    body = b"x" * LENGTH if b"Length" in start else b"x\r\n0\r\n\r\n" if start else b""
    wire = start + body + b"".join(b"GET /%x HTTP/1.1\r\n%b\r\n" % (number, HOST) for number in range(COUNT))

    async def talk() -> tuple[int, int, bytes]:
        nonlocal gate
        gate = asyncio.Event()
        config = Config(application, ws="none", lifespan="off", log_config=None)
        config.load()
        server = BoundedHttp(config, ServerState(), {}, asyncio.get_running_loop())
        transport, sent, waiting = Reading(), 0, 0
        server.connection_made(transport)
        for turn in range(20 * COUNT):
            if transport.reads and sent < len(wire):
                size = PIECE if sent else max(len(start), 1)
                server.data_received(wire[sent : sent + size])
                sent += size
            waiting = max(waiting, len(server.pipeline))
            if turn == 20:
                held = sent
                gate.set()
            await asyncio.sleep(0)
            if sent >= len(wire) and transport.out.endswith(b"\r\n\r\n/%x" % (COUNT - 1)):
                break
        server.connection_lost(None)
        return waiting, held, bytes(transport.out)

    waiting, held, out = asyncio.run(talk())
    assert 0 < waiting <= most
    assert held <= len(start) + 2 * PIECE
    answered = [part.rpartition(b"\r\n\r\n")[2] for part in out.split(b"HTTP/1.1 200 OK")[1:]]
    assert answered == [b"/first"] * bool(start) + [b"/%x" % number for number in range(COUNT)]
