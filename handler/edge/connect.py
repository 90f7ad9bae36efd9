"""The edge of remote calls over plain HTTP: Connect and gRPC-Web, on the same port as REST and through its gateways.

Imported with the first such request. core.dialects.connect says what the protocols are; what waits is here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Final, Protocol, TypeVar

from core.dialects.connect import protocol
from core.dialects.connect.codes import DeadlineExceeded, EdgeError
from core.dialects.connect.envelopes import Frame, only
from core.dialects.connect.protocol import Question
from core.dialects.connect.requests import from_text
from core.dialects.rpcs import RPCS
from core.errors import ServingError
from core.rpc import Form
from core.wire import HttpResponse, Part, Waits
from handler.edge import bodies
from handler.edge.bodies import Receive
from handler.edge.jobs import QUICKLY_READ, AnyJob, Sent
from handler.edge.rpc_jobs import WATCH_SECONDS, RpcJob, guarded
from handler.edge.timing import Timing
from handler.lifecycle.registry import Registry
from handler.settings import Settings

METHODS: Final = {method.path: method for method in RPCS}
Send = Callable[[dict[str, Any]], Awaitable[None]]
Tell = Callable[[bytes], Awaitable[None]]
T = TypeVar("T")


class Application(Protocol):
    """What is needed of handler.edge.app."""

    settings: Settings
    registry: Registry
    inline: bool
    compress_from: int

    async def answer(
        self, job: AnyJob[Sent], waits: Waits, timing: Timing | None, left: Callable[[], float | None]
    ) -> Sent: ...

    def each(self, items: Iterable[T]) -> AsyncGenerator[T]: ...


async def serve(app: Application, scope: Mapping[str, Any], receive: Receive, send: Send, timing: Timing) -> None:
    """Answers a request for /package.Service/Method, whatever it is. `timing` gets the steps of what has one answer."""
    headers = dict(scope["headers"])
    path = "/" + "/".join(scope["path"].rsplit("/", 2)[1:])
    try:
        question = protocol.question(METHODS.get(path), scope["method"], path, headers, scope.get("query_string", b""))
        call = _Call(app, question, timing if question.method.form is Form.UNARY else None)
        # Raw tensors are a message's last field: where a body ends aligned, the last of them needs no copy.
        ending = {**headers, b"inference-header-content-length": headers.get(b"content-length", b"")}
        body = await bodies.gather(ending, receive, app.settings.max_body_bytes)
        if body is None:
            return
        timing.came = time.perf_counter_ns()
        if question.kind.text:
            body = await call.plain(body)
    except ServingError as error:
        await _send(protocol.NATIVE if protocol.is_native(headers) else protocol.kind_of(headers).refuse(error), send)
        return
    if question.method.form is Form.UNARY:
        await _send(await call.whole(body), send)
    else:
        await call.stream(body, receive, send)


async def _send(response: HttpResponse, send: Send) -> None:
    headers = [*response.headers, (b"content-length", b"%d" % response.length)]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(response.parts)})


class _Call:
    """One call, from its messages to its answers. Its deadline counts from when its head was read."""

    __slots__ = ("_app", "_lambda", "_question", "_timing", "_when")

    def __init__(self, app: Application, question: Question, timing: Timing | None) -> None:
        self._app = app
        self._timing = timing
        self._question = question
        # A function answers once, when it has all, and serves nobody else meanwhile.
        self._lambda = app.inline
        seconds = question.seconds
        self._when = None if seconds is None else asyncio.get_running_loop().time() + seconds

    async def plain(self, text: Part) -> Part:
        """Raises InvalidInput, ServerBusy."""
        return await self._app.answer(_Text(text), Waits.MODEL, None, self._left)

    async def whole(self, body: Part) -> HttpResponse:
        try:
            if self._when is None:
                return await self._only(body)
            async with asyncio.timeout_at(self._when):
                return await self._only(body)
        except TimeoutError:
            return self._question.kind.refuse(self._late())
        except ServingError as error:
            return self._question.kind.refuse(error)

    async def _only(self, body: Part) -> HttpResponse:
        job = self._job(only(self._frames(body)))
        answer: HttpResponse = await self._guarded(self._answer(job), job)
        return answer

    async def stream(self, body: Part, receive: Receive, send: Send) -> None:
        """Answers until all has been said, or the client has gone."""
        await send({"type": "http.response.start", "status": 200, "headers": [*self._question.head()]})
        if self._lambda:
            await self._tell_all(body, send)
            return
        telling = asyncio.create_task(self._tell_all(body, send))
        gone = asyncio.create_task(bodies.disconnected(receive))
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
            async with self._deadline():
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
                await asyncio.sleep(0)  # thousands of quick answers must not hold up everybody else

    async def _each(self, frame: Frame, tell: Tell) -> None:
        job = self._job(frame)
        answers = await self._guarded(self._answer(job), job)
        async with aclosing(self._app.each((answers,) if isinstance(answers, bytes) else answers)) as each:
            while (part := await self._guarded(anext(each, None), job)) is not None:
                await tell(part)

    async def _watch(self, frame: Frame, tell: Tell) -> None:
        told = None
        while True:
            job = self._job(frame)
            part = await self._guarded(self._answer(job), job)
            if part != told:
                await tell(part)
            if self._lambda:
                return
            told = part
            await asyncio.sleep(WATCH_SECONDS)

    def _guarded(self, work: Awaitable[Any], job: "_Job") -> Awaitable[Any]:
        return guarded(work, job, self._question.method.rpc.name)

    def _answer(self, job: "_Job") -> Awaitable[Any]:
        return self._app.answer(job, self._question.method.rpc.waits, self._timing, self._left)

    def _left(self) -> float | None:
        """Seconds until the client's deadline."""
        return None if self._when is None else self._when - asyncio.get_running_loop().time()

    def _frames(self, body: Part) -> Iterator[Frame]:
        return self._question.frames(body, self._app.settings.max_body_bytes)

    def _job(self, frame: Frame) -> "_Job":
        return _Job(self._app, self._question, frame, self._timing)

    def _deadline(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._when is None else asyncio.timeout_at(self._when)

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"no answer within {(self._question.seconds or 0) * 1e3:g} ms")


