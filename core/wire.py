"""HTTP as the dialects see it: a request, an answer, a table of routes. No sockets, no framework."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final

from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.errors import Fault, ServingError, TooLarge, Unauthenticated, shown
from core.operations import ModelRef, Operation
from core.records import NamedTuple

Header = tuple[bytes, bytes]
Part = bytes | memoryview
JSON: Final[Header] = (b"content-type", b"application/json")
OCTETS: Final[Header] = (b"content-type", b"application/octet-stream")
RETRY_SOON: Final[Header] = (b"retry-after", b"1")
"""The header of a 503 whose cause may end by itself at an unknown time."""
REQUEST_ID: Final = b"x-request-id"
"""The header with a request's id, in requests and answers."""
ID_MEMBER: Final = "request_id"
"""The member of an error in JSON with the id that the client has sent."""
SHORT: Final = 64 * 1024
"""Bytes of a body that costs little to read."""
STATUS: Final[dict[Fault, int]] = {
    Fault.INVALID_ARGUMENT: 400,
    Fault.NOT_FOUND: 404,
    # A model that cannot be loaded is not the client's mistake: for the client it is unavailable.
    Fault.FAILED_PRECONDITION: 503,
    Fault.RESOURCE_EXHAUSTED: 413,
    Fault.UNAVAILABLE: 503,
    Fault.DEADLINE_EXCEEDED: 504,
    Fault.UNIMPLEMENTED: 501,
    Fault.UNAUTHENTICATED: 401,
    Fault.PERMISSION_DENIED: 403,
    Fault.INTERNAL: 500,
}


class HttpError(ServingError):
    """A failure that only HTTP knows, with a status of its own."""

    fault = Fault.INVALID_ARGUMENT
    status: int


class RouteNotFound(HttpError):
    fault = Fault.NOT_FOUND
    status = 404


