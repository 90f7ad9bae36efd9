"""Asks the application about a whole request before uvicorn makes a task, an event and messages of it.

An application may have `whole_requests`, as handler.edge.app.App does. What it answers at once is written in the turn
of the event loop that has read the request. Clients repeat the heads of their requests, but for the length of the body:
a head that has been parsed and answered once on a connection is compared, and not parsed again.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from core.records import NamedTuple
from core.wire import Header, HttpResponse, Part
from handler.edge.exchange import CAME_KEY, PIECE, Headers, Room, Scope, Sending, Write, length_in, lines_of
from handler.edge.server.body import ArrivingBody
from handler.edge.server.flow import JoinedWrites, PacedFlow, add

REMEMBERED: Final = 1024
LONGEST_REMEMBERED: Final = 256
"""Bytes of a URL that is remembered. A stranger's long ones would keep 125 MB for good."""
END: Final = b"\r\n\r\n"
LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)")
LONGEST_LENGTH: Final = 18
LONGEST_HEAD: Final = 4096
MOST_NEW: Final = 8
"""So many heads of a connection in a row that were not repeated: further ones are not remembered."""


class RequestHead(Protocol):
    """The head of a request, as the application has it. `headers`: by name."""

    headers: Headers


class WholeRequests(Protocol):
    """What an application answers at once."""

    def head(self, scope: Scope) -> RequestHead | None:
        """Returns a head that `answer` may be asked about; None for a request that has to come by ASGI."""
        ...

    def room(self, head: Any, size: int) -> Room | None:
        """Returns memory for a body that is still arriving; None for a request that begins before its body has arrived.

        `size`: the body's bytes, more than 0. Raises nothing.
        """
        ...

    def answer(self, head: Any, body: Part, write: Write, most: int, came: int | None = None) -> bool | Sending:
        """Returns True for an answer that was written, False for a request that goes through ASGI.

        Otherwise returns an ASGI application that sends the answer. `most`: the most bytes of a body that `write` may
        get. `came`: when the head came, on time.perf_counter_ns(), if that was in an earlier turn. Raises nothing.
        """
        ...


class Repeated(NamedTuple):
    """A head that was answered, around the digits of its Content-Length. `end`: b"" for a head without one."""

    start: bytes
    end: bytes
    head: RequestHead

    def begun(self, data: bytes) -> tuple[int, int] | None:
        """Returns where the body begins and its size, if the data is a request with this head, or the start of one."""
        if not data.startswith(self.start):
            return None
        begin = len(self.start)
        if not self.end:
            return (begin, 0) if len(data) == begin else None
        end = data.find(self.end, begin, begin + LONGEST_LENGTH + len(self.end))
        digits, begin = data[begin : max(end, begin)], end + len(self.end)
        if not digits.isdigit() or len(data) - begin > int(digits):
            return None
        self.head.headers[b"content-length"] = digits
        return begin, int(digits)


def repeatable(data: bytes, size: int, head: RequestHead) -> Repeated | None:
    """Returns the head at the beginning of a request, whose body has `size` bytes; None if it is none to remember."""
    begin = len(data) - size
    if begin > LONGEST_HEAD or data.find(END) != begin - len(END):
        return None
    lengths = LENGTH.findall(data, 0, begin)
    if not lengths:
        return None if size else Repeated(data, b"", head)
    first: Any = LENGTH.search(data, 0, begin)
    return Repeated(data[: first.start(1)], data[first.end(1) : begin], head) if len(lengths) == 1 else None


def requests_of(config: Config) -> WholeRequests | None:
    """Returns what a server's application answers at once; None if the server does more than pass requests on.

    Without a task there is nothing to limit, and no line of uvicorn's access log. The proxies' headers that uvicorn
    reads say where a client is, which no answer here depends on.
    """
    app: Any = config.loaded_app
    if type(app) is ProxyHeadersMiddleware:
        app = app.app
    does_more = config.limit_concurrency is not None or config.access_log or config.root_path
    found: WholeRequests | None = None if does_more else getattr(app, "whole_requests", None)
    return found


