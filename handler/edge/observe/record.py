"""The record of one request: what the edges note while they answer it, for the counts and the log.

An edge begins it, and everything below finds it in RECORD, by the request's own task. Its answer passes through
`send`, which adds the request's id.
"""

import itertools
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from core.errors import SHOWN_CHARACTERS, Fault, ServerBusy, ServingError, TimedOut, shown
from core.records import NamedTuple
from core.wire import REQUEST_ID, Header, HttpResponse, MethodNotAllowed, Right, RouteNotFound, by_name
from handler.edge import log_lines
from handler.edge.exchange import TRAILERS, Send

ID_KEY: Final = "dragoman.request_id"
"""The member of ASGI's scope with the id that the platform has given a request."""
OK: Final = "OK"
CANCELLED: Final = "CANCELLED"
CRASH: Final = Fault.INTERNAL.name
MOST_KEPT: Final = 64
"""Models whose refusals a stream counts apart: its client can make up any number of names."""
SENT_ID: Final = re.compile(rb"[!-~]{1,128}")
"""A client's own id: visible ASCII, without blanks."""


class Failure(NamedTuple):
    """A refusal's fault and text. The error itself would keep the request alive, by its traceback."""

    fault: str
    message: str

    @classmethod
    def of(cls, error: ServingError) -> "Failure":
        return cls(error.fault.name, error.message[:SHOWN_CHARACTERS])


class Record:
    """`came`: when the request arrived, on time.perf_counter_ns(). `status`: its answer's, 0 while there is none.

    `protocol`: a dialect's name, "connect", "grpc-web", "grpc", "custom", "site", or "http" before that is known.
    `received`, `sent`: bytes of the bodies. `timing`, `codec`: its own, once there are any. `error`: the last one that
    was phrased for the client. `refusals`: of messages of a stream that went on, by fault, model and version; `within`:
    one of them. `caller`, `peer`: of a request that the gate has refused. `given`: the platform's id.
    `own_id`: the one that the client has sent, which errors repeat; b"" without one.
    `right`: that of its route, None while that is not known. `trace`: its number. `notes`: a tapped observer's.
    `until`: on time.monotonic(), when a function's answer has to leave. `last`: writes the error that ends a stream;
    None if that has no place for errors.
    Defaults are in the class, where they cost nothing.
    """

    protocol = "http"
    status: int | str = 0
    received = 0
    sent = 0
    timing: Any = None
    codec: Any = None
    error: "Failure | None" = None
    within: "Failure | None" = None
    refusals: dict[tuple[str, str, str], int] | None = None
    right: Right | None = None
    caller = ""
    peer = ""
    trace = b""
    own_id = b""
    notes: Any = None
    last: "Callable[[ServingError], bytes] | None" = None
    until = math.inf

    def __init__(self, method: str, path: str, request_id: bytes, send: Send | None = None, given: str = "") -> None:
        self.came = time.perf_counter_ns()
        self.method = method
        self.path = path
        self.request_id = request_id
        self.given = given
        self._send: Any = send

    def take(self, sent: bytes) -> None:
        """Makes a valid id that the client has sent the request's."""
        if SENT_ID.fullmatch(sent):
            self.request_id = self.own_id = sent

    def refuses(self, error: ServingError) -> None:
        """Notes the caller that an error names."""
        if error.caller is not None:
            self.caller, self.peer = error.caller

    def refuse_one(self, failure: Failure, model: str, version: str) -> None:
        """Counts the refusal of a message, and keeps one for the line: the first, or the first that is INTERNAL."""
        refusals = self.refusals = self.refusals or {}
        key = failure.fault, model, version
        if key not in refusals and len(refusals) >= MOST_KEPT:
            key = failure.fault, "", ""
        refusals[key] = refusals.get(key, 0) + 1
        if self.within is None or failure.fault == CRASH != self.within.fault:
            self.within = failure

    def answers_by(self, send: Send) -> None:
        """Sets how messages are sent, of a record that has begun without it."""
        self._send = send

    def answered(self, answer: HttpResponse) -> None:
        """Notes the status of an answer. A gRPC call has it in its trailers."""
        self.status = _code(answer.trailers) if answer.trailers else answer.status

    def send(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """Passes a message of ASGI on, with the id in the headers, or in the trailers of a call of gRPC."""
        if message["type"] == "http.response.start":
            if message.get("trailers"):
                self.status = CANCELLED  # the status of a call of gRPC follows, unless its client leaves before
            else:
                self.status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID, self.request_id)]
        elif "body" in message:
            self.sent += len(message["body"])
        elif message["type"] == TRAILERS:
            self.status = _code(message["headers"])
            message["headers"] = [*message["headers"], (REQUEST_ID, self.request_id)]
        passed: Awaitable[None] = self._send(message)
        return passed


