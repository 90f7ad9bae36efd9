"""The line of the log that each request leaves, as text or JSON.

Entries wait a moment, and become lines together: formatting a line in the middle of other work takes three times as
long as one of many, and writing one alone costs a system call. They do not pass through `logging`, which takes longer
for a line than the rest of this package for a request.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any, Final, Protocol, TextIO

import orjson

from core.errors import escaped
from core.records import NamedTuple
from handler.edge.log_lines import head
from handler.edge.observe.record import Failure, Record

LOGGER: Final = "dragoman.access"
STAMP: Final = "%Y-%m-%d %H:%M:%S"
PAUSE_SECONDS: Final = 0.05
MOST_ENTRIES: Final = 256
"""Entries wait at most so long, and at most so many of them."""
SHOWN: Final = 256
"""The most characters of a path, a name or an error's text."""
REMEMBERED: Final = 1024
ODD: Final = frozenset(' "=\\')
"""Characters that would take a value for another one: a value with one of them is quoted."""
WAITS: Final = ("fetch", "load")
PHASES: Final = ("queue", *WAITS, "decode", "infer", "encode")


What = tuple[str, str, str, int | str, str, str, str]
"""Level, method, path, status, protocol, model, version: the part of a line that similar requests share."""


class Entry(NamedTuple):
    """What a line says. It holds nothing of the request that is large. `at`: seconds since the epoch. `ns`: in all.

    `durations`, `waits`: a Timing's; None without an inference, and without a wait. `reason`: of a refusal.
    `trace`: its hexadecimal number, b"" without traces. `has_own_id`: its client has sent the id.
    """

    at: float
    what: What
    ns: int
    durations: tuple[int, int, int, int] | None
    waits: tuple[int, int] | None
    received: int
    sent: int
    request_id: bytes
    reason: "Reason | None"
    trace: bytes
    has_own_id: bool


class Reason(NamedTuple):
    """Why a request was refused. `caller`, `peer`: "" unless the gate has refused it."""

    fault: str
    text: str
    caller: str
    peer: str


def entry(record: Record, ns: int, model: str, version: str, level: str) -> Entry:
    """Returns the entry of a request that has ended."""
    timing, error = record.timing, record.error
    if timing is None:
        durations = waits = None
    else:
        durations, waits = timing.durations, (timing.wait, timing.load) if timing.wait else None
    reason = None if error is None else _reason(record, error)
    what = (level, record.method, record.path, record.status, record.protocol, model, version)
    received, sent, own, trace = record.received, record.sent, record.request_id, record.trace
    has_own_id = record.own_id != b""
    return Entry(time.time(), what, ns, durations, waits, received, sent, own, reason, trace, has_own_id)


def _reason(record: Record, error: Failure) -> Reason:
    caller, peer = escaped(record.caller[:SHOWN]), escaped(record.peer[:SHOWN])
    return Reason(error.fault, escaped(" ".join(error.message.split())), caller, peer)


def phases(durations: tuple[int, int, int, int] | None, waits: tuple[int, int] | None) -> list[tuple[str, float]]:
    """Returns the steps of a request in the order of PHASES, each with its milliseconds.

    `fetch` and `load` are waits for the model, and not in `queue`. A request without an inference can have waited, too.
    """
    wait, load = waits or (0, 0)
    waited = (wait - load, load)
    if durations is None:
        return _named(WAITS, waited) if waits else []
    queue, *steps = durations
    return _named(PHASES, (max(0, queue - wait), *waited, *steps))


def _named(names: tuple[str, ...], times: tuple[int, ...]) -> list[tuple[str, float]]:
    return [(name, ns / 1e6) for name, ns in zip(names, times, strict=True)]


class LineForm(Protocol):
    """How entries are written. `note`: returns a line that is about no single request."""

    def line(self, entry: Entry) -> bytes: ...

    def note(self, text: str) -> bytes: ...


class Lines:
    """Entries on their way to `stream`, in their order. `freezes`: nothing runs after a request, as on Lambda."""

    def __init__(self, form: LineForm, stream: TextIO | None, *, freezes: bool = False) -> None:
        self._form = form
        self._stream = stream
        self._entries: list[Entry | str] = []
        self._freezes = freezes
        self._armed: asyncio.AbstractEventLoop | None = None  # one that has ended runs no timer any more

    def add(self, entry: Entry | str) -> None:
        """Takes an entry, or the text of a note."""
        self._entries.append(entry)
        loop = None if self._freezes else _running()
        if loop is None or len(self._entries) >= MOST_ENTRIES:
            self.flush()
        elif self._armed is not loop:
            self._armed = loop
            loop.call_later(PAUSE_SECONDS, self._due)

    def request(self, record: Record, ns: int, model: str, version: str, level: str) -> None:
        """Takes a request that has ended."""
        self.add(entry(record, ns, model, version, level))

    def _due(self) -> None:
        self._armed = None
        self.flush()

    def flush(self) -> None:
        """Writes the waiting entries."""
        entries, self._entries = self._entries, []
        if not entries:
            return
        form = self._form
        lines = [form.note(each) if isinstance(each, str) else form.line(each) for each in entries]
        write(b"\n".join((*lines, b"")).decode("utf-8", "replace"), self._stream)


