"""`dragoman serve`: the application under uvicorn, on an address that is known to be free."""

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from typing import Any, Final

from core.errors import ServingError
from handler.settings import InvalidSettings, Settings

PORTS: Final = range(1, 2**16)
NOT_STARTED: Final = 3
"""The exit code that uvicorn's own command has for it."""


def serve(settings: Settings, host: str, port: int, grpc_port: int | None) -> int:
    """Serves until a signal. Prints the addresses once they are known to be free. Raises InvalidSettings."""
    _check_ports(port, grpc_port)
    try:
        import uvicorn  # noqa: PLC0415 - an extra: the function has none
    except ImportError:
        raise InvalidSettings("`dragoman serve` needs uvicorn: pip install 'dragoman[server]'") from None
    from handler import asgi  # noqa: PLC0415 - reads the environment that main has set
    from handler.edge.dispatch import streams  # noqa: PLC0415 - as the application
    from handler.edge.server.protocol import BoundedHttp  # noqa: PLC0415 - needs uvicorn

    served: Any = asgi.app
    lines = [_welcome(settings, _models(asgi.app), f"http://{host}:{port}")]
    if grpc_port is not None:
        address = f"[{host}]:{grpc_port}" if ":" in host else f"{host}:{grpc_port}"
        served = _with_grpc(asgi.app, address)
        lines.insert(0, f"gRPC on {address}")
    config = uvicorn.Config(
        served,
        host=host,
        port=port,
        log_level=settings.log_level.lower(),
        log_config=None,  # its loggers write as ours do
        access_log=False,
        http=BoundedHttp,
        ws="none",
        timeout_graceful_shutdown=streams.GRACE_SECONDS,
        timeout_keep_alive=settings.idle_timeout,  # type: ignore[arg-type] # for call_later, which takes fractions
    )
    server = uvicorn.Server(config)
    with ExitStack() as bound:
        if grpc_port is not None:
            with ExitStack() as tried:  # gRPC binds by itself, and says less
                _bind(tried, "--grpc-port", host, grpc_port)
        sockets = _bind(bound, "--port", host, port)
        print(*lines, sep="\n", flush=True)  # noqa: T201 - the addresses, and commands to try
        with suppress(KeyboardInterrupt):
            server.run(sockets=sockets)
    return 0 if server.started else NOT_STARTED


def _models(app: Any) -> Sequence[str]:
    """Returns the names of the repository's models. Prints why there are none to be had."""
    from handler.lifecycle.single_flight import Background  # noqa: PLC0415 - as the application

    try:
        names: Sequence[str] = app.registry.names(Background())
    except ServingError as error:
        print(f"dragoman: the repository does not answer yet: {error.message}", file=sys.stderr)  # noqa: T201
        return ()
    return names


def _bind(stack: ExitStack, flag: str, host: str, port: int) -> list[socket.socket]:
    """Returns sockets on all addresses of a host, which the stack closes. Raises InvalidSettings if one is taken."""
    sockets = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
            made.bind(address)
            sockets.append(made)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidSettings(
            f"{host}:{port} cannot be listened on: {reason}; choose another {flag} or --host"
        ) from None
    return sockets


def _check_ports(port: int, grpc_port: int | None) -> None:
    """Raises InvalidSettings for a number that is not a port: gRPC would listen on its last 16 bits."""
    for flag, number in (("--port", port), ("--grpc-port", grpc_port)):
        if number is not None and number not in PORTS:
            raise InvalidSettings(f"{flag} is {number}; expected {PORTS[0]} to {PORTS[-1]}")


def _with_grpc(app: Any, address: str) -> Any:
    """Returns the application beside a gRPC server of the same models. Raises InvalidSettings."""
    if find_spec("grpc") is None:
        raise InvalidSettings("`--grpc-port` needs grpcio: pip install 'dragoman[grpc]'")
    from handler.edge import rpc  # noqa: PLC0415 - an extra, which needs grpcio

    return rpc.Beside(app, address)


def _welcome(settings: Settings, models: Sequence[str], url: str) -> str:
    """Returns the text that names the models, the address, and commands to try."""
    lines = [f"dragoman serves {settings.repository} on {url}: {', '.join(models) or 'no model yet'}", "", "Try:"]
    if "half_plus_three" in models:
        body = '{"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}]}'
        lines.append(f"  curl -d '{body}' {url}/v2/models/half_plus_three/infer")
    example = models[0] if models else "MODEL"
    lines += [f"  curl {url}/v2/models/{example}", f"  curl -X POST {url}/v2/repository/index", ""]
    lines.append(f"Status page: {url}/   API: {url}/docs")
    return "\n".join(lines)
