"""Remote calls over HTTP: the parts of Connect, gRPC-Web and gRPC around a method's messages.

Connect's unary methods have one bare message each way, and the HTTP status is the outcome. Connect's streams and all of
gRPC-Web have envelopes in a body that is always 200 OK. Neither needs HTTP/2, nor HTTP trailers. gRPC needs both, and
is gRPC-Web with its last envelope as trailers.
Sources: connectrpc.com/docs/protocol; gRPC's PROTOCOL-WEB.md and PROTOCOL-HTTP2.md.
"""

from collections.abc import Callable, Iterator
from typing import Final

from core.dialects.connect import ends, requests
from core.dialects.connect.codes import UnknownCompression, UnknownMethod, WrongType, WrongVerb
from core.dialects.connect.envelopes import COMPRESSED, HEAD, Frame, deflated, framed, frames, head, only
from core.dialects.connect.requests import Headers, Query, check_version
from core.encoding import compression
from core.errors import ServingError, shown
from core.records import NamedTuple
from core.rpc import Form, RpcMethod
from core.wire import Header, HttpResponse, Part

End = Callable[[ServingError | None, bytes], bytes]


class CallKind(NamedTuple):
    """One protocol, identified by its Content-Type.

    `json`: messages are in proto3's JSON. `end`: makes the last envelope, of an error and the id that the client has
    sent; None if messages are bare. `text`: the answer is base64. `coding`, `accepts`: the headers that name the
    compression of the request's messages, and the answer's.
    `native`: it is gRPC itself, which has trailers. `codings`: the compressions that are understood.
    """

    content_type: bytes
    json: bool
    coding: bytes
    accepts: bytes
    timeout: Callable[[Headers], float | None]
    end: End | None = None
    text: bool = False
    native: bool = False
    codings: tuple[bytes, ...] = (b"gzip",)

    def refuse(self, error: ServingError, own_id: bytes = b"") -> HttpResponse:
        """Returns the whole refusal. `own_id`: the id that the client has sent."""
        if isinstance(error, WrongVerb | WrongType) and self.native:
            return trailers_only(error, own_id)
        if self.end is None or isinstance(error, WrongVerb | WrongType):
            return ends.refusal(error, own_id)
        return HttpResponse(200, self.head(), (self.last(error, own_id),), self.trailers(error, own_id))

    def head(self, *, deflates: bool = False) -> tuple[Header, ...]:
        """Returns the headers of an answer in envelopes. `deflates`: its messages may be compressed."""
        head = ((b"content-type", self.content_type), (self.accepts, b",".join(self.codings)))
        return (*head, (self.coding, b"gzip")) if deflates else head

    def last(self, error: ServingError | None, own_id: bytes) -> bytes:
        """Returns the last part of an answer in envelopes."""
        end = b"" if self.end is None else self.end(error, own_id)
        return requests.to_text(end) if self.text else end

    def trailers(self, error: ServingError | None, own_id: bytes = b"") -> tuple[Header, ...]:
        """Returns what follows an answer, which only gRPC has."""
        if not self.native:
            return ()
        return ends.SUCCESS if error is None else (*ends.status(error, own_id, native=True),)


def _unary(codec: bytes) -> CallKind:
    timeout = requests.connect_timeout
    return CallKind(b"application/" + codec, codec == b"json", b"content-encoding", b"accept-encoding", timeout)


def _stream(codec: bytes) -> CallKind:
    return CallKind(
        b"application/connect+" + codec,
        codec == b"json",
        b"connect-content-encoding",
        b"connect-accept-encoding",
        requests.connect_timeout,
        ends.end_stream,
    )


def _web(text: bytes = b"", codec: bytes = b"proto") -> CallKind:
    return CallKind(
        b"application/grpc-web" + text + b"+" + codec,
        json=codec == b"json",
        coding=b"grpc-encoding",
        accepts=b"grpc-accept-encoding",
        timeout=requests.grpc_timeout,
        end=ends.trailers,
        text=bool(text),
    )


def _native(codec: bytes = b"") -> CallKind:
    codings = (b"gzip", b"deflate")
    return _web()._replace(content_type=GRPC + codec, end=lambda *_: b"", native=True, codings=codings)


