"""Asks the application for answers to whole HTTP/2 requests before uvicorn makes tasks, events and messages of them.

`whole` does the same for HTTP/1.1. A request is whole if all its frames arrive in one turn of the event loop: gRPC
clients send the head and the message of a call together. They also repeat heads.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import zttp
from uvicorn.protocols.http.zttp_h2_impl import FORBIDDEN_HEADERS

from core.records import NamedTuple
from core.wire import Header, HttpResponse, Part
from handler.edge.exchange import PIECE, TRAILERS, Scope, Sending
from handler.edge.server import refusals
from handler.edge.server.whole import LONGEST_HEAD, WholeRequests, method_of, plain_path

MOST_AT_ONCE: Final = 16
"""The most requests of one connection that are answered in a turn, so that other connections have their turn soon."""
OF_A_BODY: Final = (zttp.Data, zttp.EndOfMessage, zttp.RstStream)
EXTENSIONS: Final[dict[str, Any]] = {TRAILERS: {}}


class KnownHead(NamedTuple):
    """A head that was parsed before. `found`: the application's own form of it."""

    method: bytes
    target: bytes
    headers: list[Header]
    found: Any


class WholeStreams:
    """Collects the frames of one connection's requests until a request is whole.

    `sendings`: the applications that send an answer that is already made, by stream. `reset`: the stream whose reset is
    behind the frames of this turn, 0 for none: if its request is incomplete, it does not begin.
    """

    def __init__(self, connection: Any, requests: WholeRequests | None) -> None:
        self.sendings: dict[int, Sending] = {}
        self.reset = 0
        self._connection = connection
        self._requests = requests
        self._waiting: dict[int, list[Any]] = {}
        self._answered = 0
        self._known = KnownHead(b"", b"", [], None)

    def passed(self, event: Any) -> Iterable[Any]:
        """Returns the events that uvicorn gets now: none while a request is collected, and all of them when it begins.

        An event of any other stream is returned as it is.
        """
        kind, waiting = type(event), self._waiting
        if kind is zttp.Request and self._requests is not None:
            waiting[event.stream_id] = events = [event]
        elif not waiting or kind not in OF_A_BODY or event.stream_id not in waiting:  # its request has begun
            return (event,)
        elif kind is zttp.RstStream:
            del waiting[event.stream_id]
            return ()
        else:
            events = waiting[event.stream_id]
            events.append(event)
        if not (kind is zttp.EndOfMessage or (kind is zttp.Request and event.end_stream)):
            return ()
        del waiting[event.stream_id]
        return () if self._answer(event.stream_id, events) else events

    def rest(self) -> Iterable[Any]:
        """Returns the events of all incomplete requests. They begin at the end of the turn."""
        self._answered = 0
        if not self._waiting:
            return ()
        waiting, self._waiting = self._waiting, {}
        waiting.pop(self.reset, None)
        return [event for events in waiting.values() for event in events]

    def _answer(self, stream_id: int, events: list[Any]) -> bool:
        """Asks the application to answer a whole request at once. Returns whether it did."""
        requests, connection = self._requests, self._connection
        if requests is None or self._answered >= MOST_AT_ONCE or connection.flow.write_paused:
            return False
        head = None if connection.reset_for(events[0]) is not None else self._head(requests, events[0])
        if head is None:
            return False
        stream = connection.conn.stream(stream_id)
        body = b"".join([event.data for event in events if type(event) is zttp.Data])
        most = min(PIECE, stream.send_window or 0, connection.conn.send_window)
        found = requests.answer(head, body, partial(self._write, stream), most)
        if found is not True:
            if found:
                self.sendings[stream_id] = found
            return False
        self._answered += 1
        return True

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
