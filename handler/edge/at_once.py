"""Answers a whole request in the turn of the event loop that reads it, if the answer is sure to be quick.

Other requests go through ASGI, whose task, events and messages take as long as a tiny inference. The gate, the limits
and the records are the same for both.
"""

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from core.errors import ServerBusy
from core.wire import REQUEST_ID, Header, HttpResponse, HttpStream, Part
from handler.edge.exchange import Receive, Room, Scope, Send, Sending, Write
from handler.edge.gate.gate import AccessGate
from handler.edge.jobs import AT_END, QUICKLY_READ, RAW_QUICKLY_READ, WholeHead
from handler.edge.observe.record import RECORD, Record, drawn
from handler.edge.rest import ClientWatch, Rest, Tools
from handler.edge.timing import Timing

if TYPE_CHECKING:
    from handler.edge.calls.connect import Calls


class AtOnce:
    """Answers whole requests of REST and whole remote calls of one application; see handler.edge.server.whole.

    `calls`: None until a first call has come through ASGI, which imports the code for calls.
    """

    def __init__(self, gate: AccessGate, tools: Tools, rest: Rest) -> None:
        self.calls: Calls | None = None
        self._gate = gate
        self._tools = tools
        self._rest = rest

    def head(self, scope: Scope) -> WholeHead | None:
        """Returns the head for `answer`; None for a request that goes through ASGI."""
        destination = self._rest.routes.destination(scope)
        if destination.match is not None:
            return self._rest.head(scope, destination.match)
        calls = self.calls if destination.is_rpc else None
        return None if calls is None else calls.head(scope, destination.path)

    def room(self, head: WholeHead, size: int) -> Room | None:
        """Returns memory for a body that is still arriving; None for a request that begins before its body has arrived.

        A request that the gate would refuse is one of the latter, as is one that is not sure to be quick.
        """
        most = QUICKLY_READ if not head.raw_at else RAW_QUICKLY_READ
        if head.raw_at is None or size > min(most, self._rest.options.max_body_bytes):
            return None
        if self._gate.models_at_hand(head.scope, head.headers, head.right, head.model) is None:
            return None
        try:
            return Room(size, size if head.raw_at == AT_END else head.raw_at, self._tools.flight)
        except ServerBusy:
            return None

    def answer(self, head: WholeHead, body: Part, write: Write, most: int, came: int | None = None) -> bool | Sending:
        """Answers a whole request if that is sure to be quick. `most`: the most bytes that `write` may get.

        `came`: when the head came, on time.perf_counter_ns(), if that was in an earlier turn.
        Returns True for an answer that was written, False for a request that goes through ASGI. Returns an ASGI
        application that sends the answer, if the answer has more bytes or is a stream.
        """
        if len(body) > self._rest.options.max_body_bytes:
            return False
        scope, headers, tools = head.scope, head.headers, self._tools
        models = self._gate.models_at_hand(scope, headers, head.right, head.model)
        if models is None:
            return False
        record = Record(scope["method"], scope["path"], drawn())
        record.came = came or record.came
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
        more: list[Header] = [*tools.clock.headers(timing), (REQUEST_ID, record.request_id)]
        record.answered(answer)
        if answer.trailers:
            answer = HttpResponse(answer.status, answer.headers, answer.parts, (*answer.trailers, *more))
            more = []
        else:
            more.append((b"content-length", b"%d" % size))
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
        while (await receive()).get("more_body"):  # the message that the client has left follows the body
            pass
        with closing(ClientWatch(receive)) as watch:
            await self._rest.sent(answer, record, watch, record.send)
