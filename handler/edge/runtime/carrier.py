"""Runs the application for the events of all pollers, in one event loop."""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from core.deadline import Deadline
from core.errors import ServingError
from core.wire import ID_MEMBER
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.function.deadlines import is_of_events
from handler.edge.observe.record import out_of_time, sent_in
from handler.edge.protocols import INTERNAL
from handler.edge.runtime.api import OK, EventContext, RuntimeApiError
from handler.edge.runtime.http_event import STREAMED, HttpEvent
from handler.edge.runtime.stream import ResponseStream, head_of

log = logging.getLogger(__name__)
BEAT_SECONDS = 15.0
"""A stream of events that pauses for so long gets a comment: gateways end an idle one, some after 30 s."""
EVENTS: Final = b"text/event-stream"
BEAT: Final = b":\n\n"
"""A comment (WHATWG HTML, Server-sent events). It is sent between two events, never inside one."""
WAITING: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
"""The headers of a stream of events that begins while its model is being loaded."""
TRACE: Final = b"x-amzn-trace-id"
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class LoopCarrier:
    """`loop`: runs in a thread of its own. Pollers call `run` and `pass_on`, and wait meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, app: AsgiApp, handler: Any, http: HttpEvent) -> Any:
        """Returns the function's document, or STREAMED. `handler`: Mangum's, of the event.

        Raises TimedOut if the answer does not begin in time, and the application's errors before that.
        """
        talk = _Talk(handler, http)
        self._do(talk.run(app))
        return talk.document() if talk.stream is None else self._finished(talk.stream)

    def pass_on(self, document: Any, context: EventContext) -> Any:
        """Sends a document that the function has made itself in the form of a stream. Returns STREAMED."""
        stream: ResponseStream = context.stream
        if stream.begun:  # its sender has a head already, and learns from the broken answer
            stream.drop()
            return STREAMED
        text = document["body"]
        body = base64.b64decode(text) if document["isBase64Encoded"] else text.encode()
        headers = [(name.encode(), value.encode("latin-1")) for name, value in document["headers"].items()]

        async def sent() -> None:
            await stream.begin(head_of(document["statusCode"], headers))
            await stream.send(body)
            await stream.end()

        self._do(sent())
        return self._finished(stream)

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _finished(self, stream: ResponseStream) -> Any:
        try:
            stream.finish()
        except RuntimeApiError as error:
            log.warning("a streamed answer: %s", error)
        return STREAMED


class _Talk:
    """ASGI's messages of one event. Its answer is kept, or sent in pieces."""

    def __init__(self, handler: Any, http: HttpEvent) -> None:
        self.stream: ResponseStream | None = http.context.stream if http.streamed else None
        self._handler = handler
        self._http = http
        self._left = asyncio.Event() if self.stream is None else self.stream.left
        self._asked = self._begun = self._ended = False
        self._answer: dict[str, Any] = {}
        self._parts: list[bytes] = []
        self._limit: asyncio.Timeout | None = None
        self._beating: list[asyncio.Task[None]] = []
        self._is_early = self._is_refusal = False

    async def run(self, app: AsgiApp) -> None:
        """Runs the application to its end. Errors after the answer's beginning are sent in its trailers."""
        try:
            await self._run(app)
        except Exception as error:
            stream = self.stream
            if stream is None or not stream.begun:
                raise
            if not isinstance(error, ServingError):
                log.exception("an HTTP event failed after its answer had begun")
            message = error.message if isinstance(error, ServingError) else INTERNAL
            if self._is_early and not self._begun:
                own_id = sent_in(self._handler.scope["headers"])
                told = {"error": message} | ({ID_MEMBER: own_id.decode()} if own_id else {})
                await stream.send(b"data: %b\n\n" % json.dumps(told).encode())
            await stream.fail(type(error).__name__, message)
        finally:
            for task in self._beating:
                task.cancel()
            if self.stream is not None:
                self.stream.close()

    async def _run(self, app: AsgiApp) -> None:
        ends = self._http.ends
        scope = _traced(self._handler.scope, self._http.context)
        limit = self._limit = asyncio.timeout_at(_at(ends.due))
        if self.stream is not None and is_of_events(scope["path"]):
            self._beating.append(asyncio.create_task(self._wait(self.stream, scope["path"])))
        try:
            async with limit:
                await app(scope, self.receive, self.send)
        except TimeoutError:
            if not limit.expired():
                raise
            raise out_of_time() from None
        if not self._ended and not self._left.is_set():
            raise RuntimeError("the application has not ended its answer")

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._handler.body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message["status"], message.get("headers", ()))
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if self.stream is None or self._is_refusal:
            self._parts.append(body)
        else:
            await self.stream.send(body)
        if is_last:
            self._ended = True
            if self.stream is None:
                self._left.set()
                return
            if self._is_refusal:  # JSON in one line, as every protocol with such streams refuses
                await self.stream.send(b"data: %b\n\n" % b"".join(self._parts))
            await self.stream.end()

    async def _begin(self, status: int, headers: Any) -> None:
        if self.stream is None:
            self._answer = {"status": status, "headers": [list(pair) for pair in headers]}
            return
        self._begun = True
        is_events = any(bytes(k).lower() == b"content-type" and bytes(v).startswith(EVENTS) for k, v in headers)
        if self._is_early:
            self._is_refusal = not is_events
        else:
            await self.stream.begin(head_of(status, headers))
            self._extend()
        if is_events:
            self._beating.append(asyncio.create_task(_beat(self.stream)))

    def _extend(self) -> None:
        """Gives an answer that has begun the function's time."""
        if self._limit is not None:
            self._limit.reschedule(_at(self._http.ends.end))

    async def _wait(self, stream: ResponseStream, path: str) -> None:
        """Begins a stream of events whose model takes long to load, and sends comments that say how far it is.

        Nothing is sent for the first seconds: most refusals come sooner, and have their own status.
        """
        await asyncio.sleep(BEAT_SECONDS)
        while not self._begun:
            if not self._is_early:
                self._is_early = True
                try:
                    await stream.begin(head_of(OK, WAITING))
                except RuntimeApiError as error:
                    log.warning("a streamed answer: %s", error)
                    self._left.set()
                    return
                self._extend()
            told = self._http.awaited(path).encode()
            await stream.send(b": %b\n\n" % told if told else BEAT)
            await asyncio.sleep(BEAT_SECONDS)

    def document(self) -> Any:
        """Returns the function's document."""
        return self._handler({**self._answer, "body": b"".join(self._parts)})


async def _beat(stream: ResponseStream) -> None:
    """Sends a comment whenever a stream of events has paused for BEAT_SECONDS after an event."""
    loop, left = asyncio.get_running_loop(), BEAT_SECONDS
    while True:
        await asyncio.sleep(left)
        left = stream.sent + BEAT_SECONDS - loop.time()
        if left <= 0:
            left = BEAT_SECONDS
            if stream.last == b"\n\n":
                await stream.send(BEAT)


def _traced(scope: Scope, context: EventContext) -> Scope:
    """Puts Lambda's own span into the request of one of several events, unless nothing of it is recorded."""
    if not context.alone and context.trace is not None and "Sampled=1" in context.trace:
        kept = [pair for pair in scope["headers"] if bytes(pair[0]) != TRACE]
        scope["headers"] = [*kept, [TRACE, context.trace.encode("latin-1")]]
    return scope


def _at(deadline: Deadline) -> float | None:
    """Returns a deadline on the event loop's clock."""
    return None if deadline.is_never else asyncio.get_running_loop().time() + deadline.left
