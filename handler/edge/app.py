"""The ASGI application: finds a request's dialect and route, runs the operation, phrases whatever goes wrong.

Requests that no protocol knows go to the pages, which is imported then and not before.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Final, TypeVar

from core.dialects import DIALECTS
from core.errors import ModelFailed, ServingError
from core.wire import (
    Call,
    Dialect,
    Header,
    HttpRequest,
    HttpResponse,
    HttpStream,
    Options,
    Route,
    RouteNotFound,
    Router,
    Waits,
)
from handler.edge import bodies, streams
from handler.edge.bodies import Receive
from handler.edge.jobs import AnyJob, Job, Sent, waited_here
from handler.edge.protocols import INTERNAL, Scope, is_rpc, path_of
from handler.edge.timing import HEADER, RESTORED, Clock, Timing
from handler.edge.waiting import landed, until
from handler.edge.workers import Workers
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Pending
from handler.settings import Settings

log = logging.getLogger(__name__)
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")
LOADERS: Final = 4
"""Models loaded at the same time; each load waits mostly for the network."""
ASIDE: Final = 4
"""Threads for everything but inference, which may ask the store: health is answered however busy the models are."""
COMPRESS_FROM: Final = 1024
COMPRESS_FROM_INLINE: Final = 1024 * 1024
"""On Lambda the gateway compresses (template.yaml) until an answer comes near what a function may return."""


class App:
    """`inline`: run everything in the caller's thread, as on Lambda, where an instance has one request at a time."""

    def __init__(self, settings: Settings, *, inline: bool = False) -> None:
        self.settings = settings
        self._workers = None if inline else Workers(settings.threads, settings.queue)
        self._aside = None if inline else ThreadPoolExecutor(ASIDE, "dragoman-aside")
        self._loaders = None if inline else ThreadPoolExecutor(LOADERS, "dragoman-load")
        self.registry = Registry(settings, self._loaders)
        self._options = Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)
        self._routers = [(dialect, Router(dialect)) for dialect in DIALECTS]
        self.inline = inline
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

    def start(self) -> None:
        """Begin to load the models that the settings name; the server listens meanwhile."""
        if self._aside is None:
            self.registry.preload()
        else:
            self._aside.submit(self.registry.preload)

    def close(self) -> None:
        """End the threads; nothing can be asked afterwards."""
        if self._workers is not None:
            self._workers.close()
        for executor in filter(None, (self._loaders, self._aside)):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        protocol = next((pair for pair in self._routers if pair[0].owns(path)), None)
        if protocol is None and not _is_call(path) and await self._custom(path):
            protocol = self._routers[0]
        if protocol is not None:
            timing = Timing()
            response = await self._protocol(protocol, path, scope, receive, timing)
            if isinstance(response, HttpStream):
                await self._send_stream(response, receive, send, self._headers(timing))
            elif response is not None:
                await _send(response, scope, send, self._headers(timing))
        else:
            timing = Timing()
            await self._elsewhere(path, scope, receive, self._timing(send, timing), timing)

    async def _elsewhere(self, path: str, scope: Scope, receive: Receive, send: Send, timing: Timing) -> None:
        """What is no dialect's: remote calls and the pages, which are imported when they are asked for."""
        if is_rpc(path):
            from handler.edge import connect  # noqa: PLC0415 - protobuf, and nothing for who does without it

            await connect.serve(self, scope, receive, send, timing)
            return
        root = _root(scope) if path == "/" else None
        if root is not None:
            await _send(root, scope, send)
        elif self.settings.site:
            await self._site_app()(scope, receive, send)
        else:
            await _send(self._unrouted(scope["method"], path), scope, send)

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
        """The answer, None if the client has gone."""
        dialect, router = protocol
        try:
            headers = dict(scope["headers"])
            body = await bodies.gather(headers, receive, self._options.max_body_bytes)
            if body is None:
                return None
            route, values = await self._find(router, scope["method"], path)
            query = scope.get("query_string", b"")
            request = HttpRequest(scope["method"], path, headers, body, self._options, query)
            timing.came = time.perf_counter_ns()
            job = Job(self.registry, route, Call(request, values), self.compress_from, timing)
            return await self.answer(job, route.waits, timing)
        except ServingError as error:
            return dialect.refuse(error, scope["method"], path)
        except Exception:
            log.exception("%s %s failed", scope["method"], path)
            failure = ModelFailed(INTERNAL)
            return dialect.refuse(failure, scope["method"], path)

    async def _find(self, router: Router, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Raises RouteNotFound, MethodNotAllowed."""
        try:
            return router.find(method, path)
        except RouteNotFound:
            models = await self._custom(path)
            if not models:
                raise
            from core.dialects import custom  # noqa: PLC0415 - for those whose models speak HTTP themselves

            return custom.route(method, path, models), {}

    async def _custom(self, path: str) -> Mapping[str, Sequence[str]]:
        """The models that answer whole requests on the path, with the methods that they take."""
        if not self.settings.allow_code:
            return {}
        if self._aside is None:
            return self.registry.custom(path)
        return await asyncio.get_running_loop().run_in_executor(self._aside, self.registry.custom, path)

    async def answer(
        self,
        job: AnyJob[Sent],
        waits: Waits,
        timing: Timing | None = None,
        left: Callable[[], float | None] = lambda: None,
    ) -> Sent:
        """What the job makes of its request, in a thread that suits what it may wait for. Raises ServingError.

        `timing`: gets what it waited for its model. `left`: seconds that whoever asked still waits, None: no limit.
        """
        limit: float | None = None
        while True:
            try:
                if self._workers is None or waits is Waits.NOTHING or (waits is Waits.MODEL and job.is_quick()):
                    return job.run()
                return await self._run(job, waits, self._workers)
            except Pending as pending:
                limit = limit or until(self.settings.patience, left())
                result = await landed(pending.flight, timing or Timing(), limit)
                if pending.final:
                    return job.phrase(result)

    def timed(self, timing: Timing) -> bytes:
        """Where the time of a request went, as the header says it; empty where that is switched off."""
        waited_here(self.registry, timing)
        return self.clock.text(timing)

    def _headers(self, timing: Timing) -> tuple[Header, ...]:
        text = self.timed(timing)
        return ((HEADER, text),) if text else ()

    def _timing(self, send: Send, timing: Timing) -> Send:
        """For what sends its answers itself."""

        async def timed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers(timing)]
            await send(message)

        return timed

    def restored(self) -> None:
        """A snapshot of this process goes on, elsewhere and later."""
        self.clock.start = RESTORED
        self.registry.restored()

    def each(self, items: Iterable[T]) -> AsyncGenerator[T]:
        """The items of a stream, as its model makes them and the client takes them. To be closed."""
        return streams.each(items, self._workers)

    async def _send_stream(
        self, stream: HttpStream, receive: Receive, send: Send, more: tuple[Header, ...] = ()
    ) -> None:
        await send({"type": "http.response.start", "status": stream.status, "headers": [*stream.headers, *more]})
        gone = asyncio.create_task(bodies.disconnected(receive))
        try:
            async with aclosing(self.each(stream.chunks)) as chunks:
                async for chunk in chunks:
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _run(self, job: AnyJob[Sent], waits: Waits, workers: Workers) -> Sent:
        if waits in (Waits.MODEL, Waits.LONG):
            answer: Sent = await workers.run(job.run)
            return answer
        return await asyncio.get_running_loop().run_in_executor(self._aside, job.run)


def _is_call(path: str) -> bool:
    """Whether it is a remote call's, and so no model's own, whatever a model's settings say."""
    if not is_rpc(path):
        return False
    from handler.edge import connect  # noqa: PLC0415 - as in _elsewhere

    return path in connect.METHODS


def _root(scope: Scope) -> HttpResponse | None:
    """What a protocol answers at the root, if the client reads no HTML."""
    if scope["method"] not in ("GET", "HEAD") or b"text/html" in dict(scope["headers"]).get(b"accept", b""):
        return None
    return next((dialect.root for dialect in DIALECTS if dialect.root), None)


async def _send(response: HttpResponse, scope: Scope, send: Send, more: tuple[Header, ...] = ()) -> None:
    headers = [*response.headers, (b"content-length", b"%d" % response.length), *more]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    parts = response.parts
    body = b"" if scope["method"] == "HEAD" else parts[0] if len(parts) == 1 else b"".join(parts)
    await send({"type": "http.response.body", "body": body})
