"""The edge of remote calls over plain HTTP: Connect and gRPC-Web, on the same port as REST and through its gateways.

Imported with the first such request. core.dialects.connect says what the protocols are; what waits is here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from core.deadline import NEVER, Deadline, within
from core.dialects.connect import protocol
from core.dialects.connect.codes import DeadlineExceeded, EdgeError
from core.dialects.connect.envelopes import Frame, only
from core.dialects.connect.protocol import Question
from core.dialects.connect.requests import from_text
from core.dialects.rpcs import RPCS
from core.errors import ServingError
from core.operations import ModelRef, Operation
from core.ports import Use
from core.rpc import Form
from core.wire import HttpResponse, Part
from handler.edge import exchange
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.jobs import QUICKLY_READ, Clock, Decoded, Inline, Job, Timing
from handler.edge.messages import WATCH_SECONDS, MessageCodec, guarded
from handler.lifecycle.registry import Registry

if TYPE_CHECKING:
    from handler.edge.dispatch import Threads

Tell = Callable[[bytes], Awaitable[None]]


class CallOptions(NamedTuple):
    """`limit`: bytes of a body, and of an inflated message. `least`: bytes of an answer that are worth compressing."""

    limit: int
    least: int


class Calls:
    """All remote calls of an application."""

    methods: Final = {method.path: method for method in RPCS}

    def __init__(self, registry: Registry, dispatcher: "Inline | Threads", clock: Clock, options: CallOptions) -> None:
        self.registry = registry
        self.dispatcher = dispatcher
        self.clock = clock
        self.options = options

    async def serve(self, scope: Scope, receive: Receive, send: Send, timing: Timing) -> None:
        """Answers a request for /package.Service/Method. `timing`: gets the steps of a method with one answer."""
        headers = dict(scope["headers"])
        path = "/" + "/".join(scope["path"].rsplit("/", 2)[1:])
        query = scope.get("query_string", b"")
        try:
            question = protocol.question(self.methods.get(path), scope["method"], path, headers, query)
            deadline = NEVER if question.seconds is None else within(question.seconds)
            call = _Call(self, question, timing, deadline)
            # Raw tensors are a message's last field: where a body ends aligned, the last of them needs no copy.
            end = exchange.length_in(headers, b"content-length")
            body = await exchange.gather(headers, receive, self.options.limit, end)
            if body is None:
                return
            timing.came = time.perf_counter_ns()
            if question.kind.text:
                body = await call.plain(body)
        except ServingError as error:
            native = protocol.is_native(headers)
            refusal = protocol.NATIVE if native else protocol.kind_of(headers).refuse(error)
            await exchange.answer(refusal, "POST", send, self.clock.headers(timing))
            return
        if question.method.form is Form.UNARY:
            response = await call.whole(body)
            await exchange.answer(response, "POST", send, self.clock.headers(timing))
        else:
            await call.stream(body, receive, send)


class _Call:
    """One call, from its messages to its answers. `deadline`: counts from when its head was read."""

    __slots__ = ("_answers_once", "_calls", "_deadline", "_question", "_timing")

    def __init__(self, calls: Calls, question: Question, timing: Timing, deadline: Deadline) -> None:
        self._calls = calls
        self._timing = timing
        self._question = question
        self._deadline = deadline
        # A function answers once, when it has all parts, and serves no other request meanwhile.
        self._answers_once = isinstance(calls.dispatcher, Inline)

    async def plain(self, text: Part) -> Part:
        """Returns the bytes of a body that came as text. Raises InvalidInput, ServerBusy."""
        is_quick = len(text) <= QUICKLY_READ
        return await self._calls.dispatcher.work(lambda: from_text(text), is_quick=is_quick)

    async def whole(self, body: Part) -> HttpResponse:
        try:
            if self._deadline is NEVER:
                return await self._only(body)
            async with asyncio.timeout(max(0.0, self._deadline.left)):
                return await self._only(body)
        except TimeoutError:
            return self._question.kind.refuse(self._late())
        except ServingError as error:
            return self._question.kind.refuse(error)

    async def _only(self, body: Part) -> HttpResponse:
        frame = self._question.whole(body) or only(self._frames(body))
        answer: HttpResponse = await self._answer(self._codec(frame), self._timing)
        return answer

    async def stream(self, body: Part, receive: Receive, send: Send) -> None:
        """Answers until every message is answered, or the client has left."""
        headers = [*self._question.head(), *self._calls.clock.headers(self._timing)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self._answers_once:
            await self._tell_all(body, send)
            return
        telling = asyncio.create_task(self._tell_all(body, send))
        gone = asyncio.create_task(exchange.disconnected(receive))
        try:
            await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            gone.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)

    async def _tell_all(self, body: Part, send: Send) -> None:
        async def tell(part: bytes) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": True})

        kind = self._question.kind
        try:
            async with asyncio.timeout(None if self._deadline is NEVER else max(0.0, self._deadline.left)):
                await self._answers(body, tell)
            last = kind.last(None)
        except TimeoutError:
            last = kind.last(self._late())
        except ServingError as error:
            last = kind.last(error)
        await send({"type": "http.response.body", "body": last})

    async def _answers(self, body: Part, tell: Tell) -> None:
        form = self._question.method.form
        if form is Form.WATCH:
            await self._watch(only(self._frames(body)), tell)
        elif form is Form.STREAM:
            await self._each(only(self._frames(body)), tell)
        else:
            for frame in self._frames(body):
                await self._each(frame, tell)
                await asyncio.sleep(0)  # thousands of quick answers must not hold up other requests

    async def _each(self, frame: Frame, tell: Tell) -> None:
        codec = self._codec(frame)
        answers = await self._answer(codec, Timing(self._timing.deadline))
        each: AsyncGenerator[Any] = self._calls.dispatcher.each((answers,) if isinstance(answers, bytes) else answers)
        async with aclosing(each):
            while (part := await guarded(anext(each, None), codec, self._question.method.rpc.name)) is not None:
                await tell(part)

    async def _watch(self, frame: Frame, tell: Tell) -> None:
        last = None
        while True:
            part = await self._answer(self._codec(frame), Timing(self._timing.deadline))
            if part != last:
                await tell(part)
            if self._answers_once:
                return
            last = part
            await asyncio.sleep(WATCH_SECONDS)

    def _answer(self, codec: "EnvelopeCodec", timing: Timing) -> Awaitable[Any]:
        job: Job[Any] = Job(codec, self._calls.registry, timing)
        rpc = self._question.method.rpc
        return guarded(self._calls.dispatcher.answer(job, rpc.waits, self._deadline), codec, rpc.name)

    def _frames(self, body: Part) -> Iterator[Frame]:
        return self._question.frames(body, self._calls.options.limit)

    def _codec(self, frame: Frame) -> "EnvelopeCodec":
        return EnvelopeCodec(self._question, frame, self._calls.options)

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"no answer within {(self._question.seconds or 0) * 1e3:g} ms")


class EnvelopeCodec:
    """One message with its compression and framing both ways, which belong in the same thread."""

    __slots__ = ("_codec", "_frame", "_options", "_question", "size")

    def __init__(self, question: Question, frame: Frame, options: CallOptions) -> None:
        self._question = question
        self._frame = frame
        self._options = options
        self._codec = None if frame.compressed else self._opened()
        self.size = len(frame.content)

    def ref(self) -> ModelRef | None:
        return None if self._codec is None or self._question.deflates else self._codec.ref()

    def read(self) -> Decoded:
        if self._codec is None:
            self._codec = self._opened()
            self.size = self._codec.size
        return self._codec.read()

    def finish(self, reply: Any, operation: Operation, use: Use | None, *, lazy: bool) -> Any:
        if self._codec is None:
            raise AssertionError
        return self._sent(self._codec.finish(reply, operation, use, lazy=lazy))

    def instead(self, error: ServingError) -> Any:
        """Returns what is sent in place of an error that is not the protocol's own; None if it is an error."""
        if self._codec is None or isinstance(error, EdgeError):
            return None
        message = self._codec.instead(error)
        return None if message is None else self._sent(message)

    def _opened(self) -> MessageCodec:
        """Raises InvalidInput, TooLarge."""
        kind, method = self._question.kind, self._question.method
        # Protobuf reads a view as well as bytes, without a copy; its JSON is text.
        frame = self._frame
        message: Any = frame.message(self._options.limit) if frame.compressed else frame.content
        return MessageCodec(method, bytes(message) if kind.json else message, json=kind.json)

    def _sent(self, answer: Any) -> HttpResponse | bytes | Iterable[bytes]:
        if self._question.method.form is Form.UNARY:
            return self._question.answer(answer, self._options.least)
        if isinstance(answer, bytes):
            return self._part(answer)
        return tuple(map(self._part, answer)) if isinstance(answer, tuple) else self._parts(answer)

    def _parts(self, answers: Any) -> Iterator[bytes]:
        try:
            yield from map(self._part, answers)
        finally:
            answers.close()

    def _part(self, message: bytes) -> bytes:
        return self._question.part(message, self._options.least)
