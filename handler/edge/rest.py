"""Answers the requests of protocols over HTTP: finds the route, has the job done, and phrases every failure."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from core.deadline import Deadline
from core.errors import SHOWN_CHARACTERS, ModelFailed, ServingError, TooLarge, shown
from core.records import NamedTuple
from core.wire import (
    Call,
    Dialect,
    HttpError,
    HttpRequest,
    HttpResponse,
    HttpStream,
    Options,
    Part,
    RouteNotFound,
    Waits,
    by_name,
)
from handler.edge import exchange
from handler.edge.exchange import Headers, Receive, Scope, Send
from handler.edge.flight import Flight
from handler.edge.gate.gate import AccessGate, Visitor
from handler.edge.jobs import HttpCodec, Job, ServedModels, WholeHead
from handler.edge.leaving import Leaving
from handler.edge.observe.observer import Observer
from handler.edge.observe.record import RECORD, Failure, Record, own_id, refused
from handler.edge.ongoing import Ongoing
from handler.edge.protocols import INTERNAL, Destination, RouteMatch, Routes, identified, phrased
from handler.edge.timing import Clock, Timing
from handler.lifecycle.registry import Registry
from handler.settings import Settings

if TYPE_CHECKING:
    from handler.edge.dispatch.inline import Inline
    from handler.edge.dispatch.threads import Threads

log = logging.getLogger(__name__)
NEGATIVE: Final = 400
"""From this status on, an answer says no."""


class Tools(NamedTuple):
    """What all requests of an application share. `least`: bytes of an answer that are worth compressing."""

    dispatcher: "Inline | Threads"
    observer: Observer
    ongoing: Ongoing
    clock: Clock
    flight: Flight
    least: int


class MatchedHead(NamedTuple):
    """A request's head and its route. It serves several requests: clients send the same head again.

    `headers`: by name. `json_bytes`: of the body's JSON, before its tensors; 0 if no tensors follow.
    """

    scope: Scope
    headers: Headers
    match: RouteMatch
    json_bytes: int


class Rest:
    """The protocols over HTTP of one application."""

    def __init__(self, settings: Settings, registry: Registry, gate: AccessGate, tools: Tools) -> None:
        self.routes = Routes(settings.contract)
        self.options = Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)
        self._registry = registry
        self._may_run_code = settings.allow_code
        self._gate = gate
        self._tools = tools

    # -- whole requests -----------------------------------------------------------------------------------------------

    def head(self, scope: Scope, match: RouteMatch) -> WholeHead:
        """Returns the head of a request that may be answered at once. Its route is known."""
        model, dialect, headers = match.values.get("model"), match.dialect, by_name(scope["headers"])
        head = MatchedHead(scope, headers, match, _json_in(headers, dialect))
        raw_at = None if b"content-encoding" in headers else head.json_bytes
        answer = partial(self._at_once, head)
        return WholeHead(scope, headers, match.route.right, model, dialect.name, raw_at, answer)

    def _at_once(
        self, head: MatchedHead, body: Part, models: ServedModels, record: Record
    ) -> HttpResponse | HttpStream | None:
        """Returns the answer to a whole request, None if that is not sure to be quick."""
        match = head.match
        answer: HttpResponse | HttpStream | None
        try:
            answer = self._tools.dispatcher.at_once(self._job(head, body, models, record), match.route.waits)
            if answer is not None:
                answer = self._admitted(_repeating(answer, match.dialect, record), record)
                exchange.lines_of(answer.headers)
        except Exception as error:  # noqa: BLE001 - each has an answer
            answer = _failure(error, match.dialect, record.method, match.path)
        return answer

    # -- requests by ASGI ---------------------------------------------------------------------------------------------

    async def serve(
        self, destination: Destination, dialect: Dialect, visitor: Visitor, receive: Receive, send: Send
    ) -> None:
        """Answers a request in the words of a protocol, unless its client leaves."""
        with closing(ClientWatch(receive)) as watch:
            try:
                answer = await self._made(destination, dialect, visitor, receive, watch)
            except Exception as error:  # noqa: BLE001 - each has an answer
                answer = _failure(error, dialect, visitor.scope["method"], destination.path)
            if answer is not None:
                await self.sent(answer, RECORD.get(), watch, send)

    async def _made(
        self, destination: Destination, dialect: Dialect, visitor: Visitor, receive: Receive, watch: "ClientWatch"
    ) -> HttpResponse | HttpStream | None:
        """Returns the answer to a request; None if the client has left. Raises what its work raises."""
        scope, headers, record = visitor.scope, visitor.headers, RECORD.get()
        match = destination.match
        if match is None:
            match = await self._found(destination.path, dialect, visitor, record.timing.deadline)
        route = match.route
        record.right = route.right
        models = visitor.models(route.right, match.values.get("model"))
        head = MatchedHead(scope, headers, match, _json_in(headers, dialect))
        body = await exchange.gather(headers, receive, self.options.max_body_bytes, head.json_bytes, self._tools.flight)
        if body is None:
            return None
        record.timing.came = time.perf_counter_ns()
        job = self._job(head, body, models, record)
        answer: HttpResponse | HttpStream | None = self._tools.dispatcher.at_once(job, route.waits)
        if answer is None:
            answer = await self._later(job, route.waits, watch)
        if self._tools.dispatcher.buffers and isinstance(answer, HttpStream) and answer.last is None:
            answer = await self._whole(answer, record.timing)
        return None if answer is None else self._admitted(_repeating(answer, dialect, record), record)

    async def _later(self, job: Job[Any], waits: Waits, watch: "ClientWatch") -> HttpResponse | HttpStream | None:
        """Returns the answer of a job that takes a thread; None if the client has left."""
        with watch.leaving() as leaving:
            leaving.begin()
            answer: HttpResponse | HttpStream = await self._tools.dispatcher.later(job, waits)
            return answer
        return None

    async def _whole(self, stream: HttpStream, timing: Timing) -> HttpResponse | HttpStream:
        """Returns a stream that nobody reads piece by piece as a whole answer. Raises what would break it off."""
        if isinstance(stream.chunks, tuple):
            return stream
        dispatcher, parts, size = self._tools.dispatcher, list[bytes](), 0
        async with aclosing(dispatcher.each(stream.chunks, timing)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size > dispatcher.buffers:
                    raise TooLarge(f"the answer has more than {dispatcher.buffers} bytes, more than Lambda can carry")
        return HttpResponse(stream.status, stream.headers, tuple(parts))

    async def _found(self, path: str, dialect: Dialect, visitor: Visitor, deadline: Deadline) -> RouteMatch:
        """Raises RouteNotFound, MethodNotAllowed, Unauthenticated."""
        try:
            return self.routes.find(path, dialect, visitor.scope)
        except HttpError as error:
            visitor.recognise()
            models = await self.custom(path, visitor, deadline) if isinstance(error, RouteNotFound) else {}
            if not models:
                raise
            from core.dialects import custom  # noqa: PLC0415 - for models that answer HTTP themselves

            return RouteMatch(path, dialect, custom.route(visitor.scope["method"], path, models), {})

    async def custom(self, path: str, visitor: Visitor, deadline: Deadline) -> Mapping[str, Sequence[str]]:
        """Returns the models that answer whole requests on the path, each with its methods.

        The caller may use each of them. The question may cost a look at the store, but an unknown caller's costs none.
        """
        caller = visitor.identity
        if not self._may_run_code or caller is None:
            return {}
        found = await self._tools.dispatcher.aside(self._registry.custom, path, deadline)
        return found if caller.models is None else {name: found[name] for name in found if caller.may_use(name)}

    def _job(self, head: MatchedHead, body: Part, models: ServedModels, record: Record) -> Job[Any]:
        """Returns the job of a request, and notes in its record what is worked on."""
        (path, _, route, values), scope, headers = head.match, head.scope, head.headers
        record.right, record.received, record.timing.protocol = route.right, len(body), record.protocol
        query = scope.get("query_string", b"")
        request = HttpRequest(scope["method"], path, headers, body, self.options, query, record.own_id)
        least = scope.get(exchange.COMPRESS_KEY, self._tools.least)
        codec = record.codec = HttpCodec(route, Call(request, values), least, head.json_bytes)
        return Job(codec, models, record.timing)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _admitted(self, answer: HttpResponse | HttpStream, record: Record) -> HttpResponse | HttpStream:
        """Returns an answer that fits beside the bytes in flight until its client has read it. Raises ServerBusy."""
        if isinstance(answer, HttpResponse) and record.method != "HEAD":
            exchange.admit(answer.length, record.received, self._tools.flight)
        return answer

    async def sent(self, answer: HttpResponse | HttpStream, record: Record, watch: "ClientWatch", send: Send) -> None:
        """Sends an answer. The whole request has been read."""
        tools = self._tools
        if isinstance(answer, HttpStream):
            record.last = answer.last
            await self._streamed(answer, watch, send, record)
            record.last = None
        else:
            await exchange.answer(answer, record.method, send, tools.clock.headers(record.timing), tools.flight)

    async def _streamed(self, stream: HttpStream, watch: "ClientWatch", send: Send, record: Record) -> None:
        timing, received = record.timing, record.received
        headers = [*stream.headers, exchange.UNBUFFERED, *self._tools.clock.headers(timing)]
        await send({"type": "http.response.start", "status": stream.status, "headers": headers})
        with watch.leaving() as leaving:
            leaving.begin(0)
            try:
                async with aclosing(self._tools.dispatcher.each(stream.chunks, timing)) as chunks:
                    async for chunk in chunks:
                        if stream.last is not None:  # otherwise the answer would be cut off without a reason
                            exchange.admit(len(chunk), received, self._tools.flight)
                        await exchange.proceed(chunk, send, self._tools.flight)
            except ServingError as error:
                if stream.last is None:
                    raise
                timing.broke(error)
                await exchange.proceed(stream.last(error), send, self._tools.flight)
        if leaving.left:
            return
        await send({"type": "http.response.body", "body": b""})


class ClientWatch:
    """The one watch over the client of a request, for work that takes long. Most requests need none."""

    __slots__ = ("_leaving", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._leaving: Leaving | None = None

    def leaving(self) -> Leaving:
        if self._leaving is None:
            self._leaving = Leaving(self._receive)
        return self._leaving

    def close(self) -> None:
        if self._leaving is not None:
            self._leaving.close()


def _json_in(headers: Headers, dialect: Dialect) -> int:
    """Returns the bytes of a body's JSON, before its tensors; 0 if no tensors follow."""
    name = dialect.json_length
    return exchange.length_in(headers, name) if name else 0


def _repeating(answer: HttpResponse | HttpStream, dialect: Dialect, record: Record) -> HttpResponse | HttpStream:
    """Returns an answer that says "not ready" or "not found" with the client's own id, and notes why it does.

    A model's own answer stays.
    """
    if answer.status < NEGATIVE or not isinstance(answer, HttpResponse) or record.timing.use is not None:
        return answer
    if answer.why is not None:
        fault, text = answer.why
        record.error = Failure(fault.name, text[:SHOWN_CHARACTERS])
    return identified(answer, dialect, record.own_id)


def _failure(error: Exception, dialect: Dialect, method: str, path: str) -> HttpResponse:
    """Returns the refusal of a request in the words of its protocol."""
    if not isinstance(error, ServingError):
        log.error("%s %s failed", method, shown(path), exc_info=error)
        error = ModelFailed(INTERNAL)
    refused(error)
    return phrased(dialect, error, method, path, own_id())
