"""Where a connection of HTTP/1.1 is, for `watch.Watch`, and how one ends whose client does not go on or is refused."""

from typing import Any, Final

from handler.edge.server import refusals
from handler.edge.server.limits import Limits
from handler.edge.server.refusals import Refusal
from handler.edge.server.watch import Stage, answering
from handler.edge.server.whole import WholeHttp

BODY: Final = -1
OVER: Final = -2
DISMISSED_SECONDS: Final = 5.0
"""The most for which a refused client may go on sending before it reads its refusal; nginx: lingering_timeout."""


class WatchedHttp(WholeHttp):
    """One connection. `head`: bytes of a head that is not complete, else BODY, or OVER if nothing more is read.

    `received`: bytes since it began.
    """

    limits: Limits
    head: int
    received: int
    seen: Stage | None
    since: float
    _is_dismissed = False

    def refuse(self, refusal: Refusal) -> None:
        """Ends the connection with a refusal, or, where answers to earlier requests are due, after the last of them."""
        cycle, in_body = self.cycle, self.head == BODY
        if self.pieces is not None:
            self.pieces = None
            self._end(refusal)
        elif self._owes_nothing():
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
        """Sends a refusal, and closes the connection when the client does, or soon.

        A system answers bytes that come after a close with a reset, and the client would lose its refusal.
        """
        self.head = OVER
        if self.transport.is_closing():
            return
        self.transport.write(refusal.at(self.url).raw(self.server_state.default_headers))
        if refusal in refusals.TO_SILENT or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._is_dismissed = True
        self.transport.write_eof()
        self.flow.next(len(self.flow.kept))
        self.flow.resume_reading()

    def leave(self) -> None:
        """Closes the connection without an answer."""
        self.head = OVER
        self.transport.close()

    def shutdown(self) -> None:
        """Ends the connection, behind the request that is arriving."""
        if self.arriving is not None:
            self.arriving.stop()
        super().shutdown()

    def is_idle(self) -> bool:
        """Decides whether its requests, and any refusal, have been answered, and nothing is arriving or being sent."""
        answered = self.last is not None and self._owes_nothing() and self.head == 0 and self.arriving is None
        return (answered or self._is_dismissed) and not self.transport.get_write_buffer_size()

    def _owes_nothing(self) -> bool:
        """Decides whether every request has its answer."""
        last: Any = self.cycle  # None before the first request
        return last is None or last.response_complete

    def stage(self) -> Stage | None:
        """Returns where the connection is, if it is the client that has to go on."""
        if (taken := self.joined.taken()) is not None:
            return answering(taken, self.limits)
        if self._is_dismissed:
            return Stage("dismissed", 0, min(DISMISSED_SECONDS, self.limits.pause))
        if self.arriving is not None or self.head == BODY:
            return self._stage_of_body()
        if self.head == OVER or not self._owes_nothing():
            return None
        if self.head or self.last is None:
            return Stage("head", id(self.last), self.limits.head_seconds)
        return Stage("idle", self.received, self.timeout_keep_alive)

    def _stage_of_body(self) -> Stage | None:
        if self.arriving is None and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
            return None  # the application does not read
        return Stage("body", self.received // self.limits.least, self.limits.pause)

    def give_up(self, stage: Stage) -> None:
        """Ends a connection whose client does not go on."""
        if self.arriving is not None:
            self.arriving.stop()
        if stage.name == "answer":
            self.head = OVER
            self.transport.abort()  # closing would wait for the client to read
        elif self.received and stage.name not in ("idle", "dismissed"):
            self.refuse(refusals.LATE)
        else:
            self.leave()
