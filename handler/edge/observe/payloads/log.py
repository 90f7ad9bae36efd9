"""Decides which requests the payload log gets, keeps a copy of their answers, and makes their events."""

import random
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from core.dialects.v2.infer import HEADER_LENGTH
from core.errors import escaped
from core.wire import Part, Right
from handler.edge.exchange import Send
from handler.edge.observe.payloads.events import JSON, REQUEST, RESPONSE, SEEN, CloudEvent, stamp
from handler.edge.observe.payloads.outbox import Outbox
from handler.edge.observe.payloads.places import place_of
from handler.edge.observe.record import Record
from handler.settings import Settings

TOO_LARGE: Final = "size"
MOST_DIGITS: Final = 18
PROTOBUF: Final = "application/protobuf"
OF_QUERIES: Final = ("grps", "custom")
"""The protocols whose query can name a model."""


class Copy:
    """The part of an answer that is kept: its pieces unchanged, and what its headers say about them."""

    __slots__ = ("_left", "encoding", "kind", "length", "parts")

    def __init__(self, most: int) -> None:
        self._left = most
        self.parts: list[Part] = []
        self.kind = self.encoding = self.length = ""

    @property
    def is_whole(self) -> bool:
        return self._left >= 0

    def add(self, part: Part) -> None:
        """Takes a part of the answer; nothing any more once they are too many bytes."""
        self._left -= len(part)
        if self._left >= 0:
            self.parts.append(part)
        else:
            self.parts.clear()

    def through(self, send: Send) -> Send:
        """Returns a function that sends a message, and keeps its part of the answer."""

        def passed(message: MutableMapping[str, Any]) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                self._head({name.lower(): value for name, value in message["headers"]})
            elif message.get("body"):
                self.add(message["body"])
            return send(message)

        return passed

    def _head(self, headers: Mapping[bytes, bytes]) -> None:
        self.kind = headers.get(b"content-type", b"").decode("latin-1")
        self.encoding = headers.get(b"content-encoding", b"").decode("latin-1")
        self.length = headers.get(HEADER_LENGTH, b"").decode("latin-1")


class PayloadLog:
    """An application's. `counts`: of requests, by the outcome of their events."""

    def __init__(self, settings: Settings, counts: dict[str, int], *, freezes: bool) -> None:
        """Raises InvalidSettings."""
        self._most = settings.payload_log_size or sys.maxsize
        self._share = settings.payload_log_sample
        self._service = settings.name
        self._outbox = Outbox(place_of(settings), settings.payload_log_memory or sys.maxsize, counts, freezes=freezes)

    def drawn(self) -> Copy | None:
        """Draws whether a request that has come is to be logged. Returns where its answer is kept, or None."""
        return Copy(self._most) if random.random() < self._share else None  # noqa: S311 - no secret hangs on it

    def take(
        self, record: Record, copy: Copy, asked: tuple[Mapping[str, str], bytes, Part], model: tuple[str, str]
    ) -> None:
        """Takes an inference that has ended. `asked`: its headers, query and body. `model`: its name and version.

        Other requests are passed over, and so are those of streams, whose body is empty here.
        """
        headers, query, body = asked
        if record.right is not Right.INFER or not body:
            return
        if len(body) > self._most or not copy.is_whole:
            self._outbox.count(TOO_LARGE)
            return
        about = dict(self._about(record, model))
        is_rpc = record.protocol in ("grpc", "grpc-web", "connect")
        kind = _encoding(query) if record.method == "GET" and is_rpc else headers.get("content-type", "")[:SEEN]
        kinds = (_message_kind(kind), copy.kind or PROTOBUF) if is_rpc else (kind or JSON, copy.kind)
        came = time.time_ns() - (time.perf_counter_ns() - record.came)
        request = about | {"type": REQUEST, "time": stamp(came)} | _length(headers.get(HEADER_LENGTH.decode(), ""))
        if not is_rpc:
            request |= _wishes(record.protocol, query, headers.get("accept", ""))
        status = {"status": str(record.status)}
        response = about | {"type": RESPONSE, "time": stamp(time.time_ns())} | status | _length(copy.length)
        encoding = "" if is_rpc else headers.get("content-encoding", "")[:SEEN]
        answered = CloudEvent(response, kinds[1], copy.encoding, b"".join(copy.parts))
        if record.protocol == "grpc" and copy.kind:
            answered = _bare(answered)
        self._outbox.put((CloudEvent(request, kinds[0], encoding, bytes(body)), answered), record.until)

    def _about(self, record: Record, model: tuple[str, str]) -> Iterator[tuple[str, str]]:
        name, version = (escaped(text[:SEEN]) for text in model)
        yield from (("specversion", "1.0"), ("id", record.request_id.decode()), ("source", "/" + quote(self._service)))
        yield from (("namespace", self._service), ("component", "predictor"), ("endpoint", "default"))
        if name:
            yield "inferenceservicename", name
        if version:
            yield "modelversion", version
        yield from (
            ("protocol", record.protocol),
            ("method", record.method),
            ("path", record.path[: 4 * SEEN].encode("utf-8", "replace").decode()),
        )

    def close(self) -> None:
        self._outbox.close()


def _wishes(protocol: str, query: bytes, accept: str) -> dict[str, str]:
    """Returns the form of the answer that a client accepts, and the members of its query that are GRPS's."""
    found = {} if accept in ("", "*/*") else {"accept": accept[:SEEN]}
    if query and protocol in OF_QUERIES:
        from core.dialects.grps.predict import OPTIONS  # noqa: PLC0415 - known by now, if its clients are served

        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        text = urlencode([(name, value) for name, value in pairs if name in OPTIONS])
        found |= {"query": text[: 4 * SEEN]} if text else {}
    return found


def _encoding(query: bytes) -> str:
    """Returns the form of the message of a Connect GET, which does not have a content type."""
    from core.dialects.connect.requests import Query  # noqa: PLC0415 - known by now: it has read the message

    return Query(query)[b"encoding"].decode("latin-1")


def _message_kind(kind: str) -> str:
    """Returns the form of a remote call's message: protobuf, or its JSON."""
    return JSON if "json" in kind else PROTOBUF


def _bare(answer: CloudEvent) -> CloudEvent:
    """Returns the only message of gRPC over HTTP without its envelope, as gRPC's own server passes it on."""
    from core.dialects.connect.envelopes import COMPRESSED, HEAD  # noqa: PLC0415 - known by now, if gRPC is served

    encoding = "gzip" if answer.payload[:1] == bytes((COMPRESSED,)) else ""
    return answer._replace(kind=_message_kind(answer.kind), encoding=encoding, payload=answer.payload[HEAD:])


def _length(text: str) -> dict[str, str]:
    return {"headerlength": text} if text.isdecimal() and len(text) <= MOST_DIGITS else {}