GRPC: Final = b"application/grpc"
UNARY: Final = {kind.content_type: kind for kind in (_unary(b"proto"), _unary(b"json"))}
STREAMS: Final = {kind.content_type: kind for kind in (_stream(b"proto"), _stream(b"json"))}
WEB: Final = {
    name: kind
    for kind in (_web(), _web(b"-text"), _web(codec=b"json"), _web(b"-text", b"json"))
    for name in (kind.content_type, kind.content_type.removesuffix(b"+proto"))
}
WEB_TEXT: Final = b"application/grpc-web-text"
NATIVE: Final = {kind.content_type: kind for kind in (_native(), _native(b"+proto"))}
KINDS: Final = {**UNARY, **STREAMS, **WEB, **NATIVE}
CALLS: Final = {**UNARY, **WEB, **NATIVE}
MANY: Final = {**STREAMS, **WEB, **NATIVE}
PLAIN: Final = UNARY[b"application/json"]
"""The form of refusals to clients that speak none of the protocols."""
TELLING: Final = (
    b"content-type",
    b"accept",
    b"connect-protocol-version",
    b"content-encoding",
    b"accept-encoding",
    *(header for kind in (*STREAMS.values(), *WEB.values()) for header in (kind.coding, kind.accepts)),
)
"""The headers that determine a request's question. The deadline is not among them: clients lower it with every call."""
REMEMBERED: Final = 1024
LONGEST_REMEMBERED: Final = 512
_asked_before: "dict[tuple[RpcMethod, tuple[bytes | None, ...]], Question]" = {}
VARIES: Final[Header] = (b"vary", b"accept-encoding")
"""The header of answers that a cache may keep."""
NO_HTTP2: Final = "gRPC needs HTTP/2: use the gRPC port, or gRPC-Web or Connect on this one"
NO_TRAILERS: Final = "gRPC needs trailers, which this server does not send: use gRPC-Web or Connect, or another server"


def carrier(headers: Headers) -> str:
    """Returns the protocol of a request: one of gRPC's, or Connect, whose clients have Content-Types of other names."""
    if not headers.get(b"content-type", b"").startswith(GRPC):
        return "connect"
    return "grpc" if is_native(headers) else "grpc-web"


def trailers_only(error: ServingError, own_id: bytes = b"") -> HttpResponse:
    """Returns a refusal of gRPC in headers alone, for a call over HTTP/1.1, which a proxy may have made of it.

    So is the refusal of a verb or a type, which has the HTTP status, too, as from grpc's servers in Go and Java.
    """
    status, more = (error.status, error.headers) if isinstance(error, WrongVerb | WrongType) else (200, ())
    return HttpResponse(status, ((b"content-type", GRPC), *more, *ends.status(error, own_id, native=True)))


class Question(NamedTuple):
    """A call whose head has been read.

    `message`: the message of a GET, which has no body. `coding`: of compressed messages. `deflates`: the client
    accepts answers in gzip. `seconds`: the time until the client's deadline. `encoded`: the body is base64.
    `head`: the headers of an answer in envelopes.
    """

    method: RpcMethod
    kind: CallKind
    seconds: float | None
    message: bytes | None
    coding: bytes
    deflates: bool
    encoded: bool = False
    head: tuple[Header, ...] = ()

    def frames(self, body: Part, limit: int) -> Iterator[Frame]:
        """Yields the messages, lazily. `body` has been decoded from base64.

        Raises InvalidInput, TooLarge, UnannouncedCompression.
        """
        if self.kind.end is not None:
            return frames(body, limit, self.coding)
        return iter((Frame(body if self.message is None else self.message, self.coding),))

    def only(self, body: Part, limit: int) -> Frame:
        """Returns the message of a method that takes one. Raises NotSupported, and as `frames` does."""
        if self.kind.end is not None and body[:1] == b"\0":  # most calls: one envelope that is not compressed
            size = int.from_bytes(body[1:HEAD])
            if HEAD + size == len(body) and size <= limit:
                return Frame(memoryview(body)[HEAD:])
        return only(self.frames(body, limit))

    def answer(self, message: bytes, least: int) -> HttpResponse:
        """Returns the answer of a method with one answer. `least`: bytes from which on it is worth compressing."""
        kind = self.kind
        deflates = self.deflates and len(message) >= least
        content = deflated(message) if deflates else message
        if kind.end is not None:
            parts = (head(len(content), COMPRESSED if deflates else 0), content, kind.end(None, b""))
            whole = (requests.to_text(b"".join(parts)),) if kind.text else parts
            return HttpResponse(200, self.head, whole, kind.trailers(None))
        headers: tuple[Header, ...] = ((b"content-type", kind.content_type),)
        if deflates:
            headers = (*headers, (b"content-encoding", b"gzip"))
        varies = deflates or self.message is not None
        return HttpResponse(200, (*headers, VARIES) if varies else headers, (content,))

    def part(self, message: bytes, least: int) -> bytes:
        """Returns one of an answer's envelopes."""
        deflates = self.deflates and len(message) >= least
        part = framed(deflated(message), COMPRESSED) if deflates else framed(message)
        return requests.to_text(part) if self.kind.text else part


