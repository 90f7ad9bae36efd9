"""One remote call over HTTP, from its messages to its answers."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from core.deadline import NEVER, within
from core.dialects.connect.codes import DeadlineExceeded
from core.dialects.connect.envelopes import Frame, check_messages
from core.dialects.connect.protocol import Question
from core.dialects.connect.requests import from_text
from core.errors import ServingError
from core.records import NamedTuple
from core.rpc import Form
from core.wire import HttpResponse, Part
from handler.edge import exchange
from handler.edge.calls.codec import CallOptions, EnvelopeCodec
from handler.edge.calls.incoming import Incoming, in_time
from handler.edge.calls.messages import WATCH_SECONDS, RefusedInARow, guarded, unforeseen
from handler.edge.dispatch import exchanges
from handler.edge.dispatch.inline import Inline
from handler.edge.exchange import Headers, Receive, Send
from handler.edge.flight import NO_LIMIT, SMALL, WEIGHT, Flight
from handler.edge.jobs import QUICKLY_READ, Job, ServedModels
from handler.edge.observe.record import cut_off, out_of_time, own_id, refused, seconds_since_head, took, works
from handler.edge.timing import Clock, Timing

if TYPE_CHECKING:
    from handler.edge.dispatch.threads import Threads

Tell = Callable[[bytes], Awaitable[None]]
Each = Callable[..., AsyncGenerator[Any]]


class CallTools(NamedTuple):
    """What all calls of an application share."""

    dispatcher: "Inline | Threads"
    clock: Clock


class RemoteCall:
    """One call, from its messages to its answers. It begins when its head was read; its deadline counts from then."""

    __slots__ = ("_deadline", "_is_of_function", "_models", "_options", "_question", "_timing", "_tools", "_until")

    def __init__(
        self, tools: CallTools, models: ServedModels, question: Question, timing: Timing, options: CallOptions
    ) -> None:
        self._tools = tools
        self._models = models
        self._timing = timing
        self._question = question
        self._deadline = NEVER if question.seconds is None else within(question.seconds - seconds_since_head())
        self._is_of_function = isinstance(tools.dispatcher, Inline) or not timing.deadline.is_never
        # The platform has one, too: that of a function.
        if self._deadline is not NEVER:
            timing.deadline = timing.deadline.with_client(self._deadline)
        self._until = timing.deadline
        self._options = options

    @property
    def form(self) -> Form:
        return self._question.method.form

    @property
    def is_exchange(self) -> bool:
        """Messages can be answered one by one. Base64 is decoded as a whole."""
        return self.form is Form.EXCHANGE and not self._question.encoded

    async def body(self, headers: Headers, receive: Receive) -> Part | None:
        """Returns the whole body, without its base64; None if the client has left. Raises InvalidInput, ServerBusy."""
        options = self._options
        # Raw tensors are a message's last field: where a body ends aligned, the last of them needs no copy.
        end = exchange.length_in(headers, b"content-length")
        arriving = exchange.gather(headers, receive, options.limit, end, options.flight)
        body = await (in_time(arriving) if self._question.kind.native else arriving)
        if body is None:
            return None
        works(None, self._timing, len(body))
        self._timing.came = time.perf_counter_ns()
        if not self._question.encoded:
            return body
        text, is_quick = body, len(body) <= QUICKLY_READ
        return await self._tools.dispatcher.work(lambda: from_text(text), is_quick=is_quick)

    async def whole(self, body: Part) -> HttpResponse:
        """Returns the answer of a method with one message each way."""
        try:
            if self._deadline is NEVER:
                return await self._only(body)
            async with asyncio.timeout(self._left()):
                return await self._only(body)
        except TimeoutError:
            return self._question.kind.refuse(self._late(), own_id())
        except ServingError as error:
            refused(error)
            return self._question.kind.refuse(error, own_id())

    async def _only(self, body: Part) -> HttpResponse:
        answer: HttpResponse = await self._answer(self._message(body), self._timing)
        exchange.admit(answer.length, len(body), self._options.flight)
        return answer

    async def exchange(self, receive: Receive, send: Send) -> None:
        """Answers messages while further ones arrive."""
        options = self._options
        incoming = Incoming(receive, options.limit, options.flight, self._question.coding, options.idling)
        try:
            await self.stream(incoming, incoming.gather(), send)
        finally:
            took(incoming.received)
            incoming.close()

    async def stream(self, body: "Part | Incoming", left: Coroutine[Any, Any, None], send: Send) -> None:
        """Answers until every message is answered, or the client has left. `left`: ends when it has."""
        headers, is_native = [*self._question.head, exchange.UNBUFFERED], self._question.kind.native
        if not is_native:
            headers += self._tools.clock.headers(self._timing)
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start | {"trailers": True} if is_native else start)
        if isinstance(self._tools.dispatcher, Inline):  # it has all parts at once
            left.close()
            await self._tell_all(body, send)
            return
        telling = asyncio.create_task(self._tell_all(body, send))
        gone = asyncio.create_task(left)
        ends = False
        try:
            await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # by a server that ends, or a function whose time is up
            ends = True
        finally:
            telling.cancel()
            gone.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)
        if ends and telling.cancelled():
            await self._end(out_of_time() if self._is_of_function else cut_off(), send)

    async def _tell_all(self, body: "Part | Incoming", send: Send) -> None:
        async def tell(part: bytes) -> None:
            await exchange.proceed(part, send, self._options.flight)

        failure: ServingError | None = None
        try:
            async with asyncio.timeout(self._left()):
                await self._answers(body, tell)
        except TimeoutError:
            failure = self._late()
        except ServingError as error:
            refused(error)
            failure = error.with_traceback(None)  # it would hold this frame
        except OSError:  # the client has left
            raise
        except Exception as error:  # noqa: BLE001 - its stream would end without its last message
            failure = unforeseen(error, self._question.method.rpc.name)
            refused(failure)
        await self._end(failure, send)

    async def _end(self, failure: ServingError | None, send: Send) -> None:
        kind = self._question.kind
        await send({"type": "http.response.body", "body": kind.last(failure, own_id())})
        if kind.native:
            more = self._tools.clock.headers(self._timing)
            await exchange.follow((*kind.trailers(failure, own_id()), *more), send)

    async def _answers(self, body: "Part | Incoming", tell: Tell) -> None:
        if isinstance(body, Incoming):
            await self._exchange(body.messages(), self._held, tell, self._options.flight)
        elif self.form is Form.WATCH:
            await self._watch(self._message(body), tell)
        elif self.form is Form.STREAM:
            await _tell_each(self._each(self._message(body)), tell)
        else:
            check_messages(body)
            # Their bytes count already, as those of the body.
            await self._exchange(self._messages(body), self._each, tell, NO_LIMIT)

    async def _exchange(self, messages: AsyncIterator[Frame], each: Each, tell: Tell, flight: Flight) -> None:
        plan = exchanges.Plan(
            partial(each, refusals=RefusedInARow()),
            self._id_of,
            self._options.abreast,
            lambda frame: flight.fits(frame.content),
            lambda frame: flight.waiting(frame.content),
        )
        await _tell_each(exchanges.answered(messages, plan), tell)

    async def _held(self, frame: Frame, refusals: RefusedInARow) -> AsyncGenerator[Any]:
        """Yields each answer to a message of its own, which counts against the budget meanwhile."""
        size = WEIGHT * len(frame.content) if len(frame.content) >= SMALL else 0
        with self._options.flight.holding(size):
            async with aclosing(self._each(frame, refusals)) as answers:
                async for answer in answers:
                    yield answer

    async def _messages(self, body: Part) -> AsyncGenerator[Frame]:
        for frame in self._question.frames(body, self._options.limit):
            yield frame

    def _id_of(self, frame: Frame) -> str:
        """Returns the id of a message; "" for one that has to be inflated first."""
        question = self._question
        return "" if frame.coding else question.method.id_of(frame.content, json=question.kind.json)

    async def _each(self, frame: Frame, refusals: RefusedInARow | None = None) -> AsyncGenerator[Any]:
        """Yields each answer to one message. `refusals`: of the stream that it is part of. Raises ServingError."""
        codec, timing = EnvelopeCodec(self._question, frame, self._options), Timing(self._until)
        with closing(codec):
            answers = await self._answered(codec, timing)
            items = (answers,) if isinstance(answers, bytes) else answers
            each: AsyncGenerator[Any] = self._tools.dispatcher.each(items, timing)
            async with aclosing(each):
                while (
                    part := await guarded(anext(each, None), codec, timing, self._question.method.rpc.name)
                ) is not None:
                    exchange.admit(len(part), len(frame.content), self._options.flight)
                    yield part
        if refusals is not None:
            refusals.check(refused=codec.refused)

    async def _watch(self, frame: Frame, tell: Tell) -> None:
        last, begun = None, asyncio.get_running_loop().time()
        while True:
            part = await self._answer(frame, Timing(self._until))
            if part != last:
                await tell(part)
            if self._is_of_function:  # a client that watches would keep an instance busy, which is paid for
                return
            last = part
            await self._options.idling.wait(asyncio.sleep(WATCH_SECONDS), begun)

    def _answer(self, frame: Frame, timing: Timing) -> Awaitable[Any]:
        return self._answered(EnvelopeCodec(self._question, frame, self._options), timing)

    def _answered(self, codec: "EnvelopeCodec", timing: Timing) -> Awaitable[Any]:
        works(codec, timing)
        self._timing = timing  # the last one stands in gRPC's trailers
        job: Job[Any] = Job(codec, self._models, timing)
        rpc = self._question.method.rpc
        return guarded(self._tools.dispatcher.answer(job, rpc.waits), codec, timing, rpc.name)

    def _message(self, body: Part) -> Frame:
        return self._question.only(body, self._options.limit)

    def _left(self) -> float | None:
        """Returns the seconds until the deadline, None without one.

        Raises TimeoutError once it has passed. A timer would let the work begin, and a quick answer would be in time.
        """
        if self._deadline is NEVER:
            return None
        left = self._deadline.left
        if left <= 0:
            raise TimeoutError
        return left

    def _late(self) -> DeadlineExceeded:
        error = DeadlineExceeded(f"no answer within {(self._question.seconds or 0) * 1e3:g} ms")
        refused(error)
        return error


async def _tell_each(parts: AsyncGenerator[Any], tell: Tell) -> None:
    async with aclosing(parts):
        async for part in parts:
            await tell(part)
