"""Watches gRPC's calls, as the application watches requests over HTTP: each has a record, a count and a line."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import unquote

from core.wire import REQUEST_ID, Right
from handler.edge.observe.observer import Observer
from handler.edge.observe.record import CANCELLED, OK, RECORD, Record, drawn

NAME: Final = REQUEST_ID.decode()
METHOD: Final = "gRPC"
One = Callable[[AsyncIterator[bytes], Any], Awaitable[Any]]
Many = Callable[[AsyncIterator[bytes], Any], AsyncGenerator[Any]]


class CallWatch:
    """The calls of one server. A context is grpc.aio's."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def one(self, path: str, right: Right | None, behaviour: One) -> One:
        """Returns the behaviour of a call with one answer, watched."""

        async def watched(bodies: AsyncIterator[bytes], context: Any) -> Any:
            record = begun(path, right, context)
            try:
                answer = await behaviour(bodies, context)
                if answer is not None:
                    record.status, record.sent = OK, len(answer)
                return answer
            finally:
                self._end(record, context)

        return watched

    def many(self, path: str, right: Right | None, behaviour: Many) -> Many:
        """The same of a call with any number of answers."""

        async def watched(bodies: AsyncIterator[bytes], context: Any) -> AsyncGenerator[Any]:
            record = begun(path, right, context)
            try:
                async with aclosing(behaviour(bodies, context)) as answers:
                    async for answer in answers:
                        record.sent += len(answer)
                        yield answer
                record.status = OK
            finally:
                self._end(record, context)

        return watched

    def _end(self, record: Record, context: Any) -> None:
        client = client_of(context.peer()) if record.caller else None
        if client is not None:
            record.peer = client[0]  # the gate decides before the call's address is known
        if not record.status:
            record.status = CANCELLED if record.error is None else record.error.fault
        self._observer.end(record)


def client_of(peer: str) -> tuple[str, int] | None:
    """Returns the address in "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000", None for a socket of another kind."""
    kind, _, address = peer.partition(":")
    host, _, port = unquote(address).rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None


def begun(path: str, right: Right | None, context: Any) -> Record:
    """Begins the record of a call, unless the doorkeeper has, and echoes its id."""
    record = RECORD.get(None) or expected(path, context.invocation_metadata())
    record.right = right
    context.set_trailing_metadata(((NAME, record.request_id.decode()),))
    return record


def expected(path: str, metadata: Any) -> Record:
    """Returns the record of a call whose head has come, and makes it the task's."""
    sent = [value for name, value in metadata or () if name == NAME]
    record = Record(METHOD, path, drawn())
    if len(sent) == 1:  # as over HTTP, where several are one list, and so not an id
        record.take(sent[0] if isinstance(sent[0], bytes) else sent[0].encode())
    record.protocol = "grpc"
    RECORD.set(record)
    return record


def trailers(*more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata of the current call: its id, and more."""
    record = RECORD.get(None)
    return more if record is None else ((NAME, record.request_id.decode()), *more)
