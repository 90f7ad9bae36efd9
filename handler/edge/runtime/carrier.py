"""Runs the application for the events of all pollers, in one event loop."""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from core.deadline import Deadline
from core.errors import ServingError, TimedOut
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.protocols import INTERNAL
from handler.edge.runtime.api import EventContext, RuntimeApiError
from handler.edge.runtime.http_event import STREAMED, HttpEvent
from handler.edge.runtime.stream import ResponseStream, head_of

log = logging.getLogger(__name__)
BEAT_SECONDS = 15.0
"""A stream of events that pauses for so long gets a comment: gateways end an idle one, some after 30 s."""
EVENTS: Final = b"text/event-stream"
BEAT: Final = b":\n\n"
"""A comment (WHATWG HTML, Server-sent events). It is sent between two events, never inside one."""
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
        self._beating: asyncio.Task[None] | None = None

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
            await stream.fail(type(error).__name__, error.message if isinstance(error, ServingError) else INTERNAL)
        finally:
            if self._beating is not None:
                self._beating.cancel()
            if self.stream is not None:
                self.stream.close()

    async def _run(self, app: AsgiApp) -> None:
        ends = self._http.ends
        scope = _traced(self._handler.scope, self._http.context)
        limit = self._limit = asyncio.timeout_at(_at(ends.due))
        try:
            async with limit:
                await app(scope, self.receive, self.send)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut("no answer within the time that the function's timeout and its gateway leave") from None
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
        body = message.get("body", b"")
        if self.stream is None:
            self._parts.append(body)
        else:
            await self.stream.send(body)
        if not message.get("more_body", False):
            self._ended = True
            if self.stream is None:
                self._left.set()
            else:
                await self.stream.end()

    async def _begin(self, status: int, headers: Any) -> None:
        if self.stream is None:
            self._answer = {"status": status, "headers": [list(pair) for pair in headers]}
            return
        await self.stream.begin(head_of(status, headers))
        if self._limit is not None:
            self._limit.reschedule(_at(self._http.ends.end))
        if any(bytes(name).lower() == b"content-type" and bytes(value).startswith(EVENTS) for name, value in headers):
            self._beating = asyncio.create_task(_beat(self.stream))

    def document(self) -> Any:
        """Returns the function's document."""
        return self._handler({**self._answer, "body": b"".join(self._parts)})


async def _beat(stream: ResponseStream) -> None:
    """Sends a comment whenever a stream of events has paused after an event."""
    while True:
        pieces = stream.pieces
        await asyncio.sleep(BEAT_SECONDS)
        if stream.pieces == pieces and stream.last == b"\n\n":
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
