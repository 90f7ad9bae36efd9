"""An observer that also makes traces of requests, and logs their payloads, when they have ended."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from core.wire import Part, Right
from handler.edge.exchange import Scope, Send
from handler.edge.observe.calls import CallWatch, Many, One
from handler.edge.observe.observer import Observer
from handler.edge.observe.record import RECORD, Record
from handler.lifecycle.registry import Registry
from handler.settings import Settings

if TYPE_CHECKING:
    from handler.edge.observe.facts import Queue
    from handler.edge.observe.payloads.log import Copy, PayloadLog
    from handler.edge.observe.traces.spans import RequestSpans

CALLS: Final = frozenset(("grpc", "grpc-web", "connect"))


class Notes:
    """What is kept of a request until it ends. `headers`: ASGI's, or gRPC's metadata. `copy`: of its answer.

    `scheme`, `query`: of its URL, empty over gRPC.
    """

    __slots__ = ("copy", "headers", "query", "scheme")

    def __init__(self, headers: Any = (), copy: "Copy | None" = None) -> None:
        self.headers = headers
        self.copy = copy
        self.scheme = ""
        self.query = b""


NOTHING: Final = Notes()
"""The notes of an event of a function that did not become a request."""


class TappedObserver(Observer):
    """An application's, where a setting wants more than counts and lines."""

    is_plain = False

    def __init__(self, settings: Settings, registry: Registry, queue: "Queue", *, freezes: bool) -> None:
        """Raises InvalidSettings: a setting, or one of OpenTelemetry's, is wrong, or a package is not installed."""
        super().__init__(settings, registry, queue, freezes=freezes)
        self._spans = None if settings.traces == "off" else _spans(settings, freezes=freezes)
        self._payloads = _payloads(settings, self.counts.payloads, freezes=freezes) if settings.payload_log else None
        self._flushes = freezes

    def begin(self, scope: Scope, send: Send) -> Record:
        notes = self.noted(scope["headers"])
        notes.scheme = scope.get("scheme", "http")
        notes.query = scope.get("query_string", b"")
        record = super().begin(scope, send if notes.copy is None else notes.copy.through(send))
        record.notes = notes
        return record

    def noted(self, headers: Any) -> Notes:
        """Returns the notes of a request that has come."""
        return Notes(headers, None if self._payloads is None else self._payloads.drawn())

    def end(self, record: Record) -> None:
        timing, notes = record.timing, record.notes or NOTHING
        route, body = _asked(record)
        model = self._asked_for(record)
        headers = texts(notes.headers or ())
        span = None if self._spans is None else self._spans.begin(record, headers, route)
        super().end(record)
        if span is not None and self._spans is not None:
            self._spans.end(span, record, timing, route, model)
            if self._flushes:
                self._spans.flush(record.until)
        if notes.copy is not None and self._payloads is not None:
            self._payloads.take(record, notes.copy, (headers, notes.query, body), model)
        record.notes = None

    def _asked_for(self, record: Record) -> tuple[str, str]:
        """Returns the model and version that have worked on the request, else those that it has named."""
        timing = record.timing
        if timing is not None and timing.use is not None:
            spec = timing.use.model.spec
            return spec.name, spec.version
        return self._named(record) if record.codec is not None else ("", "")

    def close(self) -> None:
        super().close()
        if self._spans is not None:
            self._spans.flush(math.inf)
        if self._payloads is not None:
            self._payloads.close()


class TappedCalls(CallWatch):
    """The calls of a gRPC server, with their metadata and messages."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._tapped: TappedObserver = observer

    def one(self, path: str, right: Right | None, behaviour: One) -> One:
        async def tapped(bodies: AsyncIterator[bytes], context: Any) -> Any:
            notes = RECORD.get().notes = self._tapped.noted(context.invocation_metadata())
            answer = await behaviour(bodies, context)
            if notes.copy is not None and answer is not None:
                notes.copy.add(answer)
            return answer

        return super().one(path, right, tapped)

    def many(self, path: str, right: Right | None, behaviour: Many) -> Many:
        async def tapped(bodies: AsyncIterator[bytes], context: Any) -> AsyncGenerator[Any]:
            RECORD.get().notes = Notes(context.invocation_metadata())
            async with aclosing(behaviour(bodies, context)) as answers:
                async for answer in answers:
                    yield answer

        return super().many(path, right, tapped)


def _spans(settings: Settings, *, freezes: bool) -> "RequestSpans":
    from handler.edge.observe.traces import provider  # noqa: PLC0415 - for servers with traces

    exporting = provider.connect(settings, freezes=freezes)
    from handler.edge.observe.traces import spans  # noqa: PLC0415 - needs what `connect` has found

    return spans.RequestSpans(exporting)


def _payloads(settings: Settings, counts: dict[str, int], *, freezes: bool) -> "PayloadLog":
    from handler.edge.observe.payloads.log import PayloadLog  # noqa: PLC0415 - for servers with a payload log

    return PayloadLog(settings, counts, freezes=freezes)


def texts(pairs: Iterable[tuple[bytes | str, bytes | str]]) -> dict[str, str]:
    """Returns headers, or gRPC's metadata, by lower-case name. Several of one name are one list (RFC 9110 5.2)."""
    found: dict[str, str] = {}
    for each, value in pairs:
        name, text = _text(each).lower(), _text(value)
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _asked(record: Record) -> tuple[str, Part]:
    """Returns the pattern of a request's path, "" if none is known, and its body."""
    if record.codec is not None:
        found: tuple[str, Part] = record.codec.asked()
        return found
    if record.right is None or record.protocol not in CALLS:
        return "", b""
    return "/" + "/".join(record.path.rsplit("/", 2)[1:]), b""