class MethodNotAllowed(HttpError):
    fault = Fault.UNIMPLEMENTED
    status = 405

    def __init__(self, method: str, path: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{shown(method)} is not possible on {shown(path)}; allowed: {', '.join(allowed)}")
        self.allowed = allowed


class UnsupportedEncoding(HttpError):
    status = 415


class UnsupportedType(HttpError):
    status = 415


def status_of(error: ServingError) -> int:
    return error.status if isinstance(error, HttpError) else STATUS[error.fault]


def headers_of(error: ServingError) -> list[Header]:
    """Returns the headers of any dialect's refusal: Allow (RFC 9110 15.5.6), Retry-After in whole seconds (10.2.3).

    A 401 names the scheme of its credential (RFC 6750 3). What may pass by itself can be tried again after a second.
    """
    headers: list[Header] = []
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if isinstance(error, UnsupportedEncoding):
        headers.append((b"accept-encoding", b"gzip, deflate"))
    seconds = error.retry_after
    if seconds is not None or error.fault is Fault.UNAVAILABLE:
        headers.append((b"retry-after", b"%d" % max(1, round(seconds or 1))))
    return headers


def by_name(headers: Sequence[Header]) -> dict[bytes, bytes]:
    """Returns a request's headers. Lines of one name are one list, in their order (RFC 9110 5.3).

    >>> by_name([(b"accept-encoding", b"br"), (b"accept", b"*/*"), (b"accept-encoding", b"gzip")])
    {b'accept-encoding': b'br, gzip', b'accept': b'*/*'}
    """
    found = dict(headers)
    if len(found) == len(headers):
        return found
    lines: dict[bytes, list[bytes]] = {name: [] for name in found}
    for name, value in headers:
        lines[name].append(value)
    return {name: b", ".join(values) for name, values in lines.items()}


class Options(NamedTuple):
    """An operator's choices for the wire.

    `non_finite`: NaN and infinities in JSON answers: "token" as the protocol has them, "null", or "error".
    `v1_dialect`: the answer's form under /v1 where KServe and TensorFlow Serving differ: "auto", "tfs", "kserve".
    """

    max_body_bytes: int = 64 * 1024 * 1024
    non_finite: str = "token"
    v1_dialect: str = "auto"

    def tokens(self, own: NonFinite) -> NonFinite | None:
        """Returns the form of NaN and infinities in JSON, None if they are errors. `own`: the protocol's form."""
        if self.non_finite == "token":
            return own
        return NonFinite.NULL if self.non_finite == "null" else None


class HttpRequest(NamedTuple):
    """A request. `path`: percent-decoded. `headers`: by lower-case name. `query`: the text after the question mark.

    `own_id`: the id that its client has sent, b"" without one. Errors inside an answer that has begun repeat it.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes] = MappingProxyType({})
    body: bytes | memoryview = b""
    options: Options = Options()
    query: bytes = b""
    own_id: bytes = b""

    @property
    def is_long(self) -> bool:
        """Whether the body can cost much to read, because it is long or compressed. Its model is looked for first."""
        return len(self.body) > SHORT or b"content-encoding" in self.headers

    def content(self) -> bytes | memoryview:
        """Returns the body without its Content-Encoding. Raises UnsupportedEncoding, InvalidInput, TooLarge."""
        limit = self.options.max_body_bytes
        if len(self.body) > limit:
            raise TooLarge(f"the body has {len(self.body)} bytes; at most {limit} are accepted")
        body = self.body
        coding = self.headers.get(b"content-encoding")
        if not coding:
            return body
        from core.encoding.compression import MOST_CODINGS, WINDOW_BITS, inflate  # noqa: PLC0415 - few clients compress

        names = [name for part in coding.lower().split(b",") if (name := part.strip()) and name != b"identity"]
        if len(names) > MOST_CODINGS:
            raise UnsupportedEncoding(f"content-encoding has {len(names)} codings; at most {MOST_CODINGS} are possible")
        for name in reversed(names):
            if name not in WINDOW_BITS:
                raise UnsupportedEncoding(f"content-encoding {shown(coding)} is not known; send gzip or deflate")
            body = inflate(body, name, limit, len(self.body))
        return body


class HttpResponse(NamedTuple):
    """An answer. `parts`: the body in pieces that are not joined yet. `trailers`: headers behind it, over HTTP/2.

    `why`: the kind and the text of a failure that it reports in a form of its own, for the log and the counts.
    """

    status: int
    headers: tuple[Header, ...]
    parts: tuple[Part, ...] = ()
    trailers: tuple[Header, ...] = ()
    why: tuple[Fault, str] | None = None

    @property
    def length(self) -> int:
        return sum(map(len, self.parts))


def json_answer(value: Any, status: int = 200, *more: Header) -> HttpResponse:
    """Returns a value as an answer in JSON. `more`: further headers."""
    return HttpResponse(status, (JSON, *more), (jsonio.dumps(value),))


class HttpStream(NamedTuple):
    """An answer in chunks, each sent as soon as it exists.

    `chunks`: a tuple, or a generator. The generator is closed if the client disconnects. Its error breaks the answer
    off, unless `last` makes the last chunk of it: a time limit, for instance, ends a generator from outside.
    """

    status: int
    headers: tuple[Header, ...]
    chunks: Iterable[bytes]
    last: Callable[[ServingError], bytes] | None = None


class Call(NamedTuple):
    """One request on one route. `path`: the values of the route's {placeholders}."""

    request: HttpRequest
    path: Mapping[str, str]

    def within(self, longest: int | None) -> "Call":
        """Returns the call with a body of at most that many bytes, inflated too."""
        options = self.request.options
        if longest is None or longest >= options.max_body_bytes:
            return self
        return self._replace(request=self.request._replace(options=options._replace(max_body_bytes=longest)))


Reply = Callable[[Any], HttpResponse]
AnyReply = Callable[[Any], HttpResponse | HttpStream]
Decode = Callable[[Call], tuple[Operation, AnyReply]]


class Waits(Enum):
    """The thing that a route may wait for. An edge with threads chooses a thread by it."""

    NOTHING = auto()
    STORE = auto()
    PROBE = auto()
    """The store, for a moment: a load balancer that asks does not wait."""
    MODEL = auto()
    LONG = auto()
    """A model, always for longer than its inferences take."""


class Right(Enum):
    """The permission that a route or a remote call needs."""

    __hash__ = object.__hash__  # Enum's own is Python, and each request looks a right up

    OPEN = auto()
    """None: the health of the whole server, which load balancers ask for without a credential."""
    INFER = auto()
    READ = auto()
    ADMIN = auto()


class Route(NamedTuple):
    """A route. `pattern`: segments between slashes; {name} is any segment, {name}:verb one that ends in :verb.

    `right`: a route that does not state its right needs the strictest one. `names`: returns the model that a request
    names, None if only the body does. It is looked up before the body is read.
    """

    method: str
    pattern: str
    decode: Decode
    about: str
    waits: Waits = Waits.STORE
    right: Right = Right.ADMIN
    names: Callable[[Call], ModelRef | None] | None = None


class Surface(NamedTuple):
    """What a protocol answers. `refuse`: takes the error, and the method and path of the request that it answers."""

    routes: tuple[Route, ...]
    refuse: Callable[[ServingError, str, str], HttpResponse]


class Dialect(NamedTuple):
    """One protocol over HTTP. It owns every path below `prefix`, and formats the refusals there.

    `surface`: its module may be imported for that. `any_case`: fixed segments match in lower and upper case.
    `is_exact`: a path does not have a slash at its end. `root`: the answer of GET / to clients that do not want HTML.
    `json_length`: the header with the number of bytes of a body's JSON, before its tensors; empty where bodies have no
    such part. `id_member`: of a refusal, for the id that the client has sent; empty where the protocol has it in a
    header alone. `is_single`: it owns the path `prefix`, and none below it.
    """

    name: str
    prefix: str
    surface: Callable[[], Surface]
    any_case: bool = False
    is_exact: bool = False
    root: HttpResponse | None = None
    json_length: bytes = b""
    id_member: str = ID_MEMBER
    is_single: bool = False

    @property
    def routes(self) -> tuple[Route, ...]:
        return self.surface().routes

    def refuse(self, error: ServingError, method: str, path: str) -> HttpResponse:
        return self.surface().refuse(error, method, path)

    def owns(self, path: str) -> bool:
        start = path if self.is_single else path[: len(self.prefix) + 1]
        return (start.lower() if self.any_case else start) in (self.prefix, self.prefix + "/")
