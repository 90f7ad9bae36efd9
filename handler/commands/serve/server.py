"""`dragoman serve`: the application under uvicorn, on an address that is known to be free."""

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from core.records import NamedTuple
from handler.backends.forks import PORTS
from handler.commands.serve import reload, welcome
from handler.settings import InvalidSettings, Settings
from handler.stores import private

NOT_STARTED: Final = 3
"""The exit code that uvicorn's own command has for it."""


class Serving(NamedTuple):
    """Where and how to serve. `grpc_port`: 0 without gRPC. `file`: the TOML file that the settings come from.

    `api`: the API in front of the function, "rest" or "http"; "off" for a server. `http2`: HTTP/2, too.
    """

    host: str
    port: int
    grpc_port: int = 0
    on_empty: str = "serve"
    reload: bool = False
    api: str = "off"
    file: Path | None = None
    http2: bool = False

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def rpc_address(self) -> str:
        port = self.grpc_port or self.port
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def serve(settings: Settings, how: Serving) -> int:
    """Serves until a signal. Prints the addresses once they are known to be free. Raises InvalidSettings."""
    check_packages(how)
    if how.reload:
        reload.check(settings)
    from handler import asgi  # noqa: PLC0415 - the application, whose packages take most of the start

    app = asgi.create(settings)
    seen = welcome.look(app, settings, waits=how.on_empty == "stop")
    if how.on_empty == "stop" and not seen.models:
        app.close()
        raise InvalidSettings(seen.problem)
    served = with_grpc(app, how)
    with ExitStack() as watching:
        if how.reload:
            reloader = reload.Reloader(settings, app.registry)
            reloader.start()
            watching.callback(reloader.close)
        return run(served, settings, how, welcomed(seen, settings, how))


def welcomed(seen: welcome.Glance, settings: Settings, how: Serving) -> Callable[[], None]:
    """Returns what prints the addresses."""
    rpc = how.rpc_address if how.grpc_port or how.http2 else ""
    return partial(welcome.say, seen, settings, how.url, rpc, how.file)


def serve_function(settings: Settings, how: Serving, environ: Mapping[str, str]) -> int:
    """Serves the function behind what API Gateway does, until a signal. Raises InvalidSettings.

    `settings`: the function's, whose process gets them as `environ`.
    """
    others = {
        "gRPC": how.grpc_port,
        "--reload": how.reload,
        "--workers": settings.workers > 1,
        "--http2": how.http2,
        "--on-empty stop": how.on_empty == "stop",
    }
    for other in (name for name, is_on in others.items() if is_on):
        raise InvalidSettings(f"--lambda has no {other}: leave one of the two out")
    check_packages(how)
    from handler.commands.serve.gateway import APIS, Gateway  # noqa: PLC0415 - for those who try the function
    from handler.edge import log_lines  # noqa: PLC0415 - as above

    log_lines.begin(settings.log_level, settings.log_format)
    gateway = Gateway(APIS[how.api], environ)
    url = how.url + APIS[how.api].prefix
    return run(gateway, settings, how, partial(welcome.say_function, settings, url, how.api, how.file))


def check_packages(how: Serving) -> None:
    """Raises InvalidSettings if a package is missing that the server needs: the function has none of them."""
    if find_spec("uvicorn") is None:
        raise InvalidSettings("`dragoman serve` needs uvicorn: pip install 'dragoman[server]'")
    if how.http2 and not (find_spec("zttp") and find_spec("uvicorn.protocols.http.zttp_h2_impl")):
        raise InvalidSettings("`--http2` needs zttp, and a uvicorn that knows it: pip install 'dragoman[http2]'")
    if how.grpc_port and find_spec("grpc") is None:
        raise InvalidSettings("`--grpc-port` needs grpcio: pip install 'dragoman[grpc]'")


def run(
    served: Any,
    settings: Settings,
    how: Serving,
    say: Callable[[], None],
    server_of: Callable[[Any], Any] | None = None,
) -> int:
    """Serves an application until a signal. `say`: prints the addresses. `server_of`: makes uvicorn's server."""
    import uvicorn  # noqa: PLC0415 - as above

    config = uvicorn.Config(
        served,
        host=how.host,
        port=how.port,
        log_level=settings.log_level.lower(),
        log_config=None,  # its loggers write as ours do
        access_log=False,
        http=_protocol(settings, how),
        ws="none",
        timeout_keep_alive=settings.idle_timeout,  # type: ignore[arg-type] # for call_later, which takes fractions
        timeout_graceful_shutdown=settings.shutdown_timeout,  # type: ignore[arg-type] # for asyncio.wait_for
    )
    server = (server_of or uvicorn.Server)(config)
    with ExitStack() as bound:
        if how.grpc_port and settings.workers == 1:
            with ExitStack() as tried:  # gRPC binds by itself, and says less
                bind(tried, "--grpc-port", how.host, how.grpc_port)
        sockets = bind(bound, "--port", how.host, how.port, shared=settings.workers > 1)
        say()
        try:
            with _ends_by_sigterm():
                server.run(sockets=sockets)
        except KeyboardInterrupt:
            _end(signal.SIGINT)
    return 0 if server.started else NOT_STARTED


@contextmanager
def _ends_by_sigterm() -> Iterator[None]:
    """Ends the process when uvicorn, which has stopped, raises its SIGTERM again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: Any = None) -> None:
    """Ends the process by a signal. The interpreter would wait for the models that are being loaded."""
    with suppress(OSError, ValueError):  # ValueError: a model's code has closed it
        sys.stdout.flush()
    private.forget()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _protocol(settings: Settings, how: Serving) -> Any:
    """Returns the protocol of connections, with the bounds of the settings."""
    from handler.edge.server import limits  # noqa: PLC0415 - as the application
    from handler.edge.server.protocol import BoundedHttp  # noqa: PLC0415 - needs uvicorn

    protocol: type[BoundedHttp] = BoundedHttp
    if how.http2:
        from handler.edge.server.http2 import EitherHttp  # noqa: PLC0415 - an extra

        protocol = EitherHttp
    return type(protocol.__name__, (protocol,), {"bounds": limits.of(settings)})


def bind(stack: ExitStack, flag: str, host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Returns sockets on all addresses of a host, which the stack closes. Raises InvalidSettings if one is taken.

    `shared`: other processes of this user may listen there, too.
    """
    sockets = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # `::` is for IPv4, too, as gRPC's
            made.bind(address)
            PORTS.add(made.getsockname()[1])
            sockets.append(made)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidSettings(f"cannot listen on {host}:{port}: {reason}; choose another {flag} or --host") from None
    return sockets


def with_grpc(app: Any, how: Serving) -> Any:
    """Returns the application with its hooks, beside a gRPC server of the same models if that has a port."""
    from handler import asgi  # noqa: PLC0415 - as the application

    if how.grpc_port or how.http2:
        app.speaks_grpc(how.grpc_port)
    if not how.grpc_port:
        return asgi.hooked(app)
    from handler.edge import rpc  # noqa: PLC0415 - an extra, which needs grpcio

    return asgi.hooked(app, rpc.Beside(app, how.rpc_address))