def _code(trailers: Sequence[Header]) -> str:
    """Returns the name of gRPC's code in trailers."""
    number = dict(trailers)[b"grpc-status"]
    if number == b"0":
        return OK
    from core.dialects.connect.codes import CODES  # noqa: PLC0415 - not for servers whose clients speak REST alone

    return next(code.name.upper() for code in CODES.values() if code.number == int(number))


RECORD: Final[ContextVar[Record]] = log_lines.RECORD


def refused(error: ServingError) -> None:
    """Notes the error with which the current request is answered."""
    record = RECORD.get(None)
    if record is not None:
        record.error = Failure.of(error)
        record.refuses(error)


def refused_one(error: ServingError, model: str, version: str) -> None:
    """Notes the refusal of one message of the current stream, which goes on. `model`, `version`: of the message."""
    record = RECORD.get(None)
    if record is not None:
        record.refuses(error)
        record.refuse_one(Failure.of(error), model, version)


def out_of_time() -> ServingError:
    """Returns the refusal of the current request by a function whose time is up, and notes it."""
    error = TimedOut("the function's timeout or its gateway's limit ended before the answer was complete")
    refused(error)
    return error


def cut_off() -> ServingError:
    """Returns the refusal of the current request by a server that ends before it has answered, and notes it."""
    error = ServerBusy("the server ends before it has answered the request: try again", retry_after=1)
    refused(error)
    return error


def unfound(path: str) -> None:
    """Notes that the site had nothing for the current request."""
    record = RECORD.get(None)
    if record is not None and record.status in (RouteNotFound.status, MethodNotAllowed.status):
        record.error = Failure.of(RouteNotFound(f"there is nothing for {record.method} at {shown(path)}"))


def turned_away(caller: str, peer: str) -> bool:
    """Notes whom the gate has refused. Returns whether there is a request whose line will say so."""
    record = RECORD.get(None)
    if record is not None:
        record.caller, record.peer = caller, peer
    return record is not None


def works(codec: Any, timing: Any, received: int = 0) -> None:
    """Notes the codec and the timing of the current call's message. `received`: its bytes, if they were not counted."""
    record = RECORD.get(None)
    if record is not None:
        record.codec, record.timing = codec, timing
        timing.protocol = record.protocol
        record.received += received


def took(size: int) -> None:
    """Counts bytes of the current request that no message has counted."""
    record = RECORD.get(None)
    if record is not None:
        record.received += size


def called(protocol: str, right: Right | None) -> None:
    """Notes that the current request is a remote call over HTTP."""
    record = RECORD.get(None)
    if record is not None:
        record.protocol, record.right = protocol, right


def seconds_since_head() -> float:
    """Returns the seconds since the head of the current request arrived."""
    record = RECORD.get(None)
    return 0.0 if record is None else (time.perf_counter_ns() - record.came) / 1e9


def own_id() -> bytes:
    """Returns the id that the current request's client has sent, b"" without one."""
    record = RECORD.get(None)
    return b"" if record is None else record.own_id


def sent_in(headers: Sequence[Any]) -> bytes:
    """Returns the id among a request's headers, b"" without one, or if it is not valid."""
    sent = by_name(headers).get(REQUEST_ID, b"")
    return sent if SENT_ID.fullmatch(sent) else b""


def drawn(given: str = "") -> bytes:
    """Returns the platform's id, or else a new one, for a request until it is known that its client has sent one."""
    return given.encode() if given else b"%b-%x" % (_START[0], next(_NUMBERS))


def draw() -> None:
    """Draws the beginning of this process's ids. A fork draws its own, and so does an instance made from a snapshot."""
    _START[:] = [os.urandom(8).hex().encode()]


_NUMBERS: Final = itertools.count(1)
_START: list[bytes] = []
draw()
os.register_at_fork(after_in_child=draw)
