"""Remote calls over plain HTTP: the parts of the Connect protocol and gRPC-Web around a method's messages.

Connect's unary methods have one bare message each way, and the HTTP status is the outcome. Connect's streams and all of
gRPC-Web have envelopes in a body that is always 200 OK. Neither needs HTTP/2, nor HTTP trailers.
Sources: connectrpc.com/docs/protocol; gRPC's PROTOCOL-WEB.md.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from core.dialects.connect import ends, requests
from core.dialects.connect.codes import UnknownCompression, UnknownMethod, WrongType, WrongVerb
from core.dialects.connect.envelopes import COMPRESSED, Frame, deflated, framed, frames, head
from core.dialects.connect.requests import Query, check_version
from core.encoding import compression
from core.errors import NotSupported, ServingError, shown
from core.rpc import Form, RpcMethod
from core.wire import Header, HttpResponse, Part

Headers = Mapping[bytes, bytes]
End = Callable[[ServingError | None], bytes]


class CallKind(NamedTuple):
    """One protocol, identified by its Content-Type.

    `json`: messages are in proto3's JSON. `end`: makes the last envelope, None if messages are bare. `text`: the body
    is base64. `coding`, `accepts`: the headers that name the compression of the request's messages, and the answer's.
    """

    content_type: bytes
    json: bool
    coding: bytes
    accepts: bytes
    timeout: Callable[[Headers], float | None]
    end: End | None = None
    text: bool = False

    def refuse(self, error: ServingError) -> HttpResponse:
        """Returns the whole refusal."""
        if self.end is None or isinstance(error, WrongVerb | WrongType):
            return ends.refusal(error)
        return HttpResponse(200, self.head(), (self.last(error),))

    def head(self) -> tuple[Header, ...]:
        """Returns the headers of an answer in envelopes."""
        return ((b"content-type", self.content_type), (self.accepts, b"gzip"))

    def last(self, error: ServingError | None) -> bytes:
        """Returns the last part of an answer in envelopes."""
        end = b"" if self.end is None else self.end(error)
        return requests.to_text(end) if self.text else end


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


def _web(text: bytes = b"") -> CallKind:
    return CallKind(
        b"application/grpc-web" + text + b"+proto",
        json=False,
        coding=b"grpc-encoding",
        accepts=b"grpc-accept-encoding",
        timeout=requests.grpc_timeout,
        end=ends.trailers,
        text=bool(text),
    )


UNARY: Final = {kind.content_type: kind for kind in (_unary(b"proto"), _unary(b"json"))}
STREAMS: Final = {kind.content_type: kind for kind in (_stream(b"proto"), _stream(b"json"))}
WEB: Final = {
    name: kind
    for kind in (_web(), _web(b"-text"))
    for name in (kind.content_type, kind.content_type.removesuffix(b"+proto"))
}
WEB_TEXT: Final = b"application/grpc-web-text"
KINDS: Final = {**UNARY, **STREAMS, **WEB}
CALLS: Final = {**UNARY, **WEB}
MANY: Final = {**STREAMS, **WEB}
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
GRPC: Final = b"application/grpc"
NATIVE: Final = HttpResponse(
    200,
    (
        (b"content-type", GRPC),
        *ends.status(NotSupported("gRPC needs HTTP/2: use the gRPC port, or gRPC-Web or Connect on this one")),
    ),
)
"""The whole answer, "Trailers-Only", to gRPC itself that arrived over HTTP/1.1 or through a proxy that speaks it."""


def carrier(headers: Headers) -> str:
    """Returns the protocol of a request: gRPC-Web, or Connect, whose clients have Content-Types of other names."""
    return "grpc-web" if headers.get(b"content-type", b"").startswith(GRPC) else "connect"


class Question(NamedTuple):
    """A call whose head has been read.

    `message`: the message of a GET, which has no body. `gzipped`: compressed messages are gzip. `deflates`: the client
    accepts answers in gzip. `seconds`: the time until the client's deadline.
    """

    method: RpcMethod
    kind: CallKind
    seconds: float | None
    message: bytes | None
    gzipped: bool
    deflates: bool

    def frames(self, body: Part, limit: int) -> Iterator[Frame]:
        """Yields the messages, lazily. `body` has been decoded from base64.

        Raises InvalidInput, TooLarge, UnannouncedCompression.
        """
        whole = self.whole(body)
        return frames(body, limit, gzipped=self.gzipped) if whole is None else iter((whole,))

    def whole(self, body: Part) -> Frame | None:
        """Returns the only message of a request without envelopes, None if its messages are in envelopes."""
        if self.message is not None:
            return Frame(self.message, self.gzipped)
        return Frame(body, self.gzipped) if self.kind.end is None else None

    def answer(self, message: bytes, least: int) -> HttpResponse:
        """Returns the answer of a method with one answer. `least`: bytes from which on it is worth compressing."""
        kind = self.kind
        deflates = self.deflates and len(message) >= least
        content = deflated(message) if deflates else message
        if kind.end is not None:
            parts = (head(len(content), COMPRESSED if deflates else 0), content, kind.end(None))
            whole = (requests.to_text(b"".join(parts)),) if kind.text else parts
            return HttpResponse(200, self.head(), whole)
        headers: tuple[Header, ...] = ((b"content-type", kind.content_type),)
        if deflates:
            headers = (*headers, (b"content-encoding", b"gzip"))
        varies = deflates or self.message is not None
        return HttpResponse(200, (*headers, VARIES) if varies else headers, (content,))

    def head(self) -> tuple[Header, ...]:
        """Returns the headers of an answer in envelopes."""
        return (*self.kind.head(), (self.kind.coding, b"gzip")) if self.deflates else self.kind.head()

    def part(self, message: bytes, least: int) -> bytes:
        """Returns one of an answer's envelopes."""
        deflates = self.deflates and len(message) >= least
        part = framed(deflated(message), COMPRESSED) if deflates else framed(message)
        return requests.to_text(part) if self.kind.text else part


