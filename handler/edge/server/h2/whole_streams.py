"""Asks the application for answers to whole HTTP/2 requests before uvicorn makes tasks, events and messages of them.

`whole` does the same for HTTP/1.1. gRPC clients send the head and the message of a call together, so that all frames of
most requests arrive in one turn of the event loop. A longer request waits for its body. Clients also repeat heads.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import zttp
from uvicorn.protocols.http.zttp_h2_impl import FORBIDDEN_HEADERS

from core.dialects.connect import envelopes
from core.dialects.connect.protocol import is_native
from core.errors import ServerBusy
from core.records import NamedTuple
from core.wire import Header, HttpResponse, Part
from handler.edge.exchange import PIECE, TRAILERS, Headers, Room, Scope, Sending, length_in
from handler.edge.server import refusals
from handler.edge.server.whole import LONGEST_HEAD, WholeRequests, method_of, plain_path

if TYPE_CHECKING:
    from asyncio import TimerHandle

MOST_AT_ONCE: Final = 16
"""The most requests of one connection that are answered in a turn, so that other connections have their turn soon."""
LONGEST_WAIT: Final = 1.0
"""Seconds from a request's head, after which it begins without the rest of its body. From then on it has the limits of
requests that come by ASGI."""
OF_A_BODY: Final = (zttp.Data, zttp.EndOfMessage, zttp.RstStream)
EXTENSIONS: Final[dict[str, Any]] = {TRAILERS: {}}


class KnownHead(NamedTuple):
    """A head that was parsed before. `found`: the application's own form of it."""

    method: bytes
    target: bytes
    headers: list[Header]
    found: Any


class AwaitedBody:
    """A body that is still arriving. Its request has not begun. `head`: the application's form of its head."""

    __slots__ = ("_size", "_timer", "head", "room")

    def __init__(self, head: Any, room: Room, timer: "TimerHandle") -> None:
        self.head = head
        self.room = room
        self._size = 0
        self._timer = timer

    @property
    def is_whole(self) -> bool:
        return self._size == len(self.room.view)

    def takes(self, piece: bytes) -> bool:
        """Takes a piece into its place. Returns False if it does not fit, there or beside other bytes in flight."""
        begin, self._size = self._size, self._size + len(piece)
        if self._size > len(self.room.view):
            return False
        self.room.view[begin : self._size] = piece
        try:
            self.room.grow(self._size)
        except ServerBusy:
            return False
        return True

    def arrived(self) -> None:
        """Ends the time limit of the wait."""
        self._timer.cancel()


def _joined(events: list[Any]) -> Part:
    return b"".join([event.data for event in events if type(event) is zttp.Data])


def _announced(headers: Headers, events: list[Any]) -> int:
    """Returns the size of a body that is still arriving, in bytes.

    Returns 0 if the size is not known, or if the client waits for 100 Continue. A gRPC call has one message, which
    begins with its length. `events`: the head, and pieces of the body.
    """
    size = length_in(headers, b"content-length")
    first = events[1].data[: envelopes.HEAD] if len(events) > 1 else b""
    if not size and len(first) == envelopes.HEAD and is_native(headers):
        size = envelopes.HEAD + int.from_bytes(first[1:])
    return 0 if b"expect" in headers else size


