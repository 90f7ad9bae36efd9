"""The gRPC edge: the tables of remote calls on grpc.aio, in the event loop and over the models of the ASGI application.

grpc passes messages as bytes. The tables decode them, and refuse malformed ones: grpc's own refusal would say only
"Exception deserializing request!".
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, closing
from functools import partial
from typing import Any, Final

import grpc
from grpc import aio

from core.deadline import NEVER, within
from core.dialects.rpcs import ABSENT, RPCS
from core.errors import NotSupported, ServingError, shown
from core.rpc import Form, RpcMethod
from core.wire import Right
from handler.backends.forks import PORTS
from handler.edge.admission import ADMITTED, Context, Doorkeeper, end, refusal_of, refusing, scope_of
from handler.edge.app import App
from handler.edge.calls.messages import WATCH_SECONDS, MessageCodec, RefusedInARow, guarded, unforeseen
from handler.edge.dispatch import exchanges
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.flight import SMALL, WEIGHT
from handler.edge.idling import Idling
from handler.edge.jobs import Job, ServedModels
from handler.edge.observe.calls import CallWatch, client_of, trailers
from handler.edge.observe.kinds import calls_of
from handler.edge.observe.record import works
from handler.edge.reading import STREAMS, Reading, messages_of, most_messages, options
from handler.edge.timing import TIMING, Timing

SERVER_TIMING: Final = TIMING.decode()
Many = Callable[[RpcMethod, bytes, Context], AsyncGenerator[bytes]]


class _Others(grpc.GenericRpcHandler):
    """Refuses the calls that no service has. grpc's own refusal would leave no line and no count."""

    def __init__(self, calls: CallWatch) -> None:
        self._calls = calls

    def service(self, handler_call_details: Any) -> Any:
        path: str = handler_call_details.method
        return refusing(NotSupported(f"the server has no method at {shown(path)}"), self._calls, path)


