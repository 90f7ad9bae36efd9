"""One request, worked on in one thread from decoding to encoding: its codec, its answer."""

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from core import engine
from core.bounds import RATIO
from core.checks import TEXT_OF_REQUEST, longest_text
from core.errors import InvalidInput
from core.operations import Custom, Deferred, Infer, ModelRef, ModelSpec, Operation
from core.ports import Models, Use
from core.records import NamedTuple
from core.wire import REQUEST_ID, Call, Header, HttpRequest, HttpResponse, HttpStream, Part, Right, Route
from handler.edge.exchange import Headers, Scope
from handler.edge.observe.record import Record
from handler.edge.timing import Timing
from handler.lifecycle.usage import most_cpu

if TYPE_CHECKING:
    from core.batches import Prepared, Ran

QUICKLY_READ: Final = 64 * 1024
"""Bytes of a body up to which it is read before its model's thread is known."""
RAW_QUICKLY_READ: Final = 4 * 1024 * 1024
"""The same for a short JSON head with raw numbers behind it, which stay where they are: a quarter of a millisecond."""
SURELY_TAKEN: Final = TEXT_OF_REQUEST // RATIO
"""Bytes of a body that any model could take, inflated too."""
AT_END: Final = -1
"""Raw tensors are the last field of a message: where a body ends aligned, the last of them needs no copy."""
VERSION: Final = b"model-version"
"""The header that names the version that answered: not every protocol's answers do, and a canary's should."""
OURS: Final = (VERSION, REQUEST_ID)
"""The headers of every answer that a model which answers itself does not set."""
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Decoded = tuple[Operation, Callable[[Any], Any]]


class Codec(Protocol[T_co]):
    """Reads one request of a protocol, and writes its answer. `size`: bytes of its body."""

    @property
    def size(self) -> int: ...

    def is_long(self) -> bool:
        """Decides whether it has more bytes than an event loop should read."""
        ...

    def ref(self) -> ModelRef | None:
        """Returns the model that will answer, if that is quick to find out and the request can be short."""
        ...

    def named(self) -> ModelRef | None:
        """Returns the model that is looked up before the request is read; None for a request that names none.

        Raises ServingError.
        """
        ...

    def known(self) -> ModelRef | None:
        """Returns the model that the request names, if that is known without reading more of it."""
        ...

    def read(self, spec: ModelSpec | None = None) -> Decoded:
        """Returns the operation, and the reply that phrases its result; reads once. Raises ServingError.

        `spec`: of the model that answers, which bounds what is read.
        """
        ...

    def finish(self, reply: Any, operation: Operation, use: Use | None, *, lazy: bool) -> T_co:
        """Returns the answer for a reply. `lazy`: its parts are made one by one, by the model of the use."""
        ...


