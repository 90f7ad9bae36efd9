"""The ASGI application: finds a request's dialect and route, runs the operation, phrases whatever goes wrong.

Requests that no protocol knows go to the site, which is imported then and not before.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from core import compression
from core.dialects import DIALECTS
from core.engine import execute
from core.errors import ModelFailed, ServingError, TooLarge
from core.operations import Infer, InferResult, ModelRef
from core.wire import Call, Dialect, Header, HttpRequest, HttpResponse, Options, Reply, Route, Router, Waits, padding
from handler.registry import Pending, Registry
from handler.settings import Settings
from handler.workers import Workers

log = logging.getLogger(__name__)
Headers = Mapping[bytes, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LOADERS: Final = 4
"""Models loaded at the same time; each load waits mostly for the network."""
ASIDE: Final = 4
"""Threads for everything but inference, which may ask the store: health is answered however busy the models are."""
GATHERED_IN_PLACE: Final = 8 * 1024 * 1024
"""The largest body for which memory is taken on the word of a Content-Length."""
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
        self._options = Options(settings.max_body_bytes, settings.non_finite == "null")
        self._routers = [(dialect, Router(dialect.routes)) for dialect in DIALECTS]
        self._compress_from = COMPRESS_FROM_INLINE if inline else COMPRESS_FROM
        self._site: Any = None

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
        path = _path(scope)
        for dialect, router in self._routers:
            if path == dialect.prefix or path.startswith(dialect.prefix + "/"):
                response = await self._protocol(dialect, router, path, scope, receive)
                if response is not None:
                    await _send(response, scope, send)
                return
        if self.settings.site:
            await self._site_app()(scope, receive, send)
        else:
            await _send(self._unrouted(scope["method"], path), scope, send)

    def _site_app(self) -> Any:
        if self._site is None:
            from handler import site  # noqa: PLC0415 - FastAPI costs as much as everything else together

            self._site = site.create(self.registry, self.settings)
        return self._site

    def _unrouted(self, method: str, path: str) -> HttpResponse:
        dialect, router = self._routers[0]
        try:
            router.find(method, path)
        except ServingError as error:
            return dialect.refuse(error)
        raise AssertionError(path)

    async def _protocol(
        self, dialect: Dialect, router: Router, path: str, scope: Scope, receive: Receive
    ) -> HttpResponse | None:
        """The answer, None if the client has gone."""
        try:
            headers = dict(scope["headers"])
            body = await _body(headers, receive, self._options.max_body_bytes)
            if body is None:
                return None
            route, values = router.find(scope["method"], path)
            request = HttpRequest(scope["method"], path, headers, body, self._options)
            return await self._answer(route, Call(request, values))
        except ServingError as error:
            return dialect.refuse(error)
        except Exception:
            log.exception("%s %s failed", scope["method"], path)
            return dialect.refuse(ModelFailed("internal error: the server's log has the details"))

    async def _answer(self, route: Route, call: Call) -> HttpResponse:
        job = Job(self.registry, route, call, self._compress_from)
        while True:
            try:
                response = await self._run(route, job)
            except Pending as pending:
                # Nobody occupies a thread while a model is being loaded, and nobody who goes takes the load along.
                result = await asyncio.shield(asyncio.wrap_future(pending.future))
                if not pending.final:
                    continue
                response = job.phrase(result)
            return response

    async def _run(self, route: Route, job: "Job") -> HttpResponse:
        if self._workers is None or route.waits is Waits.NOTHING or (route.waits is Waits.MODEL and job.is_quick()):
            return job.run()
        if route.waits is Waits.MODEL:
            response: HttpResponse = await self._workers.run(job.run)
            return response
        return await asyncio.get_running_loop().run_in_executor(self._aside, job.run)


class Job:
    """One request, run in one thread from decoding to encoding; run again if it had to wait for a model."""

    __slots__ = ("_call", "_compress_from", "_decoded", "_registry", "_route", "_started")

    def __init__(self, registry: Registry, route: Route, call: Call, compress_from: int) -> None:
        self._compress_from = compress_from
        self._registry = registry
        self._route = route
        self._call = call
        self._decoded: tuple[Any, Reply] | None = None
        self._started = time.perf_counter_ns()

    def is_quick(self) -> bool:
        """Whether it is so sure to be short that changing threads twice (25 to 55 us) would be most of its time."""
        path = self._call.path
        if b"content-encoding" in self._call.request.headers:  # its size says nothing of what it inflates to
            return False
        return self._registry.is_quick(ModelRef(path["model"], path.get("version")), len(self._call.request.body))

    def run(self) -> HttpResponse:
        """Raises ServingError, Pending."""
        begun = time.perf_counter_ns()
        if self._decoded is None:
            self._decoded = self._route.decode(self._call)
        operation, _ = self._decoded
        if isinstance(operation, Infer):
            return self._infer(operation, begun)
        return self.phrase(execute(operation, self._registry))

    def phrase(self, result: Any) -> HttpResponse:
        if self._decoded is None:
            raise AssertionError
        return self._decoded[1](result)

    def _infer(self, operation: Infer, begun: int) -> HttpResponse:
        decoded = time.perf_counter_ns()
        queued = begun - self._started
        size = len(self._call.request.body)
        try:
            result: InferResult = execute(operation, self._registry)
            inferred = time.perf_counter_ns()
            # Nothing but inference is compressed, as in Triton: tritonclient's asyncio client asks for gzip everywhere,
            # and decodes it here alone.
            response = compressed(self.phrase(result), self._call.request, self._compress_from)
        except ServingError:
            self._registry.record(operation.ref, (queued, time.perf_counter_ns() - begun), size, success=False)
            raise
        durations = (queued, decoded - begun, inferred - decoded, time.perf_counter_ns() - inferred)
        self._registry.record(operation.ref, durations, size, success=True)
        return response


def compressed(response: HttpResponse, request: HttpRequest, least: int) -> HttpResponse:
    """The answer, from `least` bytes on in a coding that the client accepts."""
    wanted = request.headers.get(b"accept-encoding")
    if wanted is None or response.length < least:
        return response
    coding = compression.accepted(wanted)
    if coding is None:
        return response
    headers: tuple[Header, ...] = (*response.headers, (b"content-encoding", coding), (b"vary", b"accept-encoding"))
    return HttpResponse(response.status, headers, (compression.deflate(response.parts, coding),))


def _path(scope: Scope) -> str:
    """The path below where the application is mounted: ASGI's path holds root_path, unless a gateway cut it off."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


