"""uvicorn's httptools protocol with bounds, for `dragoman serve` and `uvicorn --http`.

httptools joins the pieces of a header one by one, which takes quadratic time. uvicorn limits neither sizes nor times.
This class counts the bytes of a head before the parser gets more of them. A request that comes in one piece costs a few
comparisons. `watch.Watch` looks at the times. A whole request that our application can answer at once gets its answer
without a task, an event and the messages of ASGI: see `whole`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from core.wire import Part, by_name
from handler.edge.exchange import length_in
from handler.edge.server import offers, refusals
from handler.edge.server.body import ArrivingBody
from handler.edge.server.flow import BODIES, HEADS, MOST_WAITING, JoinedWrites, Lingering, PacedFlow, add
from handler.edge.server.heads import NOTED, HeadNotes
from handler.edge.server.limits import Limits, limits
from handler.edge.server.refusals import Refusal
from handler.edge.server.watch import watch_of
from handler.edge.server.watched import BODY, OVER, WatchedHttp


class BoundedHttp(WatchedHttp):
    """One connection. `head`: bytes of a head that is not complete, else BODY, or OVER if nothing more is read.

    `_left`: the bytes of a body that are still to come, if its length is known. The parser gets them as they come.
    """

    bounds: Limits | None = None  # of the settings; else the environment's, under uvicorn's own command

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.ws_protocol_class = None
        self.limits = self.bounds or limits()
        self.url = self._declined = b""
        self.headers = []
        self.head = self.received = 0
        self.seen = None
        self.since = 0.0
        self._fed = self._left = self._unread = 0
        self._notes = HeadNotes()
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self.flow: PacedFlow = PacedFlow(transport)
        self.transport = self.joined = JoinedWrites(transport, self.loop)  # type: ignore[assignment] # as far as used
        watch = watch_of(self.server_state, self.limits, self.timeout_keep_alive, self.loop)
        watch.begin()
        self.since = watch.now
        if len(self.connections) > self.limits.connections and not watch.make_room():
            self._end(refusals.CROWDED)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.head == OVER:
            return
        self.had_turn = False
        begins = not self.head and self._owes_nothing() and not self.flow.kept
        if begins and self.takes_again(data):
            return
        if len(data) <= (self._left or HEADS) and not self.pipeline and not self.flow.kept:  # nearly always
            self._parse(data)
        else:
            self.flow.keep(data)
            self._go_on()
        if begins and self.had_turn:
            self.remember(data)
        elif begins and self.arriving is not None:
            self.arriving.follows(data)

    def _take_turn(self) -> None:
        self.had_turn = False
        self._go_on()

    def _go_on(self) -> None:
        """Parses the kept bytes, until enough requests wait for their answers."""
        flow = self.flow
        while flow.kept and len(self.pipeline) < MOST_WAITING and self.head != OVER and not self.transport.is_closing():
            self._parse(flow.next((self._left or BODIES) if self.head == BODY else HEADS))
        flow.settle()

    def _parse(self, data: Part) -> None:
        if self.head < 0:
            self._data_of_body(data)
            return
        size = len(data)
        self._fed = self.head + size
        last = self.last
        self._feed(data)
        if self.head or self.last is last or self.scope is not self.last:
            self._incomplete(last, size)

    def _incomplete(self, last: Any, size: int) -> None:
        """Continues where data ended within a request. `last`: the scope of the last one before these bytes arrived."""
        if self.pieces is not None and self._arrives(self.pieces):
            return
        if self.head == BODY:
            self._body_follows()
        elif self.head == OVER:
            return
        elif self.last is last:
            self.head += size
            if self.head > self.limits.head:
                self.refuse(refusals.too_long(self.url, self.limits.head))
        elif self.scope is not self.last:
            self.head = 1  # it began behind another request; its bytes count from the next piece on

    # -- bodies that arrive in parts ----------------------------------------------------------------------------------

    def _body_follows(self) -> None:
        self.cycle.transport = Lingering(self)  # type: ignore[assignment] # as far as a cycle uses it
        declared = length_in(by_name([*self.cycle.scope["headers"]]), b"content-length")
        self._left = max(0, declared - len(self.cycle.body))

    def _arrives(self, parsed: Sequence[Part]) -> bool:
        """Waits for the body before its request begins, if that may be answered at once. Returns whether it waits."""
        room = self.room()
        if room is None:
            self.begin()
            return False
        self.arriving = ArrivingBody(self, room)
        self.arriving.begin(parsed, self.flow.next(len(room.view) - sum(map(len, parsed))))
        return True

    def arrived(self, body: ArrivingBody) -> None:
        """Ends a request whose whole body has arrived. The parser that has its head alone is replaced."""
        whole, known = body.room.whole(), body.known
        if known is None:
            self.pieces = [whole]
            self.on_message_complete()
            self.parser = offers.parser(self)
            if self.had_turn and body.head:
                self.remember(body.head, 0)
        elif not self.answers_again(known, whole, body.room.came) and self._parse_head(body.head):
            self._feed(whole)

    def begin_early(self, body: ArrivingBody, rest: bytes) -> None:
        """Begins a request whose body does not arrive as a whole. `rest`: what has arrived, but was not parsed."""
        self._came = body.room.came
        if body.known is None or self._parse_head(body.head):
            self.begin()
            self._body_follows()
            if rest:
                self._parse(rest)

    def _parse_head(self, head: bytes) -> bool:
        """Parses a head that was taken for a repeated one. Returns whether its body may follow."""
        self._fed = len(head)
        self._feed(head)
        return self.head == BODY

    # -- what the parser gets -----------------------------------------------------------------------------------------

    def _feed(self, data: Part) -> None:
        """Gives bytes to the parser. A request that offers another protocol is parsed again, without the offer."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserInvalidMethodError:
                refusal, self.url = refusals.of_method(data)
                self.refuse(refusal)
            except httptools.HttpParserError:
                self.logger.debug("Invalid HTTP request received.")
                self.refuse(refusals.MALFORMED)
            except httptools.HttpParserUpgrade as stop:
                if self._declined:
                    data, self._declined = self._declined + data[stop.args[0] :], b""
                    self.parser = offers.parser(self)
                    continue
                self.cycle.keep_alive = False  # the parser takes what follows for another protocol
            return

    def _data_of_body(self, data: Part) -> None:
        if self.head == OVER:
            return
        cycle, size = self.cycle, len(data)
        answered, had = cycle.response_complete, len(cycle.body)
        self._fed = size
        self._left = max(0, self._left - size)
        self._feed(data)
        is_same = self.head == BODY and self.cycle is cycle and self.pieces is None
        if is_same and (answered or len(cycle.body) == had):
            self._count_unread(answered=answered, size=size)
            return
        self._unread = 0
        if self.scope is not self.cycle.scope or (self.head and self.cycle is not cycle):
            self._incomplete(None, 0)

    def _count_unread(self, *, answered: bool, size: int) -> None:
        """Counts what no application reads: trailers and chunks' extensions, and bodies whose answer was sent."""
        self._unread += size
        if answered and self._unread > self.limits.drain:
            self.head = OVER
            self.transport.close()
        elif not answered and self._unread > self.limits.head:
            self.refuse(refusals.too_long(b"", self.limits.head))

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.strip()  # the space around it is not part of a value (RFC 9110 5.5)
        if name in NOTED:
            self._notes.take(name, value.lower())
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.head == OVER:
            raise ConnectionError  # another request behind the last one
        notes = self._notes
        if self.parser.should_upgrade() and notes.odd is not refusals.WEBSOCKET:
            self._declined = offers.declined(self.parser, self.url, self.headers)
            if self._declined:
                return
        version = self.parser.get_http_version()
        is_large = self._fed > self.limits.head or len(self.headers) > refusals.MOST_HEADERS
        if is_large or version != "1.1" or notes.odd is not None or notes.hosts != 1:
            self._odd_headers_complete(version)
        else:
            self.expect_100_continue = notes.expects
            super().on_headers_complete()
        self.head, self.headers = BODY, []  # trailers are not headers (RFC 9110 6.5.1)

    def _odd_headers_complete(self, version: str) -> None:
        self.expect_100_continue = self._notes.expects and version != "1.0"  # RFC 9110 10.1.1
        app, url, refusal = self.app, self.url, self._refusal(version)
        if refusal is not None:
            self.app = refusal  # as an answer of an application it keeps its place behind those of earlier requests
            self.url = b"/"  # perhaps the URL cannot be parsed
        try:
            self.begin()
        finally:
            self.app, self.url = app, url  # the parser may still refuse the head
        if version == "1.0":
            self.cycle.send = refusals.Unframed(self.cycle).send  # type: ignore[method-assign] # of this request alone

    def _refusal(self, version: str) -> Refusal | None:
        """Returns the refusal of a head that is complete."""
        odd = self._notes.refusal(version, upgrades=self.parser.should_upgrade())
        return refusals.of_head(self.url, self.headers, self.limits.head) or (odd and odd.at(self.url))

    def on_body(self, body: bytes) -> None:
        if self.pieces is not None:
            self.pieces.append(body)
        elif not self.cycle.response_complete:
            add(body, self.cycle, self.flow)

    def linger(self) -> None:
        """Closes the connection when the rest of the body was read.

        A client that sends a whole body before it reads would lose the answer if the connection closed at once.
        """
        if self.head != BODY:
            self.transport.close()
            return
        self._lingers = True
        if self.pipeline:  # the body is that of a later request, and none of those has an answer (RFC 9112 9.6)
            self.pipeline.clear()
            self.cycle.response_complete = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_message_complete(self) -> None:
        if self._lingers:
            self.leave()
            return
        self.head = 0
        self._notes.reset()
        if self.pieces is not None and self.answer():
            return
        cycle = self.cycle  # as uvicorn's, except for upgrades
        if not (self._declined or cycle.response_complete):
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Goes on with the next request. uvicorn also arms a timer for an idle connection, which `watch` looks at."""
        self.joined.flush()
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        if self.flow.kept:
            self.loop.call_soon(self._take_turn)
        if self.head != BODY or not self.cycle.response_complete:
            return
        if self.expect_100_continue and not self.cycle.body and not self.transport.is_closing():
            self.head = OVER
            self.transport.close()  # the next bytes may be the body, or the next request (RFC 9110 10.1.1)