def write(text: str, stream: TextIO | None) -> None:
    """Writes lines. A full disk loses them: a request must not fail for its line.

    The stream is None if the process began without one. It raises ValueError if a model's code has closed it.
    """
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.write(text)
            stream.flush()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TextLines:
    """Makes lines as `2026-11-22 09:31:29,123 INFO dragoman.access: POST /v2/models/iris/infer 200 1.234 ms v2 ...`.

    In bytes: formatting takes a third of the time that it takes in text.
    """

    def __init__(self) -> None:
        self._second = -1
        self._stamp = b""
        self._known: dict[What, tuple[bytes, bytes]] = {}

    def line(self, entry: Entry) -> bytes:
        """Returns the line of a request."""
        at, what, ns, durations, waits, received, sent, own, reason, trace, has_own_id = entry
        second = int(at)
        if second != self._second:
            self._second, self._stamp = second, time.strftime(STAMP, time.localtime(second)).encode()
        begin, middle = self._known.get(what) or self._parts(what)
        if waits is not None:
            steps = "".join(f" {name}={ms:.3f}" for name, ms in phases(durations, waits)).encode()
        elif durations is None:
            steps = b""
        else:
            queue, decode, infer, encode = durations
            steps = b" queue=%.3f decode=%.3f infer=%.3f encode=%.3f" % (
                *(queue / 1e6, decode / 1e6),
                *(infer / 1e6, encode / 1e6),
            )
        if has_own_id:
            own = _word(own.decode()).encode()
        line = b"%b,%03d%b%.3f%b%b in=%d out=%d id=%b" % (
            *(self._stamp, int((at - second) * 1000), begin, ns / 1e6, middle),
            *(steps, received, sent, own),
        )
        if trace:
            line += b" trace=" + trace
        return line if reason is None else line + _told(reason)

    def _parts(self, what: What) -> tuple[bytes, bytes]:
        """Returns the text before the time, and the text behind it."""
        level, method, path, status, protocol, model, version = what
        parts = (
            f" {level} dragoman.access: {_word(method)} {_word(path)} {status} ".encode(),
            f" ms {protocol} model={_word(model)} version={_word(version)}".encode(),
        )
        if max(map(len, (method, path, model, version))) < SHOWN:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[what] = parts
        return parts

    def note(self, text: str) -> bytes:
        return f"{time.strftime(STAMP)},000 WARNING {LOGGER}: {text}".encode()


def _word(text: str) -> str:
    """Returns a value as it can stand between blanks."""
    found = escaped(text[:SHOWN]) or "-"
    return found if ODD.isdisjoint(found) else _quoted(found)


def _told(reason: Reason) -> bytes:
    """Returns the fields of a refusal."""
    caller = f" caller={_quoted(reason.caller)} peer={_quoted(reason.peer)}" if reason.caller else ""
    return f" reason={reason.fault}{caller} error={_quoted(reason.text)}".encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


class JsonObjects:
    """Makes lines of JSON with the same facts."""

    def line(self, entry: Entry) -> bytes:
        """Returns the line of a request."""
        level, method, path, status, protocol, model, version = entry.what
        method, path = escaped(method[:SHOWN]), escaped(path[:SHOWN])
        found: dict[str, Any] = {
            **head(level, LOGGER, f"{method} {path} {status}", entry.at),
            "request_id": entry.request_id.decode(),
            "protocol": protocol,
            "method": method,
            "path": path,
            "status": status,
            "model": escaped(model[:SHOWN]),
            "version": escaped(version[:SHOWN]),
            "ms": round(entry.ns / 1e6, 3),
            "bytes_in": entry.received,
            "bytes_out": entry.sent,
        }
        found |= {f"{name}_ms": round(ms, 3) for name, ms in phases(entry.durations, entry.waits)}
        if entry.trace:
            found["trace_id"] = entry.trace.decode()
        if entry.reason is not None:
            fault, text, caller, peer = entry.reason
            found |= {"reason": fault, "error": text}
            found |= {"caller": caller, "peer": peer} if caller else {}
        return orjson.dumps(found)

    def note(self, text: str) -> bytes:
        return orjson.dumps(head("WARNING", LOGGER, text))


FORMS: Final[dict[str, type[TextLines] | type[JsonObjects]]] = {"text": TextLines, "json": JsonObjects}