async def _body(headers: Headers, receive: Receive, limit: int) -> bytes | memoryview | None:
    """The whole body; None if the client went before its end. Raises TooLarge, at once where the size is announced."""
    length = headers.get(b"content-length", b"")
    announced = int(length[:20]) if length.isdigit() else 0
    if announced > limit:
        raise _too_large(announced, limit)
    message = await receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    if message.get("more_body"):
        gather = _gather_announced if len(first) < announced <= GATHERED_IN_PLACE else _gather
        return await gather(first, headers, receive, announced or limit)
    if len(first) > limit:
        raise _too_large(len(first), limit)
    return first


async def _gather_announced(
    first: bytes, headers: Mapping[bytes, bytes], receive: Receive, size: int
) -> memoryview | None:
    """A body of known size: each piece goes to its place while the next one is still on its way."""
    pad = padding(headers)
    body = np.empty(pad + size, np.uint8).data[pad:]  # not a bytearray: that would be zeroed first
    position = len(first)
    body[:position] = first
    while position < size:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")[: size - position]
        body[position : position + len(chunk)] = chunk
        position += len(chunk)
        if not message.get("more_body"):
            break
    return body[:position]


async def _gather(
    first: bytes, headers: Mapping[bytes, bytes], receive: Receive, limit: int
) -> bytes | memoryview | None:
    """A body of unknown size, read to its end even beyond the limit, so that the client gets to read the answer."""
    chunks, size, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > limit:
            del chunks[:]
    if size > limit:
        raise _too_large(size, limit)
    pad = padding(headers)
    return memoryview(b"".join((bytes(pad), *chunks)))[pad:]


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(f"the body has {size} bytes; at most {limit} are accepted")


async def _send(response: HttpResponse, scope: Scope, send: Send) -> None:
    headers = [*response.headers, (b"content-length", b"%d" % response.length)]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    parts = response.parts
    body = b"" if scope["method"] == "HEAD" else parts[0] if len(parts) == 1 else b"".join(parts)
    await send({"type": "http.response.body", "body": body})
