"""The gRPC edge beside an application, in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from handler.edge import rpc
from handler.edge.app import App
from tests.support.ports import free_port


@asynccontextmanager
async def running(app: App) -> AsyncIterator[tuple[aio.Channel, rpc.RpcServer]]:
    """A server of the application, and a connection to it."""
    server = rpc.RpcServer(app, address := f"127.0.0.1:{free_port()}")
    await server.start()
    try:
        async with aio.insecure_channel(address) as channel:
            yield channel, server
    finally:
        await server.stop()


def served(app: App, work: Callable[[aio.Channel, rpc.RpcServer], Awaitable[Any]]) -> Any:
    """Returns what the work finds on a server of the application."""

    async def main() -> Any:
        async with running(app) as (channel, server):
            return await work(channel, server)

    return asyncio.run(asyncio.wait_for(main(), 60))