class WholeStreams:
    """Collects the frames of one connection's requests until a request is whole.

    `reset`: the stream whose reset is behind the frames of this turn, 0 for none: if its request is incomplete, it does
    not begin.
    """

    def __init__(self, connection: Any, requests: WholeRequests | None) -> None:
        self.reset = 0
        self._connection = connection
        self._requests = requests
        self._waiting: dict[int, list[Any]] = {}
        self._bodies: dict[int, AwaitedBody] = {}
        self._late: list[Any] = []
        self._begun: dict[int, tuple[Sending | None, int | None]] = {}
        self._answered = 0
        self._known = KnownHead(b"", b"", [], None)

    @property
    def awaits(self) -> bool:
        """Whether a request waits for the rest of its body."""
        return bool(self._bodies)

    def passed(self, event: Any) -> Iterable[Any]:
        """Returns the events that uvicorn gets now: none while a request is collected, and all of them when it begins.

        An event of any other stream is returned as it is.
        """
        kind, waiting, stream_id = type(event), self._waiting, event.stream_id
        if kind is zttp.Request and self._requests is not None:
            waiting[stream_id] = [event]
        elif not waiting or kind not in OF_A_BODY or stream_id not in waiting:  # its request has begun
            return (event,)
        elif kind is zttp.RstStream:
            self.drop(stream_id)
            return ()
        else:
            waiting[stream_id].append(event)
            body = self._bodies.get(stream_id)
            if body is not None and kind is zttp.Data and not body.takes(event.data):
                return self._begins(stream_id)
        is_last = kind is zttp.EndOfMessage or (kind is zttp.Request and event.end_stream)
        return self._ended(stream_id) if is_last else ()

    def rest(self) -> Iterable[Any]:
        """Returns the events of incomplete requests that begin now, at the end of the turn. Others wait."""
        self._answered = 0
        if not self._waiting and not self._late:
            return ()
        events, self._late = self._late, []
        self.drop(self.reset)
        for stream_id in [*self._waiting]:
            if stream_id not in self._bodies and not self._waits(stream_id):
                events += self._begins(stream_id)
        return events

    def details(self, stream_id: int) -> tuple[Sending | None, int | None]:
        """Returns what was noted of a request before it began.

        The application that sends its answer, if that is already made, and when its head came, if that was in an
        earlier turn.
        """
        return self._begun.pop(stream_id, (None, None))

    def drop(self, stream_id: int) -> None:
        """Forgets a request that was reset, unless it has begun."""
        if self._waiting.pop(stream_id, None) is not None and (body := self._left(stream_id)) is not None:
            body.room.end()

    def close(self) -> None:
        """Forgets all requests. The connection has ended."""
        for stream_id in [*self._waiting]:
            self.drop(stream_id)

    # -- bodies that arrive in several turns --------------------------------------------------------------------------

    def _waits(self, stream_id: int) -> bool:
        """Decides whether a request waits for the rest of its body, for which the application then has memory."""
        requests, connection, events = self._requests, self._connection, self._waiting[stream_id]
        if requests is None or connection.reset_for(events[0]) is not None:
            return False
        head = self._head(requests, events[0])
        size = 0 if head is None else _announced(head.headers, events)
        room = requests.room(head, size) if size else None
        if room is None:
            return False
        seconds = min(LONGEST_WAIT, connection.limits.pause)
        timer = connection.loop.call_later(seconds, self._time_out, stream_id)
        body = self._bodies[stream_id] = AwaitedBody(head, room, timer)
        connection.counts(1)
        return all(body.takes(event.data) for event in events[1:])

    def _time_out(self, stream_id: int) -> None:
        self._late += self._begins(stream_id)
        self._connection.begin_late()

    def _left(self, stream_id: int) -> AwaitedBody | None:
        """Ends the wait of a request for its body. Returns the body, None if the request did not wait."""
        body = self._bodies.pop(stream_id, None)
        if body is not None:
            body.arrived()
            self._connection.counts(-1)
        return body

    def _begins(self, stream_id: int) -> list[Any]:
        """Returns the events of a request that begins before its end."""
        body = self._left(stream_id)
        if body is not None:
            self._begun[stream_id] = None, body.room.came
            body.room.end()
        return self._waiting.pop(stream_id)

    # -- requests that are whole --------------------------------------------------------------------------------------

    def _ended(self, stream_id: int) -> Iterable[Any]:
        """Answers a whole request at once, or returns its events."""
        body = self._bodies.get(stream_id)
        if body is not None and not body.is_whole:
            return self._begins(stream_id)
        events, came = self._waiting.pop(stream_id), None
        if body is None:
            found = self._answer(events[0], None, _joined(events), came)
        else:
            self._left(stream_id)
            came = body.room.came
            found = self._answer(events[0], body.head, body.room.whole(), came)
        if found is True:
            return ()
        if found or came is not None:
            self._begun[stream_id] = found or None, came
        return events

    def _answer(self, request: Any, head: Any, body: Part, came: int | None) -> bool | Sending:
        """Asks the application to answer a whole request at once. Returns what it does.

        `head`: the application's form of it, None if that is not known yet. `came`: when it came, if that was in an
        earlier turn.
        """
        requests, connection = self._requests, self._connection
        if requests is None or self._answered >= MOST_AT_ONCE or connection.flow.write_paused:
            return False
        if connection.reset_for(request) is not None:
            return False
        head = head or self._head(requests, request)
        if head is None:
            return False
        stream = connection.conn.stream(request.stream_id)
        most = min(PIECE, stream.send_window or 0, connection.conn.send_window)
        found = requests.answer(head, body, partial(self._write, stream), most, came)
        if found is True:
            self._answered += 1
        return found

    def _head(self, requests: WholeRequests, event: Any) -> Any:
        """Returns the application's form of a request's head; None for a request that goes through ASGI."""
        known, method, target, headers = self._known, event.method, event.target, event.headers
        if target == known.target and headers == known.headers and method == known.method:
            return known.found
        path = plain_path(target)
        most = min(LONGEST_HEAD, self._connection.limits.head)
        if path is None or refusals.of_head(target, headers, most) is not None:
            return None
        found = requests.head(self._scope(method_of(method), target, path, headers))
        if found is not None:
            self._known = KnownHead(method, target, headers, found)
        return found

    def _scope(self, method: str, target: bytes, path: str, headers: list[Header]) -> Scope:
        connection = self._connection
        return {
            "type": "http",
            "http_version": "2",
            "server": connection.server,
            "client": connection.client,
            "scheme": connection.scheme,
            "method": method,
            "root_path": "",
            "path": path,
            "raw_path": target,
            "query_string": b"",
            "headers": headers,
            "extensions": EXTENSIONS,
        }

    def _write(self, stream: Any, answer: HttpResponse, more: Sequence[Header], body: Sequence[Part]) -> None:
        headers = (*self._connection.server_state.default_headers, *answer.headers, *more)
        stream.send_response(answer.status, [header for header in headers if header[0] not in FORBIDDEN_HEADERS])
        if data := b"".join(body):  # in one frame
            stream.send_data(data)
        stream.end_message([*answer.trailers] or None)
        self._connection.answered(stream.stream_id)  # may announce the end in the same segment
        if not self._answered:  # the client reads it while this process counts it; further answers are sent together
            self._connection.flush_now()
