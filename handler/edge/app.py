"""The ASGI application: finds a request's dialect and route, has it worked on, and phrases every failure.

Requests that no protocol knows go to the site, which is imported then and not before.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.dialects import DIALECTS
from core.wire import REQUEST_ID
from handler.edge import exchange
from handler.edge.at_once import AtOnce
from handler.edge.dispatch.inline import Inline
from handler.edge.elsewhere import Elsewhere
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.flight import NO_LIMIT, flight_of
from handler.edge.gate.gate import AccessGate, Visitor
from handler.edge.jobs import ServedModels
from handler.edge.observe.kinds import observer_of
from handler.edge.observe.record import RECORD, Record
from handler.edge.ongoing import Ongoing
from handler.edge.protocols import Destination
from handler.edge.rest import Rest, Tools
from handler.edge.timing import RESTORED, Clock, Timing
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background, wait_for
from handler.settings import Settings
from handler.stores import private

if TYPE_CHECKING:
    from handler.edge.dispatch.threads import Threads

log = logging.getLogger(__name__)
COMPRESS_FROM: Final = 1024
COMPRESS_FROM_INLINE: Final = 1024 * 1024
"""A REST API's gateway compresses (template.yaml), up to answers near the most that a function can return."""


class App:
    """`inline`: runs everything in the caller's thread, as on Lambda, where an instance has one request at a time.

    `freezes`: nothing can run after a request. `shared`: returns the models of all processes of this server, made of
    this one's. `abreast`: the most requests of one stream under way.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        inline: bool = False,
        freezes: bool = False,
        shared: Callable[[Registry], ServedModels] | None = None,
    ) -> None:
        self.settings = settings
        self.dispatcher: Inline | Threads = Inline(settings) if inline else _threads(settings)
        self.registry = Registry(settings, self.dispatcher.loaders, self.dispatcher.trouble)
        self.flight = NO_LIMIT if inline else flight_of(settings)
        self.gate = AccessGate(settings, self.registry if shared is None else shared(self.registry))
        self.abreast = 1 if inline or settings.stream_order == "request" else settings.threads
        self._connect: Any = None
        self.compress_from = COMPRESS_FROM_INLINE if inline else COMPRESS_FROM
        self.clock = Clock(on=settings.server_timing)
        self.observer = observer_of(settings, self.registry, self.dispatcher, freezes=inline or freezes)
        self._ongoing = Ongoing(self.observer)
        tools = Tools(self.dispatcher, self.observer, self._ongoing, self.clock, self.flight, self.compress_from)
        self.rest = Rest(settings, self.registry, self.gate, tools)
        self.whole_requests = AtOnce(self.gate, tools, self.rest) if self.observer.is_plain else None
        self._elsewhere = Elsewhere(settings, self.registry, self.observer, self.dispatcher)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            record = self.observer.begin(scope, send)
            await self._ongoing.recorded(record, scope, self.serve(scope, receive, record.send))
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await exchange.refuse_websocket(receive, send)
        else:
            raise RuntimeError(f"{scope['type']} is not served")

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers a request over HTTP, whose record another edge has begun and will end."""
        return self.gate.serve(self._http, scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Threads stay with the application, which test clients start and shut down many times; `close` ends them.

        Folders of this process do not stay: uvicorn ends by its signal, and the interpreter then removes nothing.
        """
        await receive()
        self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._ongoing.ended()
        self.observer.close()
        private.forget()
        await send({"type": "lifespan.shutdown.complete"})

    def speaks_grpc(self, port: int) -> None:
        """Notes for the site that the server has gRPC. `port`: 0 for the port of HTTP."""
        self._elsewhere.grpc_port = port

    def start(self, deadline: Deadline = NEVER) -> None:
        """Begins to load the models that the settings name; the server listens meanwhile."""
        self.dispatcher.begin(partial(self._preload, deadline))

    def prepare(self, deadline: Deadline = NEVER) -> None:
        """Loads the models that the settings name, and waits for them until the deadline."""
        wait_for(self.registry.preload(Background(deadline)), deadline)

    def _preload(self, deadline: Deadline) -> None:
        self.registry.preload(Background(deadline))

    def close(self) -> None:
        """Ends the threads; no request can be answered afterwards."""
        self.observer.close()
        self.dispatcher.close()
        self.registry.close()

    def _http(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        record, destination = RECORD.get(), self.rest.routes.destination(scope)
        record.timing = Timing(scope.get(SCOPE_KEY, NEVER))
        sent = visitor.headers.get(REQUEST_ID)
        if sent is not None:
            record.take(sent)
        if destination.dialect is None:
            return self._unowned(destination, visitor, receive, send, record)
        record.protocol = destination.dialect.name
        return self.rest.serve(destination, destination.dialect, visitor, receive, send)

    async def _unowned(
        self, destination: Destination, visitor: Visitor, receive: Receive, send: Send, record: Record
    ) -> None:
        """Answers a request whose path belongs to no protocol: by a remote call, a model itself, or the site."""
        scope, timing, path = visitor.scope, record.timing, destination.path
        calls = self._calls() if destination.is_rpc else None
        may_be_a_models = path not in self._elsewhere.metrics and (calls is None or path not in calls.methods)
        models = await self.rest.custom(path, visitor, timing.deadline) if may_be_a_models else {}
        if models and not self._elsewhere.keeps(scope["method"], path, models):
            record.protocol = "custom"
            await self.rest.serve(destination, DIALECTS[0], visitor, receive, send)
        elif calls is not None:
            await calls.serve(path, receive, send, visitor, timing)
        else:
            record.protocol = "site"
            await self._elsewhere.serve(path, scope, receive, self._timed(send, timing, scope["method"]), visitor)

    def _calls(self) -> Any:
        if self._connect is None:
            from handler.edge.calls.call import CallTools  # noqa: PLC0415 - protobuf, which servers of REST alone do without
            from handler.edge.calls.codec import CallOptions  # noqa: PLC0415 - as above
            from handler.edge.calls.connect import Calls  # noqa: PLC0415 - as above
            from handler.edge.idling import Idling, most_idle  # noqa: PLC0415 - as above
            from handler.edge.server.limits import of  # noqa: PLC0415 - as above

            idling = Idling(most_idle(of(self.settings).connections))
            options = CallOptions(self.settings.max_body_bytes, self.compress_from, self.flight, self.abreast, idling)
            self._connect = Calls(CallTools(self.dispatcher, self.clock), options)
            if self.whole_requests is not None:
                self.whole_requests.calls = self._connect
        return self._connect

    def _timed(self, send: Send, timing: Timing, method: str) -> Send:
        """Wraps `send` for the responses that the site sends itself: Server-Timing, and no body in answers to HEAD."""

        async def timed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.clock.headers(timing)]
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        return timed

    def restored(self, deadline: Deadline) -> None:
        """Goes on from a snapshot of this process, elsewhere and later."""
        self.clock.start = RESTORED
        self.registry.restored(deadline)


def _threads(settings: Settings) -> "Threads":
    from handler.edge.dispatch.threads import Threads  # noqa: PLC0415 - Lambda has no threads to start

    return Threads(settings)
