"""Answers whole requests in the turn of the event loop that has read them, if that is sure to be short.

All others come by ASGI, whose task, events and messages take as long as a tiny inference. The gate, the limits and the
records are the same.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from core.wire import REQUEST_ID, Header, HttpResponse, HttpStream, Part
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.gate.gate import AccessGate
from handler.edge.jobs import WholeHead
from handler.edge.observe.record import RECORD, Record, drawn
from handler.edge.rest import Rest, Tools
from handler.edge.timing import Timing

if TYPE_CHECKING:
    from handler.edge.calls.connect import Calls

Sending = Callable[[Scope, Receive, Send], Awaitable[None]]
Write = Callable[[HttpResponse, Sequence[Header], Sequence[Part]], None]
"""Sends a whole answer: its own status, headers and trailers, further headers, and its body, which HEAD has not."""


class AtOnce:
    """The whole requests of an application, by REST and by remote calls; see handler.edge.server.whole.

    `calls`: None until one has come, by ASGI, which has imported what they need.
    """

    def __init__(self, gate: AccessGate, tools: Tools, rest: Rest) -> None:
        self.calls: Calls | None = None
        self._gate = gate
        self._tools = tools
        self._rest = rest

    def head(self, scope: Scope) -> WholeHead | None:
        """Returns a head that `answer` may be asked about; None for a request that has to come by ASGI."""
        destination = self._rest.routes.destination(scope)
        if destination.match is not None:
            return self._rest.head(scope, destination.match)
        calls = self.calls if destination.is_rpc else None
        return None if calls is None else calls.head(scope, destination.path)

    def answer(self, head: WholeHead, body: bytes, write: Write, most: int) -> bool | Sending:
        """Answers a whole request, if that is sure to be short, and returns True. `most`: bytes that `write` may get.

        False: it has to come by ASGI. A longer answer, and one in parts, is returned as an application that sends it.
        """
        if len(body) > self._rest.options.max_body_bytes:
            return False
        scope, headers, tools = head.scope, head.headers, self._tools
        models = self._gate.at_once(scope, headers, head.right, head.model)
        if models is None:
            return False
        record = Record(scope["method"], scope["path"], drawn())
        timing = record.timing = Timing()
        if REQUEST_ID in headers:
            record.take(headers[REQUEST_ID])
        record.protocol = timing.protocol = head.protocol
        record.right, record.received = head.right, len(body)
        token = RECORD.set(record)
        try:
            answer = head.answer(body, models, record)
        finally:
            RECORD.reset(token)
        if answer is None:
            return False
        if type(answer) is not HttpResponse or (size := answer.length) > most:
            return partial(self._send, answer, record)
        more = [*tools.clock.headers(timing), (REQUEST_ID, record.request_id)]
        if not answer.trailers:
            more.append((b"content-length", b"%d" % size))
        record.answered(answer)
        record.sent, parts = (0, ()) if record.method == "HEAD" else (size, answer.parts)
        write(answer, more, parts)
        tools.observer.end(record)
        return True

    async def _send(
        self, answer: HttpResponse | HttpStream, record: Record, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Sends an answer that has been made."""
        RECORD.set(record)
        record.answers_by(send)
        await self._tools.ongoing.recorded(record, scope, self._sent(answer, record, receive))

    async def _sent(self, answer: HttpResponse | HttpStream, record: Record, receive: Receive) -> None:
        while (await receive()).get("more_body"):  # its client leaves behind the body
            pass
        await self._rest.sent(answer, record, receive, record.send)
