"""A TCP proxy that limits the bytes per second of all its connections together."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

PIECE = 64 * 1024


class Bucket:
    """Hands out permission to send."""

    def __init__(self, bytes_per_second: float) -> None:
        self._speed = bytes_per_second
        self._free_at = 0.0

    async def take(self, count: int) -> None:
        """Return when `count` more bytes may be sent."""
        self._free_at = max(self._free_at, time.monotonic()) + count / self._speed
        await asyncio.sleep(self._free_at - time.monotonic())


@contextlib.contextmanager
def running(endpoint: str, bytes_per_second: float) -> Iterator[str]:
    """Offer the URL of a throttled way to an endpoint."""
    target = urlsplit(endpoint)
    bucket = Bucket(bytes_per_second)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, throttled: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                if throttled:
                    await bucket.take(len(piece))
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pump(reader, above[1], throttled=False), pump(above[0], writer, throttled=True))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
