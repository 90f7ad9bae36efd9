"""One connection of HTTP/2: uvicorn's protocol over zttp, with bounds. `handler.edge.server.http2` makes it.

zttp limits the heads of requests, and the streams, resets and frames of a connection. This module enlarges the
windows, limits the bytes that wait to be sent, closes connections that take too long, and counts connections and
requests.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import zttp
from uvicorn.config import Config
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol
from uvicorn.server import ServerState

from handler.edge.exchange import CAME_KEY, Receive, Scope, Send, Sending
from handler.edge.server import refusals
from handler.edge.server.h2.calls import CallRefusal, is_call
from handler.edge.server.h2.paced import Paced
from handler.edge.server.h2.resets import MOST_RESETS, ClientResets, ResetStream
from handler.edge.server.h2.stream import StreamFlow, waits
from handler.edge.server.h2.tables import TableWrites, is_small
from handler.edge.server.h2.unread import UnreadBodies
from handler.edge.server.h2.whole_streams import OF_A_BODY, WholeStreams
from handler.edge.server.limits import Limits
from handler.edge.server.watch import Stage, answering, watch_of
from handler.edge.server.whole import requests_of

WINDOW: Final = 1024 * 1024
WINDOWS: Final = b"\0\0\x06\x04\0\0\0\0\0\0\x04" + WINDOW.to_bytes(4) + b"\0\0\x04\x08\0\0\0\0\0" + WINDOW.to_bytes(4)
"""SETTINGS_INITIAL_WINDOW_SIZE, and WINDOW_UPDATE for the connection. zttp cannot set its windows of 64 kB, for which a
client waits ten times in a message of 600 kB. It gives back what it has read, so that they keep the size they have."""
CALLS: Final = 256
"""The most requests of one connection that are worked on. zttp lets half as many be open; others were reset."""
LARGE: Final = 64 * 1024
"""Bytes behind which other connections have their turn. uvloop would hand over eight megabytes of frames at once."""
LAST_STREAM: Final = 2 * 3072 - 1
"""The stream with which a connection announces its end: zttp breaks off a connection at its 4097th request."""
ANY_STREAM: Final = 2**31 - 1
"""The last stream of a GOAWAY that only announces the end (RFC 9113 6.8)."""
CREDITS: Final = (zttp.WindowUpdate, zttp.Settings, zttp.RstStream)
"""Events after which more of an answer can be sent, or none of it will."""
OF_REQUESTS: Final = (zttp.Request, *OF_A_BODY)
"""The events from which uvicorn makes requests."""


class BoundedHttp2(ZttpH2Protocol):
    """One connection of HTTP/2."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.limits = limits
        self.seen: Stage | None = None
        self.since = 0.0
        self._watch = watch_of(server_state, limits, self.timeout_keep_alive, loop)
        self._paced = Paced(self.app, limits)
        self._whole = WholeStreams(self, requests_of(config))
        self.unread = UnreadBodies(self)
        self._begun = 0
        self._running = 0
        self._resets = ClientResets()
        self._is_announced = False
        self._is_ending = False
        self._credit: asyncio.Event | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        transport.write(WINDOWS)
        self.transport = self._joined = TableWrites(transport, self.loop)  # type: ignore[assignment] # as far as used
        self.since = self._watch.now

    def data_received(self, data: bytes) -> None:
        for part, reset in self._resets.parts(data):
            self._whole.reset = reset
            if part and not self.transport.is_closing():
                super().data_received(part)
            if reset and not self.transport.is_closing():
                self._end(reset)
        if self._resets.count >= MOST_RESETS:
            self._announce()
            self.flush()
        self._joined.flush()
        self._close_if_ending()
        if len(data) >= LARGE and not (self.flow.read_paused or self.transport.is_closing()):
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def _end(self, stream_id: int) -> None:
        """Ends a request whose reset zttp did not get."""
        event, stream = ResetStream(stream_id), self.conn.stream(stream_id)
        self._whole.drop(stream_id)
        if not self.unread.took(event):
            self.handle_rst_stream(event)  # type: ignore[arg-type] # as far as used
        if stream.send_window is not None:  # else it has ended
            stream.reset(zttp.H2ErrorCode.CANCEL)

    def _read_on(self) -> None:
        if not (self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def events(self) -> Iterator[Any]:  # type: ignore[override] # uvicorn's is a generator, too
        has_credit = False
        try:
            while (event := self.conn.next_event()) is not zttp.NEED_DATA:
                has_credit = has_credit or type(event) in CREDITS
                yield from self._passed(event)
        except zttp.RemoteProtocolError as error:  # uvicorn would write a warning, as often as any client likes
            self.logger.debug("Invalid HTTP/2 received: %s", error)
            self.flush()
            self.transport.close()
        yield from self._whole.rest()
        if has_credit:
            self._wake()

    def _passed(self, event: Any) -> Iterable[Any]:
        """Takes an event of zttp, and returns the events that uvicorn gets."""
        kind = type(event)
        if kind in OF_REQUESTS:
            return () if self.unread.took(event) else self._whole.passed(event)
        if kind is zttp.GoAway:  # it is about streams that the server opens (RFC 9113 6.8); new requests may follow it
            self._is_ending = True
        elif kind is zttp.Settings and is_small(event):
            self._joined.confirms = True
        return ()

    def handle_request(self, event: zttp.Request) -> None:
        sending, came = self._whole.details(event.stream_id)
        reason = self.reset_for(event)
        if reason is not None:
            self.conn.stream(event.stream_id).reset(reason)
            return
        self._begun += 1
        if not self._is_over():
            self.counts(1)
        self.app = partial(self._serve, sending)
        super().handle_request(event)
        cycle = self.cycles[event.stream_id]
        if came is not None:
            cycle.scope[CAME_KEY] = came  # type: ignore[typeddict-unknown-key] # ASGI's scopes may have any
        if event.end_stream:  # zttp has no event of its own for it, and uvicorn waits for one
            cycle.more_body = False
            cycle.message_event.set()
        flow = StreamFlow(self, cycle)
        cycle.receive, cycle.send = flow.receive, flow.send  # type: ignore[method-assign] # of this request alone

    def flush_now(self) -> None:
        """Sends the bytes that zttp has queued. Does not wait for the end of the turn."""
        if not self.transport.is_closing():
            self._joined.send(self.conn.data_to_send())

    def answered(self, stream_id: int) -> None:
        """Counts a request that is answered at once. Called before the answer is sent."""
        self._begun += 1
        self.server_state.total_requests += 1
        if stream_id >= LAST_STREAM:
            self._announce()

    def counts(self, change: int) -> None:
        """Counts requests that are under way, or wait for their bodies."""
        self._running += change
        self._watch.requests += change

    def begin_late(self) -> None:
        """Begins requests that have waited for their bodies for too long."""
        self._unset_keepalive_if_required()
        self.handle_events()
        self.flush()

    def reset_for(self, event: zttp.Request) -> zttp.H2ErrorCode | None:
        """Returns why a request gets a reset instead of an answer."""
        if not event.target.isascii():  # uvicorn decodes it (RFC 9113 8.3.1, RFC 3986 2)
            return zttp.H2ErrorCode.PROTOCOL_ERROR
        # A waiting answer takes as much memory as over HTTP/1.1, where each has a connection of its own.
        is_full = self._running >= CALLS or self._watch.requests >= max(CALLS, self.limits.connections)
        return zttp.H2ErrorCode.REFUSED_STREAM if is_full else None

    def _is_over(self) -> bool:
        """Decides whether uvicorn answers a new request itself, without the application."""
        limit = self.limit_concurrency
        return limit is not None and max(len(self.connections), len(self.tasks)) >= limit

    async def _serve(self, sending: Sending | None, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await (sending or self._refusal(scope) or self._paced)(scope, receive, send)
        finally:
            self.counts(-1)

    def on_response_complete(self, stream_id: int) -> None:
        """Ends a request when the client has taken its whole answer; until then the connection is not idle."""
        if stream_id >= LAST_STREAM:  # in the answer's segment: some clients drop all calls under way at a GOAWAY
            self._announce()
        self._joined.flush()
        cycle = self.cycles.get(stream_id)
        if cycle is None or not cycle.response_complete or not waits(cycle):
            super().on_response_complete(stream_id)
            self._close_if_ending()

    def _close_if_ending(self) -> None:
        """Closes the connection when the client or the server has announced its end and the client has all answers."""
        if self._is_ending and not (self.cycles or self._whole.awaits):
            self._close_connection()

    def _refusal(self, scope: Scope) -> refusals.Refusal | CallRefusal | None:
        """Returns the refusal of a head."""
        refusal = refusals.of_head(scope["raw_path"] + scope["query_string"], scope["headers"], self.limits.head)
        return refusal if refusal is None or not is_call(scope) else CallRefusal(refusal.error())

    async def credit(self, until: float) -> None:
        """Waits until the client takes more, or the connection has ended. Raises TimeoutError."""
        credit = self._credit = self._credit or asyncio.Event()
        async with asyncio.timeout_at(until):
            await credit.wait()

    def _wake(self) -> None:
        credit, self._credit = self._credit, None
        if credit is not None:
            credit.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.unread.close()
        self._whole.close()
        self._wake()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()  # a client that does not read gets no answers to its control frames

    def resume_writing(self) -> None:
        super().resume_writing()
        self.resume_reading_if_idle()

    def resume_reading_if_idle(self) -> None:
        if not self.flow.write_paused:
            super().resume_reading_if_idle()

    def is_idle(self) -> bool:
        """Decides whether it has no request, nor an answer that is being sent."""
        return not self.cycles and not self._running and not self.transport.get_write_buffer_size()

    def stage(self) -> Stage | None:
        """Returns where the connection is, if it is the client that has to read. Pauses of streams have own limits."""
        if (taken := self._joined.taken()) is not None:
            return answering(taken, self.limits)
        return Stage("idle", self._begun, float("inf")) if self.is_idle() else None  # until uvicorn closes it

    def give_up(self, _stage: Stage) -> None:
        """Ends a connection whose client does not read."""
        self.transport.abort()  # closing would wait for the client

    def timeout_keep_alive_handler(self) -> None:
        if not self._whole.awaits:
            super().timeout_keep_alive_handler()

    def leave(self) -> None:
        """Closes an idle connection."""
        self._close_connection()

    def shutdown(self) -> None:
        """Ends the connection when all its requests have answers.

        It also answers requests that the client sends before it sees the announcement. uvicorn would refuse those, and
        gRPC clients report refused calls as failures.
        """
        self._is_ending = True
        self._close_if_ending()
        self._announce()

    def _announce(self) -> None:
        """Announces that the connection ends, so that its client opens another one for new requests."""
        if self._is_announced or self.transport.is_closing():
            return
        self._is_announced = True
        self.conn.close(zttp.H2ErrorCode.NO_ERROR, ANY_STREAM)  # uvicorn's own, with the last one, is at the end
        self.flush()
