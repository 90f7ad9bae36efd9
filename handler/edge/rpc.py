"""The gRPC edge: the tables of remote calls on grpc.aio, in the event loop and over the models of the ASGI application.

grpc passes messages as bytes. The tables decode them, and refuse malformed ones: grpc's own refusal would say only
"Exception deserializing request!".
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import grpc
from grpc import aio

from core.deadline import NEVER, within
from core.dialects.grpc import reflection
from core.dialects.rpcs import RPCS
from core.errors import Fault, ServingError
from core.rpc import Form, RpcMethod
from core.wire import headers_of
from handler.edge.app import App
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.jobs import TIMING, Job, Timing
from handler.edge.messages import WATCH_SECONDS, MessageCodec, guarded
from handler.edge.streams import GRACE_SECONDS

Context = aio.ServicerContext[bytes, bytes]
SERVICES: Final = (*dict.fromkeys(method.service for method in RPCS), reflection.SERVICES[0])
CODES: Final = {fault: grpc.StatusCode[fault.name] for fault in Fault}
SERVER_TIMING: Final = TIMING.decode()
LONGEST_DETAILS: Final = 1300
"""Bytes of an error's text. Percent-encoding makes three times as many, and clients accept 8 kB of trailers at most."""
Refusal = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]
Many = Callable[[RpcMethod, bytes, Context], AsyncGenerator[bytes]]


class RpcServer:
    """One gRPC server of an application's models."""

    def __init__(self, app: App, address: str) -> None:
        """Makes a server that runs in the current event loop."""
        self.address = address
        self._app = app
        self._ending = asyncio.Event()
        options = [
            ("grpc.max_receive_message_length", app.settings.max_body_bytes),  # inflated, too
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # else a second server silently takes half of the calls
        ]
        self._server = aio.server(options=options)
        self._server.add_generic_rpc_handlers(self._handlers())

    async def start(self) -> None:
        """Starts the server. Raises RuntimeError if it cannot listen on the address."""
        try:
            self._server.add_insecure_port(self.address)
        except RuntimeError:
            await self._server.stop(None)
            raise
        await self._server.start()

    async def stop(self) -> None:
        self._ending.set()
        await self._server.stop(GRACE_SECONDS)

    def _handlers(self) -> tuple[Any, ...]:
        services: dict[str, dict[str, Any]] = {}
        for method in RPCS:
            services.setdefault(method.service, {})[method.rpc.name] = self._handler(method)
        for service in reflection.SERVICES:
            services[service] = {reflection.METHOD: grpc.stream_stream_rpc_method_handler(self._reflect)}
        return tuple(grpc.method_handlers_generic_handler(*service) for service in services.items())

    def _handler(self, method: RpcMethod) -> Any:
        """Makes a handler without serializers: grpc then passes bytes."""
        forms: dict[Form, tuple[Callable[..., Any], Callable[..., Any]]] = {
            Form.UNARY: (grpc.unary_unary_rpc_method_handler, self._unary),
            Form.STREAM: (grpc.unary_stream_rpc_method_handler, partial(self._many, self._each)),
            Form.EXCHANGE: (grpc.stream_stream_rpc_method_handler, self._exchange),
            Form.WATCH: (grpc.unary_stream_rpc_method_handler, partial(self._many, self._watch)),
        }
        make, behaviour = forms[method.form]
        return make(partial(behaviour, method))

    async def _unary(self, method: RpcMethod, body: bytes, context: Context) -> Any:
        answer = self._answer(MessageCodec(method, body), method, context)
        del body  # grpc keeps what an abort raises, and so this frame, until the cyclic collector runs
        return await _or_abort(answer, context)

    async def _many(self, many: Many, method: RpcMethod, body: bytes, context: Context) -> AsyncGenerator[bytes]:
        answers = many(method, body, context)
        del body  # as above
        async with aclosing(answers):
            while (answer := await _or_abort(anext(answers, None), context)) is not None:
                yield answer

    async def _exchange(
        self, method: RpcMethod, bodies: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[bytes]:
        async for body in bodies:
            async with aclosing(self._many(self._each, method, body, context)) as answers:
                del body  # as above
                async for answer in answers:
                    yield answer

    async def _each(self, method: RpcMethod, body: bytes, context: Context) -> AsyncGenerator[bytes]:
        """Yields each answer to one request. Raises ServingError."""
        codec = MessageCodec(method, body)
        answers = await self._answer(codec, method, context)
        each: AsyncGenerator[bytes] = self._app.dispatcher.each((answers,) if isinstance(answers, bytes) else answers)
        async with aclosing(each):
            while (answer := await guarded(anext(each, None), codec, method.rpc.name)) is not None:
                yield answer

    async def _watch(self, method: RpcMethod, body: bytes, context: Context) -> AsyncGenerator[bytes]:
        """Yields the answer whenever it has changed. Raises ServingError."""
        last = None
        while not self._ending.is_set():
            answer = await self._answer(MessageCodec(method, body), method, context)
            if answer != last:
                yield answer
            last = answer
            await self._pause()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), WATCH_SECONDS)
        except TimeoutError:
            return

    async def _answer(self, codec: MessageCodec, method: RpcMethod, context: Context) -> Any:
        """Returns a message, or an iterator of messages. Raises ServingError."""
        job = Job(codec, self._app.registry, Timing())
        left: float | None = context.time_remaining()  # None without a deadline
        deadline = NEVER if left is None else within(left)
        try:
            answer = self._app.dispatcher.answer(job, method.rpc.waits, deadline)
            return await guarded(answer, codec, method.rpc.name)
        finally:
            timing = self._app.clock.headers(job.timing)
            if timing:
                context.set_trailing_metadata(tuple((SERVER_TIMING, text.decode()) for _, text in timing))

    async def _reflect(self, bodies: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for body in bodies:
            answer = _reflected(body)
            del body  # as above
            yield await _or_abort(answer, context)


async def _reflected(body: bytes) -> bytes:
    """Returns the answer of server reflection. Raises InvalidInput."""
    return reflection.answer(body, SERVICES)


async def _or_abort(work: Awaitable[Any], context: Context) -> Any:
    """Returns the result of `work`. Its error ends the call."""
    try:
        return await work
    except ServingError as error:
        code, details, metadata = _refusal(error)
    await context.abort(code, details, (*context.trailing_metadata(), *metadata))
    raise AssertionError(details)


def _refusal(error: ServingError) -> Refusal:
    details = error.message.encode()[:LONGEST_DETAILS].decode(errors="ignore")
    metadata = tuple((name.decode(), value.decode()) for name, value in headers_of(error))
    return CODES[error.fault], details, metadata


class Beside:
    """An ASGI application with a gRPC server that starts and ends with it."""

    def __init__(self, app: App, address: str) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        server: RpcServer | None = None

        async def announce(message: Any) -> None:
            nonlocal server
            if message["type"] == "lifespan.startup.complete":
                try:
                    server = RpcServer(self._app, self._address)
                    await server.start()
                except RuntimeError as error:
                    message = {"type": "lifespan.startup.failed", "message": f"no gRPC on {self._address}: {error}"}
            elif server is not None:
                await server.stop()
            await send(message)

        await self._app(scope, receive, announce)
