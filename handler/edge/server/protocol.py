"""uvicorn's httptools protocol with bounds, for `dragoman serve` and `uvicorn --http`.

httptools joins the pieces of a header one by one, which takes quadratic time. uvicorn limits neither sizes nor times.
This class counts the bytes of a head before the parser gets more of them. A request that comes in one piece costs a few
comparisons. `watch.Watch` looks at the times.
"""

import asyncio
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from core.wire import Part, by_name
from handler.edge.exchange import length_in
from handler.edge.server import offers, refusals
from handler.edge.server.flow import BODIES, HEADS, MOST_WAITING, JoinedWrites, Lingering, PacedFlow, add
from handler.edge.server.heads import NOTED, HeadNotes
from handler.edge.server.limits import Limits, limits
from handler.edge.server.refusals import Refusal
from handler.edge.server.watch import Stage, watch_of

BODY: Final = -1
OVER: Final = -2


class BoundedHttp(HttpToolsProtocol):
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
        self.url = b""
        self.headers = []
        self.head = self.received = 0
        self.seen: Stage | None = None
        self.since = 0.0
        self._fed = self._left = self._unread = self._resumed = 0
        self._notes = HeadNotes()
        self._declined = b""
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self.flow: PacedFlow = PacedFlow(transport)
        self.transport = self.joined = JoinedWrites(transport, self.loop)  # type: ignore[assignment] # as far as used
        watch = watch_of(self.server_state, self.limits, self.loop)
        watch.begin()
        self.since = watch.now
        if len(self.connections) > self.limits.connections and not watch.make_room():
            self._end(refusals.CROWDED)

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self.received += len(data)
        if len(data) <= (self._left or HEADS) and not self.pipeline and not self.flow.kept:  # nearly always
            self._parse(data)
        else:
            self.flow.keep(data)
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
        cycle = self.cycle
        self._feed(data)
        if self.head or self.cycle is cycle or self.scope is not self.cycle.scope:
            self._incomplete(cycle, size)

    def _incomplete(self, cycle: Any, size: int) -> None:
        """Continues where data ended within a request. `cycle`: the last request before these bytes arrived."""
        if self.head == BODY:
            self.cycle.transport = Lingering(self)  # type: ignore[assignment] # as far as a cycle uses it
            declared = length_in(by_name([*self.cycle.scope["headers"]]), b"content-length")
            self._left = max(0, declared - len(self.cycle.body))
        elif self.head == OVER:
            return
        elif self.cycle is cycle:
            self.head += size
            if self.head > self.limits.head:
                self.refuse(refusals.too_long(self.url, self.limits.head))
        else:
            self.head = 1  # it began behind another request; its bytes count from the next piece on

    def _feed(self, data: Part) -> None:
        """Gives bytes to the parser. A request that offers another protocol is parsed again, without the offer."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserInvalidMethodError:
                self.refuse(refusals.of_method(data))
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
        if self.head == BODY and self.cycle is cycle and (answered or len(cycle.body) == had):
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
            self.refuse(refusals.LONG_HEAD)

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
        app, refusal = self.app, self._refusal(version)
        if refusal is not None:
            self.app = refusal  # as an answer of an application it keeps its place behind those of earlier requests
            self.url = b"/"  # perhaps the URL cannot be parsed
        try:
            super().on_headers_complete()
        finally:
            self.app = app
        if version == "1.0":
            self.cycle.send = refusals.Unframed(self.cycle).send  # type: ignore[method-assign] # of this request alone

    def _refusal(self, version: str) -> Refusal | None:
        """Returns the refusal of a head that is complete."""
        too_large = refusals.of_size(self.url, self.headers, self.limits.head)
        return too_large or self._notes.refusal(version, upgrades=self.parser.should_upgrade())

    def on_body(self, body: bytes) -> None:
        if not self.cycle.response_complete:
            add(body, self.cycle, self.flow)

    def linger(self) -> None:
        """Closes the connection when the rest of the body was read.

        A client that sends a whole body before it reads would lose the answer if the connection closed at once.
        """
        if self.head != BODY:
            self.transport.close()
            return
        self._lingers = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_message_complete(self) -> None:
        if self._lingers:
            self.leave()
            return
        self.head = 0
        self._notes.reset()
        cycle = self.cycle  # as uvicorn's, except for upgrades
        if not (self._declined or cycle.response_complete):
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        self.joined.flush()
        super().on_response_complete()
        if self.flow.kept:
            self.loop.call_soon(self._go_on)
        if self.head != BODY or self.pipeline:
            return
        if self.expect_100_continue and not self.cycle.body and not self.transport.is_closing():
            self.head = OVER
            self.transport.close()  # the next bytes may be the body, or the next request (RFC 9110 10.1.1)

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    def refuse(self, refusal: Refusal) -> None:
        """Ends the connection with a refusal, or, where answers to earlier requests are due, after the last of them."""
        cycle, in_body = self.cycle, self.head == BODY
        if self._owes_nothing():
            self.leave() if in_body else self._end(refusal)
        elif not in_body:
            self.head = OVER
            self.flow.pause_reading()
            cycle.keep_alive = False
        elif cycle.response_started or self.pipeline:
            self.leave()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._end(refusal)

    def _end(self, refusal: Refusal) -> None:
        self.head = OVER
        if not self.transport.is_closing():
            self.transport.write(refusal.raw(self.server_state.default_headers))
            self.transport.close()

    def leave(self) -> None:
        """Closes the connection without an answer."""
        self.head = OVER
        self.transport.close()

    def is_idle(self) -> bool:
        """Decides whether it was used, and has no request, nor a part of one, nor an answer that is being sent."""
        last: Any = self.cycle  # None before the first request
        answered = last is not None and last.response_complete
        return answered and self.head == 0 and not self.transport.get_write_buffer_size()

    def _owes_nothing(self) -> bool:
        """Decides whether every request has its answer."""
        last: Any = self.cycle  # None before the first request
        return last is None or last.response_complete

    def stage(self) -> Stage | None:
        """Returns where the connection is, if it is the client that has to go on."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            return Stage("answer", unsent << 32 | self._resumed & 0xFFFFFFFF, self.limits.pause)
        if self.head == BODY:
            return self._stage_of_body()
        if self.head == OVER or not self._owes_nothing():
            return None
        if self.head or self.cycle is None:
            return Stage("head", id(self.cycle), self.limits.head_seconds)
        return Stage("idle", self.received, float("inf"))  # until uvicorn closes it

    def _stage_of_body(self) -> Stage | None:
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            return None  # the application does not read
        return Stage("body", self.received // self.limits.least, self.limits.pause)

    def give_up(self, stage: Stage) -> None:
        """Ends a connection whose client does not go on."""
        if stage.name == "answer":
            self.head = OVER
            self.transport.abort()  # closing would wait for the client to read
        elif self.received:
            self.refuse(refusals.LATE)
        else:
            self.leave()
