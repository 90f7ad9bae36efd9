"""Calls of gRPC among the requests of HTTP/2: how they are known, asked for their trailers, and refused."""

from typing import Any, Final

from core.dialects.connect.protocol import GRPC, is_native, kind_of
from core.errors import ServingError
from core.wire import by_name
from handler.edge import exchange
from handler.edge.exchange import Receive, Scope, Send, path_of

TE: Final = (b"te", b"trailers")


def is_call(scope: Any) -> bool:
    """Decides whether a request is a call of gRPC. Its client decides when it sends and reads.

    Its type alone does not make it one: any client can send that to any path, and only remote calls have own limits.
    """
    return is_native(by_name(scope["headers"])) and path_of(scope)[1]


def with_trailers(scope: Any) -> None:
    """Has uvicorn send the trailers of a call, which have its status, to a client that does not ask for them.

    The protocol has clients ask. Some do not, and grpc's servers in Go and Java answer them.
    """
    if TE not in scope["headers"]:
        scope["headers"].append(TE)


class CallRefusal:
    """An ASGI application that refuses a call for its head."""

    def __init__(self, error: ServingError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        await exchange.answer(kind_of({b"content-type": GRPC}).refuse(self._error), "POST", send)
