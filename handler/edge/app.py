"""The ASGI application: finds a request's dialect and route, lets it be worked on, phrases whatever goes wrong.

Requests that no protocol knows go to the site, which is imported then and not before.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.dialects import DIALECTS
from core.errors import ModelFailed, ServingError
from core.wire import Call, Dialect, HttpRequest, HttpResponse, HttpStream, Options, Route, RouteNotFound, Router
from handler.edge import exchange
from handler.edge.exchange import Receive, Scope, Send, is_rpc, path_of
from handler.edge.jobs import RESTORED, Clock, HttpCodec, Inline, Job, Timing
from handler.edge.protocols import INTERNAL
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

if TYPE_CHECKING:
    from handler.edge.dispatch import Threads

log = logging.getLogger(__name__)
COMPRESS_FROM: Final = 1024
COMPRESS_FROM_INLINE: Final = 1024 * 1024
"""On Lambda the gateway compresses (template.yaml) until an answer comes near what a function may return."""


class App:
    """`inline`: runs everything in the caller's thread, as on Lambda, where an instance has one request at a time."""

    def __init__(self, settings: Settings, *, inline: bool = False) -> None:
        self.settings = settings
        self.dispatcher: Inline | Threads = Inline() if inline else _threads(settings)
        self.registry = Registry(settings, self.dispatcher.loaders)
        self._options = Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)
        self._routers = [(dialect, Router(dialect)) for dialect in DIALECTS]
        self._connect: Any = None
        self.compress_from = COMPRESS_FROM_INLINE if inline else COMPRESS_FROM
        self._site: Any = None
        self.clock = Clock(on=settings.server_timing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise RuntimeError(f"{scope['type']} is not served")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Threads stay with the application, which test clients start and shut down many times; `close` ends them."""
        await receive()
        self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def start(self, deadline: Deadline = NEVER) -> None:
        """Begins to load the models that the settings name; the server listens meanwhile."""
        self.dispatcher.begin(lambda: self.registry.preload(Background(deadline)))

    def close(self) -> None:
        """Ends the threads; no request can be answered afterwards."""
        self.dispatcher.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        timing, path = Timing(scope.get(SCOPE_KEY, NEVER)), path_of(scope)
        protocol = next((pair for pair in self._routers if pair[0].owns(path)), None)
        if protocol is None:
            calls = self._calls() if is_rpc(path) else None
            if (calls is None or path not in calls.methods) and await self._custom(path, timing.deadline):
                protocol = self._routers[0]
            elif calls is not None:
                await calls.serve(scope, receive, send, timing)
                return
            else:
                await self._elsewhere(path, scope, receive, self._timed(send, timing))
                return
        response = await self._protocol(protocol, path, scope, receive, timing)
        if isinstance(response, HttpStream):
            await self._send_stream(response, receive, send, timing)
        elif response is not None:
            await exchange.answer(response, scope["method"], send, self.clock.headers(timing))

    async def _elsewhere(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what no protocol owns: the site, which is imported with its first request."""
        root = _root(scope) if path == "/" else None
        if root is not None:
            await exchange.answer(root, scope["method"], send)
        elif self.settings.site:
            await self._site_app()(scope, receive, send)
        else:
            await exchange.answer(self._unrouted(scope["method"], path), scope["method"], send)

    def _calls(self) -> Any:
        if self._connect is None:
            from handler.edge.connect import CallOptions, Calls  # noqa: PLC0415 - protobuf, which servers of REST alone do without

            options = CallOptions(self.settings.max_body_bytes, self.compress_from)
            self._connect = Calls(self.registry, self.dispatcher, self.clock, options)
        return self._connect

    def _site_app(self) -> Any:
        if self._site is None:
            from handler.site import pages  # noqa: PLC0415 - FastAPI costs as much as everything else together

            self._site = pages.create(self.registry, self.settings)
        return self._site

    def _unrouted(self, method: str, path: str) -> HttpResponse:
        dialect, router = self._routers[0]
        try:
            router.find(method, path)
        except ServingError as error:
            return dialect.refuse(error, method, path)
        raise AssertionError(path)

    async def _protocol(
        self, protocol: tuple[Dialect, Router], path: str, scope: Scope, receive: Receive, timing: Timing
    ) -> HttpResponse | HttpStream | None:
        """Returns the answer, None if the client has left."""
        dialect, router = protocol
        try:
            headers = dict(scope["headers"])
            tensors = exchange.length_in(headers, dialect.json_length) if dialect.json_length else 0
            body = await exchange.gather(headers, receive, self._options.max_body_bytes, tensors)
            if body is None:
                return None
            route, values = await self._find(router, scope["method"], path, timing.deadline)
            query = scope.get("query_string", b"")
            request = HttpRequest(scope["method"], path, headers, body, self._options, query)
            timing.came = time.perf_counter_ns()
            job = Job(HttpCodec(route, Call(request, values), self.compress_from), self.registry, timing)
            return await self.dispatcher.answer(job, route.waits)
        except ServingError as error:
            return dialect.refuse(error, scope["method"], path)
        except Exception:
            log.exception("%s %s failed", scope["method"], path)
            failure = ModelFailed(INTERNAL)
            return dialect.refuse(failure, scope["method"], path)

    async def _find(
        self, router: Router, method: str, path: str, deadline: Deadline
    ) -> tuple[Route, Mapping[str, str]]:
        """Raises RouteNotFound, MethodNotAllowed."""
        try:
            return router.find(method, path)
        except RouteNotFound:
            models = await self._custom(path, deadline)
            if not models:
                raise
            from core.dialects import custom  # noqa: PLC0415 - for models that answer HTTP themselves

            return custom.route(method, path, models), {}

    async def _custom(self, path: str, deadline: Deadline) -> Mapping[str, Sequence[str]]:
        """Returns the models that answer whole requests on the path, each with its methods."""
        if not self.settings.allow_code:
            return {}
        return await self.dispatcher.aside(self.registry.custom, path, deadline)

    def _timed(self, send: Send, timing: Timing) -> Send:
        """Wraps `send` to add Server-Timing to the responses that the site sends itself."""

        async def timed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.clock.headers(timing)]
            await send(message)

        return timed

    def restored(self, deadline: Deadline) -> None:
        """Goes on from a snapshot of this process, elsewhere and later."""
        self.clock.start = RESTORED
        self.registry.restored(deadline)

    async def _send_stream(self, stream: HttpStream, receive: Receive, send: Send, timing: Timing) -> None:
        headers = [*stream.headers, *self.clock.headers(timing)]
        await send({"type": "http.response.start", "status": stream.status, "headers": headers})
        gone = asyncio.create_task(exchange.disconnected(receive))
        try:
            async with aclosing(self.dispatcher.each(stream.chunks)) as chunks:
                async for chunk in chunks:
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})


def _threads(settings: Settings) -> "Threads":
    from handler.edge.dispatch import Threads  # noqa: PLC0415 - Lambda has no threads to start

    return Threads(settings)


def _root(scope: Scope) -> HttpResponse | None:
    """Returns what a protocol answers at the root, if the client does not read HTML."""
    if scope["method"] not in ("GET", "HEAD") or b"text/html" in dict(scope["headers"]).get(b"accept", b""):
        return None
    return next((dialect.root for dialect in DIALECTS if dialect.root), None)