def kind_of(headers: Headers) -> CallKind:
    """Returns the client's protocol, in whose form any refusal is written."""
    media_type = _media_type(headers)
    if media_type in WEB and WEB_TEXT in headers.get(b"accept", b""):
        media_type = WEB_TEXT
    return KINDS.get(media_type, PLAIN)


def is_native(headers: Headers) -> bool:
    media_type = _media_type(headers)
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
    safe = method.safe and method.form is Form.UNARY
    if verb == "GET" and safe:
        return _got(method, headers, Query(query))
    if verb != "POST":
        allowed = b"GET, POST" if safe else b"POST"
        raise WrongVerb(f"{shown(verb)} is not possible on {shown(path)}", (b"allow", allowed))
    accepted = CALLS if method.form is Form.UNARY else MANY
    media_type = _media_type(headers)
    if media_type not in accepted:
        told = ", ".join(name.decode() for name in accepted)
        raise WrongType(f"{shown(path)} takes {told}; not {shown(media_type)}", (b"accept-post", told.encode()))
    kind = kind_of(headers)
    if media_type not in WEB:
        check_version(headers)
    gzipped = _is_gzip(headers.get(kind.coding), kind)
    return Question(method, kind, None, None, gzipped, _deflates(headers, kind, gzipped=gzipped))


def _got(method: RpcMethod, headers: Headers, query: Query) -> Question:
    name = query[b"encoding"]
    kind = UNARY.get(b"application/" + name)
    if kind is None:
        raise WrongType(f"the parameter encoding is {shown(name)}; expected proto or json")
    gzipped = _is_gzip(query.get(b"compression"), kind)
    deflates = _deflates(headers, kind, gzipped=gzipped)
    return Question(method, kind, None, query.message(), gzipped, deflates)


def _is_gzip(coding: bytes | None, kind: CallKind) -> bool:
    if not coding or coding == b"identity":
        return False
    if coding != b"gzip":
        told = f"the compression {shown(coding)} is not known; supported are gzip and identity"
        raise UnknownCompression(told, (kind.accepts, b"gzip"))
    return True


def _deflates(headers: Headers, kind: CallKind, *, gzipped: bool) -> bool:
    # A client without this header accepts the compression that it sends.
    accepted = headers.get(kind.accepts)
    return gzipped if accepted is None else compression.accepted(accepted) == b"gzip"


def _media_type(headers: Headers) -> bytes:
    text = headers.get(b"content-type", b"")
    return text if text in KINDS else text.partition(b";")[0].strip().lower()