class _Text:
    """The job of reading a body that came as text."""

    __slots__ = ("_body",)

    def __init__(self, body: Part) -> None:
        self._body = body

    def is_quick(self) -> bool:
        return len(self._body) <= QUICKLY_READ

    def run(self) -> Part:
        return from_text(self._body)

    def phrase(self, result: Part) -> Part:
        return result


class _Job:
    """One message's job, with its compression and framing both ways, which belong in the same thread."""

    __slots__ = ("_app", "_frame", "_job", "_least", "_question", "_timing")

    def __init__(self, app: Application, question: Question, frame: Frame, timing: Timing | None) -> None:
        self._app = app
        self._question = question
        self._frame = frame
        self._timing = timing
        self._least = app.compress_from
        self._job = None if frame.compressed else self._read()

    def is_quick(self) -> bool:
        return self._job is not None and not self._question.deflates and self._job.is_quick()

    def run(self) -> Any:
        if self._job is None:
            self._job = self._read()
        return self._sent(self._job.run())

    def phrase(self, result: Any) -> Any:
        if self._job is None:
            raise AssertionError
        return self._sent(self._job.phrase(result))

    def instead(self, error: ServingError) -> Any:
        """What is sent in place of an error that is not the protocol's own; None if it is an error."""
        if self._job is None or isinstance(error, EdgeError):
            return None
        message = self._job.instead(error)
        return None if message is None else self._sent(message)

    def _read(self) -> RpcJob:
        kind, method = self._question.kind, self._question.method
        # Protobuf reads a view as well as bytes, without a copy; its JSON is text.
        message: Any = self._frame.message(self._app.settings.max_body_bytes)
        body = bytes(message) if kind.json else message
        return RpcJob(self._app.registry, method, body, self._timing, json=kind.json)

    def _sent(self, answer: Any) -> HttpResponse | bytes | Iterable[bytes]:
        if self._question.method.form is Form.UNARY:
            return self._question.answer(answer, self._least)
        if isinstance(answer, bytes):
            return self._part(answer)
        return tuple(map(self._part, answer)) if isinstance(answer, tuple) else self._parts(answer)

    def _parts(self, answers: Any) -> Iterator[bytes]:
        try:
            yield from map(self._part, answers)
        finally:
            answers.close()

    def _part(self, message: bytes) -> bytes:
        return self._question.part(message, self._least)