class RpcServer:
    """One gRPC server of an application's models."""

    def __init__(self, app: App, address: str) -> None:
        """Makes a server that runs in the current event loop."""
        self.address = address
        self._app = app
        self._calls = calls_of(app.observer)
        self._grace = app.settings.shutdown_timeout
        self._ending = asyncio.Event()
        self._reading = Reading(most_messages(app.flight.limit, app.settings.max_body_bytes))
        self._idling = Idling(STREAMS)
        calls = app.settings.threads + app.settings.queue + STREAMS
        # Without authentication, a call is not examined before its handler has it.
        interceptors = (Doorkeeper(app.gate, self._calls),) if app.gate.is_closed else ()
        self._server = aio.server(
            interceptors=interceptors, options=options(app.settings), maximum_concurrent_rpcs=calls
        )
        self._server.add_generic_rpc_handlers(self._handlers())

    async def start(self) -> None:
        """Starts the server. Raises RuntimeError if it cannot listen on the address."""
        try:
            PORTS.add(self._server.add_insecure_port(self.address))
        except RuntimeError:
            await self._server.stop(None)
            raise
        await self._server.start()

    async def stop(self) -> None:
        self._ending.set()
        await self._server.stop(self._grace)

    def _handlers(self) -> tuple[Any, ...]:
        services: dict[str, dict[str, Any]] = {}
        for method in RPCS:
            services.setdefault(method.service, {})[method.rpc.name] = self._handler(method)
        for path, text in ABSENT.items():
            _, service, name = path.split("/")
            services[service][name] = refusing(NotSupported(text), self._calls, path)
        known = [grpc.method_handlers_generic_handler(*service) for service in services.items()]
        return (*known, _Others(self._calls))

    def _handler(self, method: RpcMethod) -> Any:
        """Makes a handler without serializers: grpc then passes bytes.

        On the wire one message is a stream of one. Only the wait for a stream's message can be ended.
        """
        about = method.path, method.rpc.right
        if method.form is Form.UNARY:
            one = self._calls.one(*about, partial(self._unary, method))
            return grpc.stream_unary_rpc_method_handler(one)
        many = self._watch if method.form is Form.WATCH else self._each
        stream: Any = partial(self._stream, many, method)
        if method.form is Form.EXCHANGE:
            stream = partial(self._exchange, method)
        return grpc.stream_stream_rpc_method_handler(self._calls.many(*about, stream))

    async def _unary(self, method: RpcMethod, _bodies: AsyncIterator[bytes], context: Context) -> Any:
        return await _or_abort(self._one(method, context), context, method)

    async def _one(self, method: RpcMethod, context: Context) -> Any:
        """Returns the answer to the only message. Refuses the call before that where the budget is used up."""
        body = await self._reading.first(context.read, self._app.flight)
        return await self._answer(MessageCodec(method, body), method, context, _timing(context))

    async def _stream(
        self, many: Many, method: RpcMethod, _bodies: AsyncIterator[bytes], context: Context
    ) -> AsyncGenerator[bytes]:
        body = await _or_abort(self._reading.first(context.read, self._app.flight), context, method)
        answers = many(method, body, context)
        del body  # grpc keeps the error of an abort, and so this frame, until the cyclic collector runs
        async with aclosing(answers):
            while (answer := await _or_abort(anext(answers, None), context, method)) is not None:
                yield answer

    async def _exchange(
        self, method: RpcMethod, _bodies: AsyncIterator[bytes], context: Context
    ) -> AsyncGenerator[bytes]:
        bodies = messages_of(context.read, self._idling)
        each = partial(self._each, method, context=context, refusals=RefusedInARow())
        id_of = partial(method.id_of, json=False)
        flight = self._app.flight
        plan: exchanges.Plan[bytes, bytes] = exchanges.Plan(each, id_of, self._app.abreast, flight.fits, flight.waiting)
        answers = exchanges.answered(bodies, plan)
        async with aclosing(answers):
            while (answer := await _or_abort(anext(answers, None), context, method)) is not None:
                yield answer

    async def _each(
        self, method: RpcMethod, body: bytes, context: Context, refusals: RefusedInARow | None = None
    ) -> AsyncGenerator[bytes]:
        """Yields each answer to one request. `refusals`: of the stream that it is part of. Raises ServingError."""
        codec, timing = MessageCodec(method, body), _timing(context)
        with self._counted(codec), closing(codec):
            answers = await self._answered(codec, method, context, timing)
            items = (answers,) if isinstance(answers, bytes) else answers
            each: AsyncGenerator[bytes] = self._app.dispatcher.each(items, timing)
            async with aclosing(each):
                while (answer := await guarded(anext(each, None), codec, timing, method.rpc.name)) is not None:
                    yield answer
        if refusals is not None:
            refusals.check(refused=codec.refused)

    async def _watch(self, method: RpcMethod, body: bytes, context: Context) -> AsyncGenerator[bytes]:
        """Yields the answer whenever it has changed. Raises ServingError."""
        last, begun = None, asyncio.get_running_loop().time()
        while not self._ending.is_set():
            answer = await self._answer(MessageCodec(method, body), method, context, _timing(context))
            if answer != last:
                yield answer
            last = answer
            await self._idling.wait(self._pause(), begun)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), WATCH_SECONDS)
        except TimeoutError:
            return

    async def _answer(self, codec: MessageCodec, method: RpcMethod, context: Context, timing: Timing) -> Any:
        """Returns a message, or an iterator of messages. Raises ServingError."""
        if codec.size < SMALL:
            return await self._answered(codec, method, context, timing)
        with self._counted(codec):
            return await self._answered(codec, method, context, timing)

    def _counted(self, codec: MessageCodec) -> AbstractContextManager[None]:
        """Counts a message as bytes in flight. Raises ServerBusy."""
        flight, size = self._app.flight, WEIGHT * codec.size if codec.size >= SMALL else 0
        if size:
            flight.admit(size)
        return flight.holding(size)

    async def _answered(self, codec: MessageCodec, method: RpcMethod, context: Context, timing: Timing) -> Any:
        works(codec, timing, codec.size)
        job = Job(codec, await self._models(method.path, method.rpc.right, context), timing)
        try:
            answer = self._app.dispatcher.answer(job, method.rpc.waits)
            return await guarded(answer, codec, timing, method.rpc.name)
        finally:
            headers = self._app.clock.headers(timing)
            if headers:
                context.set_trailing_metadata(trailers(*((SERVER_TIMING, text.decode()) for _, text in headers)))

    async def _models(self, path: str, right: Right, context: Context) -> ServedModels:
        """Returns the models for a call. Raises Unauthenticated, NotPermitted."""
        admitted = ADMITTED.get()
        if admitted is not None:
            return admitted
        gate = self._app.gate
        scope = scope_of(context.invocation_metadata(), path, client_of(context.peer())) if gate.looks(right) else {}
        return (await gate.enter(scope)).models(right)


def _timing(context: Context) -> Timing:
    left: float | None = context.time_remaining()  # None without a deadline
    return Timing(NEVER if left is None else within(left))


async def _or_abort(work: Awaitable[Any], context: Context, method: RpcMethod) -> Any:
    """Returns the result of `work`. Its error ends the call."""
    try:
        return await work
    except ServingError as error:
        refusal = refusal_of(error)
    except Exception as error:  # noqa: BLE001 - grpc would answer with its text
        refusal = refusal_of(unforeseen(error, method.rpc.name))
    await end(context, refusal)
    raise AssertionError(refusal)


class Beside:
    """An ASGI application with a gRPC server that starts and ends with it."""

    def __init__(self, app: App, address: str) -> None:
        self._app = app
        self._address = address
        self.whole_requests = getattr(app, "whole_requests", None)

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
                self._app.observer.close()  # again, for the lines of the calls that it has ended
            await send(message)

        await self._app(scope, receive, announce)
