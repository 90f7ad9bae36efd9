"""Which gRPC calls are let in, before their messages are read, and how a call is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc import aio

from core.dialects.connect import details, ends
from core.dialects.rpcs import RPCS
from core.errors import Fault, ServingError
from core.wire import headers_of
from handler.edge.calls.messages import unforeseen
from handler.edge.exchange import Scope
from handler.edge.gate.gate import AccessGate
from handler.edge.observe.calls import CallWatch, expected
from handler.edge.observe.record import own_id, refused

if TYPE_CHECKING:
    from handler.edge.jobs import ServedModels

Context = aio.ServicerContext[bytes, bytes]
CODES: Final = {fault: grpc.StatusCode[fault.name] for fault in Fault}
RIGHTS: Final = {method.path: method.rpc.right for method in RPCS}
ADMITTED: "Final[ContextVar[ServedModels | None]]" = ContextVar("admitted", default=None)
"""The models for the call of the current task, once the doorkeeper has admitted it."""
AbortArguments = tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]
"""The arguments of grpc's `abort`: code, details, trailing metadata."""


class Doorkeeper(aio.ServerInterceptor):
    """Refuses a call before its messages are read, if there is authentication."""

    def __init__(self, gate: AccessGate, calls: CallWatch) -> None:
        self._gate = gate
        self._calls = calls

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        expected(details.method, details.invocation_metadata)
        try:
            visitor = await self._gate.enter(scope_of(details.invocation_metadata, details.method, None))
            ADMITTED.set(visitor.models(RIGHTS.get(details.method)))
        except ServingError as error:
            return refusing(error, self._calls, details.method)
        except Exception as error:  # noqa: BLE001 - grpc would answer with its text
            return refusing(unforeseen(error, details.method), self._calls, details.method)
        return await continuation(details)


def refusing(error: ServingError, calls: CallWatch, path: str) -> Any:
    """Returns the handler of a call, a unary one, too, that is refused before a message is read."""
    return grpc.stream_stream_rpc_method_handler(calls.one(path, RIGHTS.get(path), partial(_refuse, error)))


async def _refuse(error: ServingError, _bodies: AsyncIterator[bytes], context: Context) -> None:
    await end(context, refusal_of(error))


async def end(context: Context, refusal: AbortArguments) -> None:
    """Ends a call with a refusal. Raises CancelledError if its client has left: grpc would log that as our error."""
    code, text, metadata = refusal
    try:
        await context.abort(code, text, (*context.trailing_metadata(), *metadata))
    except aio.InternalError:
        raise asyncio.CancelledError from None


def scope_of(metadata: Any, path: str, client: tuple[str, int] | None) -> Scope:
    """Returns a call as ASGI describes a request, for the gate."""
    headers = [
        (name.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "replace"))
        for name, value in metadata or ()
    ]
    return {"type": "grpc", "method": "gRPC", "path": path, "headers": headers, "client": client}


def refusal_of(error: ServingError) -> AbortArguments:
    """Returns how a call is refused, and notes it in the call's record."""
    refused(error)
    metadata: list[tuple[str, str | bytes]] = [(name.decode(), value.decode()) for name, value in headers_of(error)]
    code, text, sent = CODES[error.fault], ends.short(error), own_id()
    if sent:
        metadata.append((details.BINARY.decode(), details.status(code.value[0], text, sent)))
    return code, text, tuple(metadata)