class ServedModels(Models, Protocol):
    """The models that a caller may ask: the registry, or handler.edge.gate's view of it."""

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Decides whether a request of `size` bytes is so sure to be short that it need not change threads."""
        ...

    def spec(self, ref: ModelRef) -> ModelSpec | None:
        """Returns the spec of a version in memory; None if it is not, or if the reference is not resolved yet."""
        ...


class WholeHead(NamedTuple):
    """The head of a request that may be answered at once.

    `headers`: by name. `model`: the one in the path, None if the path names none. `protocol`: its name in records.
    `raw_at`: the byte of a body that should lie aligned, as for `exchange.gather`, if raw tensors follow a short head,
    or AT_END; 0 for a body that is not raw, None for a request that cannot wait until its body has arrived.
    `answer`: returns the answer to a body, or None if that is not sure to be quick; takes the models that the caller
    may use, and the record of the request.
    """

    scope: Scope
    headers: Headers
    right: Right
    model: str | None
    protocol: str
    raw_at: int | None
    answer: Callable[[Part, ServedModels, Record], HttpResponse | HttpStream | None]


class Job(Generic[T]):
    """One request of any protocol. It may run again, where it had to wait for a model."""

    __slots__ = ("codec", "models", "timing")

    def __init__(self, codec: Codec[T], models: ServedModels, timing: Timing) -> None:
        self.codec = codec
        self.models = models
        self.timing = timing

    def is_long(self) -> bool:
        """Decides whether the request takes too long to read for an event loop."""
        return self.codec.is_long()

    def is_quick(self) -> bool:
        """Decides whether the event loop may answer it. A thread costs 25 to 55 us, more than such a request takes."""
        ref = self.codec.ref()
        return ref is not None and self.models.is_quick(ref, self.codec.size)

    def spec(self) -> ModelSpec | None:
        """Returns the spec of the model that the request names; None if that is not known, or not in memory."""
        if self.timing.use is not None:
            return cast("ModelSpec", self.timing.use.model.spec)
        ref = self.codec.known()
        return None if ref is None else self.models.spec(ref)

    def is_at_hand(self) -> bool:
        """Decides whether it asks about a model in memory, for which nobody asks the store. Raises ServingError."""
        if self.codec.is_long():
            return False
        ref = self.codec.known() or ref_of(self.codec.read())
        return ref is not None and self.models.spec(ref) is not None

    def run(self) -> T:
        """Returns the answer. Raises ServingError, Pending, Misplaced."""
        codec, timing = self.codec, self.timing
        timing.begun = time.perf_counter_ns()
        ref = codec.named()
        answer: T
        if ref is not None:
            answer = engine.answer_with(self.models.use(ref, timing), partial(self._bound, ref), codec.finish, timing)
        else:
            answer = engine.answer(*self._read(), codec.finish, self.models, timing)
        return answer

    def run_apart(self) -> T:
        """Does what `run` does, in a thread that others interrupt: its own time on the processor counts from here."""
        most_cpu()
        return self.run()

    def steps(self) -> Generator["Prepared | None", "Ran", T]:
        """Returns what `run` does, with a halt before the model runs; see core.batches.steps."""
        from core import batches  # noqa: PLC0415 - for models whose requests run together

        self.timing.begun = time.perf_counter_ns()
        ref = self.codec.named()
        operation, reply = self._read() if ref is None else (Deferred(ref, partial(self._bound, ref)), _never)
        return batches.steps(operation, reply, self.codec.finish, self.models, self.timing)

    def _read(self) -> Decoded:
        decoded = self.codec.read()
        self.timing.size = self.codec.size  # reading may inflate the body
        return decoded

    def _bound(self, ref: ModelRef, spec: ModelSpec) -> Any:
        """Returns the question that names the model of the spec, and its reply. `ref`: how it was found."""
        operation: Any
        operation, reply = self.codec.read(spec)
        self.timing.size = self.codec.size  # as above
        if operation.ref != ref:
            raise InvalidInput("the request names its model in an unusual way: name it once, before the tensors")
        return operation.decode(spec) if type(operation) is Deferred else (operation, reply)

    def phrase(self, result: Any) -> T:
        """Returns the answer of an operation whose result another thread has brought."""
        operation, reply = self.codec.read()
        return self.codec.finish(reply(result), operation, None, lazy=False)


def _never(_: Any) -> Any:
    """The reply of a request that is not read yet; the engine takes the one that reading returns."""
    raise AssertionError


class HttpCodec:
    """A request of a protocol over HTTP. `compress_from`: bytes of an answer that are worth compressing.

    `head`: bytes of its JSON, if raw tensors follow; 0 if none do.
    """

    __slots__ = ("_call", "_compress_from", "_decoded", "_head", "_named", "_route", "size")

    def __init__(self, route: Route, call: Call, compress_from: int, head: int = 0) -> None:
        self._head = head
        self._route = route
        self._call = call
        self._compress_from = compress_from
        self._decoded: Decoded | None = None
        self._named: ModelRef | None = None
        self.size = len(call.request.body)

    def is_long(self) -> bool:
        # What a compressed body inflates to is not known.
        if b"content-encoding" in self._call.request.headers:
            return True
        return self.size > QUICKLY_READ and not self._is_raw()

    def _is_raw(self) -> bool:
        """Decides whether a long body is a short head and numbers. Texts take longer; an escape may hide them."""
        if not 0 < self._head <= QUICKLY_READ or self.size > RAW_QUICKLY_READ:
            return False
        head = bytes(self._call.request.body[: self._head])
        return b"BYTES" not in head and b"\\" not in head

    def ref(self) -> ModelRef | None:
        if self.is_long():
            return None
        named = self.named() or self.known()
        if named is not None:
            return named
        operation = self.read()[0]
        return operation.ref if isinstance(operation, Infer | Deferred) else None

    def asked(self) -> tuple[str, Part]:
        """Returns the pattern of the path, and the received body."""
        return self._route.pattern, self._call.request.body

    def named(self) -> ModelRef | None:
        names = self._route.names
        if self._named is None and names is not None:
            self._named = names(self._call)
        return self._named

    def known(self) -> ModelRef | None:
        if self._decoded is not None:
            return ref_of(self._decoded)
        path = self._call.path
        return ModelRef(path["model"], path.get("version"), path.get("label")) if "model" in path else None

    def read(self, spec: ModelSpec | None = None) -> Decoded:
        if self._decoded is None:
            call = self._call
            if spec is not None and self.size > SURELY_TAKEN:
                call = call.within(longest_text(spec))
            self._decoded = self._route.decode(call)
        return self._decoded

    def finish(
        self, reply: HttpResponse | HttpStream, operation: Operation, use: Any, *, lazy: bool
    ) -> HttpResponse | HttpStream:
        """Adds the version that answered. Compresses inferences only, as Triton does.

        tritonclient's asyncio client asks for gzip everywhere, and decodes it in inferences alone.
        """
        if use is None:
            return reply
        headers = reply.headers
        if type(operation) is Custom:
            headers = tuple(header for header in headers if header[0] not in OURS)
        version = (VERSION, use.version)
        if isinstance(reply, HttpStream):
            chunks = reply.chunks
            if not isinstance(chunks, tuple):
                chunks = engine.kept(use, chunks) if lazy else tuple(chunks)
            return HttpStream(reply.status, (*headers, version), chunks, reply.last)
        if b"accept-encoding" in self._call.request.headers and type(operation) is not Custom:
            reply = compressed(reply, self._call.request, self._compress_from)
            headers = reply.headers
        return HttpResponse(reply.status, (*headers, version), reply.parts)


def ref_of(decoded: Decoded) -> ModelRef | None:
    """Returns the model that a decoded question names; None for a question that the server answers itself."""
    ref: ModelRef | None = getattr(decoded[0], "ref", None)
    return ref


def compressed(response: HttpResponse, request: HttpRequest, least: int) -> HttpResponse:
    """Returns the answer, from `least` bytes on in a coding that the client accepts."""
    wanted = request.headers.get(b"accept-encoding")
    if wanted is None or response.length < least:
        return response
    from core.encoding import compression  # noqa: PLC0415 - few answers are so long, and zlib takes 1 ms of cold start

    coding = compression.accepted(wanted)
    if coding is None:
        return response
    headers: tuple[Header, ...] = (*response.headers, (b"content-encoding", coding), (b"vary", b"accept-encoding"))
    return HttpResponse(response.status, headers, (compression.deflate(response.parts, coding),))