def kind_of(headers: Headers) -> CallKind:
    """Returns the client's protocol, in whose form any refusal is written."""
    media_type = _media_type(headers)
    if media_type in WEB and WEB_TEXT in headers.get(b"accept", b""):
        media_type = WEB_TEXT + (b"+json" if WEB[media_type].json else b"")
    return KINDS.get(media_type) or (NATIVE[GRPC] if _is_grpc(media_type) else PLAIN)


def is_native(headers: Headers) -> bool:
    return _is_grpc(_media_type(headers))


def _is_grpc(media_type: bytes) -> bool:
    return media_type == GRPC or media_type.startswith(GRPC + b"+")


def question(method: RpcMethod | None, verb: str, path: str, headers: Headers, query: bytes) -> Question:
    """Returns the question of a request's head. Raises EdgeError, InvalidInput."""
    if method is None:
        raise UnknownMethod(f"the server has no method at {shown(path)}")
    found = _posted(method, path, headers) if verb == "POST" else _asked(method, verb, path, headers, query)
    seconds = found.kind.timeout(headers) if requests.TIMEOUTS & headers.keys() else None
    return found if seconds is None else found._replace(seconds=seconds)


def _posted(method: RpcMethod, path: str, headers: Headers) -> Question:
    """Returns the question of a POST, from a cache: a client repeats the same head for every call of a method."""
    told = tuple(map(headers.get, TELLING))
    found = _asked_before.get((method, told))
    if found is None:
        found = _asked(method, "POST", path, headers, b"")
        if sum(map(len, filter(None, told))) < LONGEST_REMEMBERED:
            if len(_asked_before) >= REMEMBERED:
                _asked_before.clear()
            _asked_before[method, told] = found
    return found


def _asked(method: RpcMethod, verb: str, path: str, headers: Headers, query: bytes) -> Question:
    """Returns the question without its deadline. Raises EdgeError, InvalidInput."""
    safe = method.safe and method.form is Form.UNARY and not is_native(headers)
    if verb in ("GET", "HEAD") and safe:
        return _got(method, headers, Query(query))
    if verb != "POST":
        allowed = b"GET, HEAD, POST" if safe else b"POST"
        raise WrongVerb(f"{shown(verb)} is not possible on {shown(path)}", (b"allow", allowed))
    accepted = CALLS if method.form is Form.UNARY else MANY
    media_type = _media_type(headers)
    if media_type not in accepted:
        told = ", ".join(name.decode() for name in accepted)
        raise WrongType(f"{shown(path)} takes {told}; not {shown(media_type)}", (b"accept-post", told.encode()))
    kind = kind_of(headers)
    if media_type not in WEB:
        check_version(headers)
    coding = _coding(headers.get(kind.coding), kind)
    deflates, encoded = _deflates(headers, kind, coding), KINDS[media_type].text
    return Question(method, kind, None, None, coding, deflates, encoded, kind.head(deflates=deflates))


def _got(method: RpcMethod, headers: Headers, query: Query) -> Question:
    name = query[b"encoding"]
    kind = UNARY.get(b"application/" + name)
    if kind is None:
        raise WrongType(f"the parameter encoding is {shown(name)}; expected proto or json")
    coding = _coding(query.get(b"compression"), kind)
    deflates = _deflates(headers, kind, coding)
    return Question(method, kind, None, query.message(), coding, deflates)


def _coding(coding: bytes | None, kind: CallKind) -> bytes:
    """Returns the compression of a request's messages, b"" for none. Raises UnknownCompression."""
    name = coding.lower() if coding else b""  # content codings have no case (RFC 9110 8.4.1)
    if name in (b"", b"identity"):
        return b""
    if name not in kind.codings:
        told = ", ".join(name.decode() for name in kind.codings)
        text = f"the compression {shown(coding)} is not known; supported are {told} and identity"
        raise UnknownCompression(text, (kind.accepts, b",".join(kind.codings)))
    return name


def _deflates(headers: Headers, kind: CallKind, coding: bytes) -> bool:
    # A client without this header accepts the compression that it uses itself. gRPC's libraries always send the header,
    # so it does not show whether they want compression. Their own messages show it.
    accepted = headers.get(kind.accepts)
    if accepted is None or (kind.native and not coding):
        return bool(coding)
    return compression.accepted(accepted) == b"gzip"


def _media_type(headers: Headers) -> bytes:
    text = headers.get(b"content-type", b"")
    return text if text in KINDS else text.partition(b";")[0].strip().lower()