class WholeHttp(HttpToolsProtocol):
    """One connection. `pieces`: the body of a request that has not begun, None if there is no such request.

    `arriving`: reads the rest of that body, None if nothing does.

    `last`: the scope of the last request whose head was complete. `had_turn`: one was answered at once in this turn of
    the event loop, and others have theirs first.
    """

    flow: PacedFlow
    joined: JoinedWrites

    def __init__(self, config: Config, *arguments: Any) -> None:
        super().__init__(config, *arguments)
        self.pieces: list[Part] | None = None
        self.arriving: ArrivingBody | None = None
        self.last: Any = None
        self.had_turn = False
        self._requests = requests_of(config)
        self._repeated: Repeated | None = None
        self._new = 0
        self._head: RequestHead | None = None
        self._came: int | None = None  # when the head came, of a request whose body came later
        self._asked: Any = None  # what the application has answered, of a request that is parsed after that
        self._answered: tuple[RequestHead, int] | None = None
        self._defaults: tuple[Any, bytes] = (None, b"")

    # -- requests with a head that is known ---------------------------------------------------------------------------

    def takes_again(self, data: bytes) -> bool:
        """Answers a request whose head repeats the last one's, or waits for its body. Returns whether it did.

        Nothing else is under way on the connection.
        """
        repeated, requests = self._repeated, self._requests
        found = None if repeated is None else repeated.begun(data)
        if found is None or repeated is None or requests is None or self.flow.write_paused:
            return False
        begin, size = found
        if len(data) - begin == size:
            return self.answers_again(repeated.head, data[begin:])
        room = requests.room(repeated.head, size)
        if room is not None:
            self.arriving = ArrivingBody(self, room, data[:begin], repeated.head)
            self.arriving.begin((), memoryview(data)[begin:])
        return room is not None

    def answers_again(self, head: RequestHead, body: Part, came: int | None = None) -> bool:
        """Answers a whole request whose head was not parsed. Returns whether it did; otherwise it has to be parsed."""
        self._new = 0
        if self._requests is not None:
            self._asked, self._came = self._requests.answer(head, body, self._write, PIECE, came), came
        if self._asked is not True:
            return False
        self._asked = self._came = None
        return True

    def remember(self, data: bytes, size: int | None = None) -> None:
        """Remembers the head of a request that was answered at once, if the data is that request alone.

        `size`: bytes of its body in the data, if they are not all.
        """
        answered, self._answered = self._answered, None
        if answered is not None and self._new < MOST_NEW:
            self._new += 1
            head, whole = answered
            self._repeated = repeatable(data, whole if size is None else size, head)

    # -- requests that are parsed -------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self.last = self.scope
        cycle: Any = self.cycle  # None before the first request
        is_first = (cycle is None or cycle.response_complete) and not self.expect_100_continue
        if is_first and self._requests is not None and plain_path(self.url) is not None:
            self.pieces = []
        else:
            self.begin()

    def begin(self) -> None:
        """Begins the request whose head is complete: the application gets it by ASGI, or sends the answer it has made.

        Nothing of it stays on the connection for the next one.
        """
        pieces, self.pieces = self.pieces or (), None
        app, made, self._asked = self.app, self._asked, None
        if self._came is not None:
            self.scope[CAME_KEY] = self._came  # type: ignore[typeddict-unknown-key] # ASGI's scopes may have any
        self._head = self._came = None
        self.last = self.scope
        self.app = made or app
        super().on_headers_complete()
        self.app = app
        for piece in pieces:
            add(bytes(piece), self.cycle, self.flow)

    def answer(self) -> bool:
        """Answers the request that has not begun, or begins it. Returns whether it was answered."""
        if self._asked is None and not self.had_turn:
            self._asked = self._ask()
        if self._asked is not True:
            self.begin()
            return False
        self.pieces = self._head = self._came = self._asked = None
        self.had_turn = True
        return True

    def room(self) -> Room | None:
        """Returns memory for the body of a request that has not begun; None if the request has to begin now."""
        head, requests = self._found(), self._requests
        size = 0 if head is None else length_in(head.headers, b"content-length")
        room = requests.room(head, size) if size and requests is not None else None
        if room is not None:
            self._head, self._came = head, room.came
        return room

    def _found(self) -> RequestHead | None:
        """Returns the application's form of the head of a request that has not begun."""
        parser, requests, scope = self.parser, self._requests, cast("Scope", self.scope)
        path = plain_path(self.url)
        if path is None or requests is None or parser.should_upgrade() or not parser.should_keep_alive():
            return None
        scope["method"] = method_of(parser.get_method())
        scope["path"] = path
        scope["raw_path"] = self.url
        scope["query_string"] = b""
        return requests.head(scope)

    def _ask(self) -> Any:
        head, requests, pieces = self._head or self._found(), self._requests, self.pieces or ()
        if head is None or requests is None or self.flow.write_paused:
            return False
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._answered = head, len(body)
        return requests.answer(head, body, self._write, PIECE, self._came)

    def _write(self, answer: HttpResponse, more: Sequence[Header], body: Sequence[Part]) -> None:
        defaults = self.server_state.default_headers
        if self._defaults[0] is not defaults:  # a list of its own each second, with the date
            self._defaults = defaults, lines_of(tuple(defaults))
        lines = [b"%b: %b\r\n" % header for header in more]
        start = STATUS_LINE[answer.status], self._defaults[1], lines_of(answer.headers)
        self.joined.send(b"".join((*start, *lines, b"\r\n", *body)))
        self.server_state.total_requests += 1


def plain_path(url: bytes) -> str | None:
    """Returns the path of a URL that is nothing else, and stands for itself."""
    return _known(url) if len(url) <= LONGEST_REMEMBERED else _read(url)


def _read(url: bytes) -> str | None:
    if url[:1] != b"/" or b"?" in url or b"%" in url or b"#" in url or not url.isascii():
        return None
    return url.decode("ascii")


_known: Final = lru_cache(REMEMBERED)(_read)


def method_of(method: bytes) -> str:
    return method.decode("ascii")
