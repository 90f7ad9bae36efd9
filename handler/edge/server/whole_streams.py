"""Asks the application about whole requests of HTTP/2 before uvicorn makes a task, an event and messages of them.

See `whole`, which does the same for HTTP/1.1. A request is whole if all of it has come in one turn of the event loop:
clients of gRPC send the head and the message of a call together. They repeat heads, too.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import zttp
from uvicorn.protocols.http.zttp_h2_impl import FORBIDDEN_HEADERS

from core.records import NamedTuple
from core.wire import Header, HttpResponse, Part
from handler.edge.exchange import PIECE, TRAILERS, Scope
from handler.edge.server import refusals
from handler.edge.server.whole import LONGEST_HEAD, Sending, WholeRequests, method_of, plain_path

MOST_AT_ONCE: Final = 16
"""Requests of a connection that are answered in one turn. Others have theirs first."""
OF_A_BODY: Final = (zttp.Data, zttp.EndOfMessage, zttp.RstStream)
EXTENSIONS: Final[dict[str, Any]] = {TRAILERS: {}}


class KnownHead(NamedTuple):
    """A head that was parsed. `found`: as the application has it."""

    method: bytes
    target: bytes
    headers: list[Header]
    found: Any


class WholeStreams:
    """The requests of one connection that have not begun. `sendings`: what sends an answer that was made, by stream."""

    def __init__(self, connection: Any, requests: WholeRequests | None) -> None:
        self.sendings: dict[int, Sending] = {}
        self._connection = connection
        self._requests = requests
        self._waiting: dict[int, list[Any]] = {}
        self._answered = 0
        self._known = KnownHead(b"", b"", [], None)

    def passed(self, event: Any) -> Iterable[Any]:
        """Returns the events with which a request begins, if it does with this one; those of others pass."""
        kind, waiting = type(event), self._waiting
        if kind is zttp.Request and self._requests is not None:
            waiting[event.stream_id] = events = [event]
        elif not waiting or kind not in OF_A_BODY or event.stream_id not in waiting:  # perhaps none of a request
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
        """Returns the events of the requests that have not come whole, at the end of a turn."""
        self._answered = 0
        if not self._waiting:
            return ()
        waiting, self._waiting = self._waiting, {}
        return [event for events in waiting.values() for event in events]

    def _answer(self, stream_id: int, events: list[Any]) -> bool:
        """Answers a whole request, if the application does at once. Returns whether it did."""
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
        """Returns the head of a request as the application has it; None for one that has to come by ASGI."""
        known, method, target, headers = self._known, event.method, event.target, event.headers
        if target == known.target and headers == known.headers and method == known.method:
            return known.found
        path = plain_path(target)
        most = min(LONGEST_HEAD, self._connection.limits.head)
        if path is None or refusals.of_size(target, headers, most) is not None:
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
        self._connection.answered(stream.stream_id)  # an announcement of the end goes out with the answer
        if not self._answered:  # its client reads it while this process counts it; further answers go out together
            self._connection.flush_now()
