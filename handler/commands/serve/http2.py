"""`dragoman serve --http2`: the application under hypercorn, where gRPC is on the port of all other protocols."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from core.errors import escaped
from handler.commands.serve import server
from handler.commands.serve.server import NOT_STARTED, Serving, bind
from handler.settings import InvalidSettings, Settings

log = logging.getLogger("hypercorn")
CALLS: Final = 256
"""The most requests under way on one connection. A client's library keeps further ones back."""
ENDLESS: Final = 2**62
"""Requests of one connection. hypercorn ends it after 1,000 by default, and with it the calls that have just begun."""


def serve(settings: Settings, how: Serving) -> int:
    """Serves until a signal, as server.serve does. Raises InvalidSettings."""
    if settings.workers > 1:
        raise InvalidSettings("--http2 has no --workers: leave one of the two out")
    try:
        import hypercorn  # noqa: F401, PLC0415 - an extra
        import uvloop  # noqa: F401, PLC0415 - the same
    except ImportError:
        raise InvalidSettings("`--http2` needs hypercorn and uvloop: pip install 'dragoman[http2]'") from None
    return server.serve(settings, how, run)


def run(served: Any, settings: Settings, how: Serving, say: Callable[[], None]) -> int:
    """Serves an application until a signal. `say`: prints the addresses. Raises InvalidSettings."""
    import uvloop  # noqa: PLC0415 - as server.run
    from hypercorn.asyncio import serve as hypercorn  # noqa: PLC0415 - an extra
    from hypercorn.utils import LifespanFailureError  # noqa: PLC0415 - as above
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: PLC0415 - as server.run

    from handler.edge.server.paced import Paced  # noqa: PLC0415 - as the application

    paced: Any = Paced(served, settings.pause_timeout)
    app: Any = ProxyHeadersMiddleware(paced, os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1"))  # as uvicorn does

    async def until_signal() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(_tell)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        say()
        await hypercorn(app, _config(settings, sockets), shutdown_trigger=ended.wait)

    with ExitStack() as bound:
        sockets = bind(bound, "--port", how.host, how.port)
        try:
            uvloop.run(until_signal())
        except LifespanFailureError as error:
            log.error("%s", error)  # noqa: TRY400 - the message has all the facts
            return NOT_STARTED
    return 0


def _tell(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what ended a connection in a line: clients can cause it, by leaving or by sending what is not HTTP/2."""
    error = context.get("exception")
    if isinstance(error, asyncio.CancelledError):
        return  # the client has left
    log.warning("a connection ended: %s", escaped(repr(error) if error else context["message"]))
    log.debug("its error", exc_info=error)


def _config(settings: Settings, sockets: list[Any]) -> Any:
    from hypercorn.config import Config  # noqa: PLC0415 - as above

    from handler.edge.dispatch import streams  # noqa: PLC0415 - as the application
    from handler.edge.server import limits  # noqa: PLC0415 - as above

    config, bounds = Config(), limits.of(settings)
    log.setLevel(max(logging.WARNING, log.getEffectiveLevel()))  # the addresses have been printed
    config.bind = [f"fd://{each.detach()}" for each in sockets]
    config.errorlog = log
    config.keep_alive_timeout = settings.idle_timeout
    config.graceful_timeout = streams.GRACE_SECONDS
    config.h11_max_incomplete_size = config.h2_max_header_list_size = bounds.head
    config.h2_max_concurrent_streams = CALLS
    config.keep_alive_max_requests = ENDLESS
    config.include_server_header = False
    return config
