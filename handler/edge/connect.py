"""The edge of remote calls over plain HTTP: Connect and gRPC-Web, on the same port as REST and through its gateways.

Imported with the first such request. core.dialects.connect defines the protocols; this module does the waiting.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from core.deadline import NEVER, within
from core.dialects.connect import protocol
from core.dialects.connect.codes import DeadlineExceeded, EdgeError, UnknownMethod
from core.dialects.connect.envelopes import Frame, check_messages, only
from core.dialects.connect.protocol import Question
from core.dialects.connect.requests import from_text
from core.dialects.rpcs import ABSENT, RPCS
from core.errors import ServingError
from core.operations import ModelRef
from core.rpc import Form
from core.wire import HttpResponse, Part
from handler.edge import exchange
from handler.edge.dispatch import exchanges
from handler.edge.dispatch.inline import Inline
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.flight import NO_LIMIT, Flight
from handler.edge.gate.gate import Visitor
from handler.edge.jobs import QUICKLY_READ, Job, ServedModels
from handler.edge.leaving import Leaving
from handler.edge.messages import WATCH_SECONDS, MessageCodec, Refusals, guarded
from handler.edge.observe.record import called, refused, works
from handler.edge.timing import Clock, Timing

if TYPE_CHECKING:
    from handler.edge.dispatch.threads import Threads

Tell = Callable[[bytes], Awaitable[None]]


class CallOptions(NamedTuple):
    """`limit`: bytes of a body, and of an inflated message. `least`: bytes of an answer that are worth compressing.

    `abreast`: the most requests of one stream under way.
    """

    limit: int
    least: int
    flight: Flight = NO_LIMIT
    abreast: int = 1


class Calls:
    """All remote calls of an application."""

    methods: Final = {method.path: method for method in RPCS}

    def __init__(self, dispatcher: "Inline | Threads", clock: Clock, options: CallOptions) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        self.options = options

    async def serve(self, scope: Scope, receive: Receive, send: Send, visitor: Visitor, timing: Timing) -> None:
        """Answers a request for /package.Service/Method. `timing`: gets the steps of a method with one answer."""
        headers = visitor.headers
        path = "/" + "/".join(scope["path"].rsplit("/", 2)[1:])
        query = scope.get("query_string", b"")
        method = self.methods.get(path)
        right = None if method is None else method.rpc.right
        called(protocol.carrier(headers), right)
        is_unread = True
        try:
            models = visitor.models(right)
            if path in ABSENT:
                raise UnknownMethod(ABSENT[path])
            question = protocol.question(method, scope["method"], path, headers, query)
            options = self.options._replace(least=scope.get(exchange.COMPRESS_KEY, self.options.least))
            call = _Call(self, models, question, timing, options)
            # Raw tensors are a message's last field: where a body ends aligned, the last of them needs no copy.
            end = exchange.length_in(headers, b"content-length")
            is_unread = False
            body = await exchange.gather(headers, receive, self.options.limit, end, self.options.flight)
            if body is None:
                return
            works(None, timing, len(body))
            timing.came = time.perf_counter_ns()
            if question.kind.text:
                body = await call.plain(body)
        except ServingError as error:
            refused(error)
            native = protocol.is_native(headers)
            refusal = protocol.NATIVE if native else protocol.kind_of(headers).refuse(error)
            if is_unread:
                await exchange.skip(headers, receive)
            await exchange.answer(refusal, "POST", send, self.clock.headers(timing))
            return
        if question.method.form is Form.UNARY:
            with Leaving(receive) as leaving:
                response = await call.whole(question.whole(body), body, leaving)
            if leaving.left:
                return
            await exchange.answer(response, "POST", send, self.clock.headers(timing), self.options.flight)
        else:
            await call.stream(body, receive, send)


class _Call:
    """One call, from its messages to its answers. It begins when its head was read; its deadline counts from then."""

    __slots__ = ("_answers_once", "_calls", "_deadline", "_models", "_options", "_question", "_timing", "_until")

    def __init__(
        self, calls: Calls, models: ServedModels, question: Question, timing: Timing, options: CallOptions
    ) -> None:
        self._calls = calls
        self._models = models
        self._timing = timing
        self._question = question
        self._deadline = NEVER if question.seconds is None else within(question.seconds)
        # The platform has one, too: that of a function.
        self._until = min(self._deadline, timing.deadline, key=attrgetter("at"))
        self._options = options
        # A function answers once: whoever watches would pay for an instance.
        self._answers_once = isinstance(calls.dispatcher, Inline) or not timing.deadline.is_never

    async def plain(self, text: Part) -> Part:
        """Returns the bytes of a body that was sent as text. Raises InvalidInput, ServerBusy."""
        is_quick = len(text) <= QUICKLY_READ
        return await self._calls.dispatcher.work(lambda: from_text(text), is_quick=is_quick)

    async def whole(self, bare: Frame | None, body: Part, leaving: Leaving) -> HttpResponse:
        """Returns the answer of a method with one message each way. `bare`: the message of a body without envelopes."""
        try:
            if self._deadline is NEVER:
                return await self._only(bare, body, leaving)
            async with asyncio.timeout(max(0.0, self._deadline.left)):
                return await self._only(bare, body, leaving)
        except TimeoutError:
            return self._question.kind.refuse(self._late())
        except ServingError as error:
            refused(error)
            return self._question.kind.refuse(error)

    async def _only(self, bare: Frame | None, body: Part, leaving: Leaving) -> HttpResponse:
        answer: HttpResponse = await self._answer(bare or only(self._frames(body)), self._timing, leaving)
        return answer

    async def stream(self, body: Part, receive: Receive, send: Send) -> None:
        """Answers until every message is answered, or the client has left."""
        headers = [*self._question.head(), *self._calls.clock.headers(self._timing)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if isinstance(self._calls.dispatcher, Inline):  # it has all parts at once
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
            await exchange.proceed(part, send, self._calls.options.flight)

        kind = self._question.kind
        try:
            async with asyncio.timeout(None if self._deadline is NEVER else max(0.0, self._deadline.left)):
                await self._answers(body, tell)
            last = kind.last(None)
        except TimeoutError:
            last = kind.last(self._late())
        except ServingError as error:
            refused(error)
            last = kind.last(error)
        await send({"type": "http.response.body", "body": last})

    async def _answers(self, body: Part, tell: Tell) -> None:
        form = self._question.method.form
        if form is Form.WATCH:
            await self._watch(only(self._frames(body)), tell)
        elif form is Form.STREAM:
            await _tell_each(self._each(only(self._frames(body))), tell)
        else:
            check_messages(body)
            plan = exchanges.Plan(partial(self._each, refusals=Refusals()), self._id_of, self._options.abreast)
            await _tell_each(exchanges.answered(self._messages(body), plan), tell)

    async def _messages(self, body: Part) -> AsyncGenerator[Frame]:
        for frame in self._frames(body):
            yield frame

    def _id_of(self, frame: Frame) -> str:
        """Returns the id of a message; "" for one that has to be inflated first."""
        question = self._question
        return "" if frame.compressed else question.method.id_of(frame.content, json=question.kind.json)

    async def _each(self, frame: Frame, refusals: Refusals | None = None) -> AsyncGenerator[Any]:
        """Yields each answer to one message. `refusals`: of the stream that it is part of. Raises ServingError."""
        codec, timing = EnvelopeCodec(self._question, frame, self._options), Timing(self._timing.deadline)
        answers = await self._answered(codec, timing)
        items = (answers,) if isinstance(answers, bytes) else answers
        each: AsyncGenerator[Any] = self._calls.dispatcher.each(items, timing)
        async with aclosing(each):
            while (part := await guarded(anext(each, None), codec, self._question.method.rpc.name)) is not None:
                yield part
        if refusals is not None:
            refusals.check(refused=codec.refused)

    async def _watch(self, frame: Frame, tell: Tell) -> None:
        last = None
        while True:
            part = await self._answer(frame, Timing(self._timing.deadline))
            if part != last:
                await tell(part)
            if self._answers_once:
                return
            last = part
            await asyncio.sleep(WATCH_SECONDS)

    def _answer(self, frame: Frame, timing: Timing, leaving: Leaving | None = None) -> Awaitable[Any]:
        return self._answered(EnvelopeCodec(self._question, frame, self._options), timing, leaving)

    def _answered(self, codec: "EnvelopeCodec", timing: Timing, leaving: Leaving | None = None) -> Awaitable[Any]:
        works(codec, timing)
        job: Job[Any] = Job(codec, self._models, timing)
        rpc = self._question.method.rpc
        return guarded(self._calls.dispatcher.answer(job, rpc.waits, self._until, leaving), codec, rpc.name)

    def _frames(self, body: Part) -> Iterator[Frame]:
        return self._question.frames(body, self._options.limit)

    def _late(self) -> DeadlineExceeded:
        error = DeadlineExceeded(f"no answer within {(self._question.seconds or 0) * 1e3:g} ms")
        refused(error)
        return error


async def _tell_each(parts: AsyncGenerator[Any], tell: Tell) -> None:
    async with aclosing(parts):
        async for part in parts:
            await tell(part)


class EnvelopeCodec(MessageCodec):
    """A message codec with the message's compression and framing both ways, which belong in the same thread."""

    __slots__ = ("_least", "_question")

    def __init__(self, question: Question, frame: Frame, options: CallOptions) -> None:
        def message() -> Any:
            # Protobuf reads a view as well as bytes, without a copy; its JSON is text.
            content: Any = frame.message(options.limit) if frame.compressed else frame.content
            return bytes(content) if question.kind.json else content

        self._question = question
        self._least = options.least
        body, inflate = (frame.content, message) if frame.compressed else (message(), None)
        super().__init__(question.method, body, json=question.kind.json, inflate=inflate)

    def ref(self) -> ModelRef | None:
        return None if self._inflate is not None or self._question.deflates else super().ref()

    def known(self) -> ModelRef | None:
        return None if self._inflate is not None else super().known()

    def is_long(self) -> bool:
        return self._inflate is not None or super().is_long()

    def instead(self, error: ServingError) -> Any:
        """Returns what is sent in place of an error that is not the protocol's own; None if it is an error."""
        return None if isinstance(error, EdgeError) else super().instead(error)

    def _framed(self, message: bytes) -> Any:
        if self._question.method.form is Form.UNARY:
            return self._question.answer(message, self._least)
        return self._question.part(message, self._least)
