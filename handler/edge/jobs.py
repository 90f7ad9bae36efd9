"""One request, worked on in one thread from decoding to encoding: its time, its codec, its answer."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from core import engine
from core.deadline import NEVER, Deadline
from core.encoding import compression
from core.operations import Custom, Deferred, Infer, ModelRef, Operation
from core.ports import Use
from core.wire import Call, Header, HttpRequest, HttpResponse, HttpStream, Route, Waits
from handler.edge import streams
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Load

QUICKLY_READ: Final = 64 * 1024
"""Bytes of a body up to which it may be read before it is known which thread its model runs in."""
VERSION: Final = b"model-version"
"""The header that names the version that answered: not every protocol's answers do, and a canary's should."""
TIMING: Final = b"server-timing"
COLD: Final = b"cold"
RESTORED: Final = b"restored"
WARM: Final = b"warm"
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Decoded = tuple[Operation, Callable[[Any], Any]]


class Timing:
    """Where a request's time went, in nanoseconds; implements core.ports.Context.

    `deadline`: until when it may wait in its own thread. `came`, `begun`: when it came, and when it left the queue (0
    before), on time.perf_counter_ns(). `wait`: in all for its model, `load` of it in the model's runtime. `cold`: it
    waited for a load, and not only for a look at the repository. `durations`: of an answered inference: in the queue
    (with the wait for the model), for decoding, for the model, for encoding. `size`: bytes of its body.
    """

    __slots__ = ("begun", "came", "cold", "deadline", "durations", "load", "size", "wait")

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self.came = time.perf_counter_ns()
        self.begun = 0
        self.wait = 0
        self.load = 0
        self.cold = False
        self.durations: tuple[int, int, int, int] | None = None
        self.size = 0

    def waited(self, ns: int, load: Load) -> None:
        self.wait += ns
        self.begun += ns  # a wait in this thread does not count as decoding
        of_load = min(ns, load.load_ns)
        self.load += of_load
        self.cold = self.cold or of_load > 0 or load.version is not None

    def answered(self, use: Any, decoded: int, inferred: int) -> None:
        encoded, begun = time.perf_counter_ns(), self.begun
        self.durations = (begun - self.came, decoded - begun, inferred - decoded, encoded - inferred)
        use.record(self.durations, self.size, success=True)

    def streamed(self, use: Any, decoded: int, infer: int, *, success: bool) -> None:
        use.record((self.begun - self.came, decoded - self.begun, infer, 0), self.size, success=success)

    def failed(self, use: Any) -> None:
        spent = time.perf_counter_ns() - self.begun
        use.record((self.begun - self.came, spent), self.size, success=False)

    def text(self, start: bytes) -> bytes:
        """Returns the value of Server-Timing (W3C, Server Timing): milliseconds by step. `start`: of its process."""
        # Formatting bytes takes 0.7 us here, half of what a string and its encoding do.
        if self.durations is None:
            queue = self.begun - self.came if self.begun else 0
            steps = b"total;dur=%.3f, start;desc=%b" % ((time.perf_counter_ns() - self.came) / 1e6, start)
        else:
            queue, decode, infer, encode = self.durations
            steps = b"decode;dur=%.3f, infer;dur=%.3f, encode;dur=%.3f, start;desc=%b" % (
                *(decode / 1e6, infer / 1e6, encode / 1e6),
                start,
            )
        if not self.wait:
            return b"queue;dur=%.3f, %b" % (queue / 1e6, steps)
        waits = (max(0, queue - self.wait) / 1e6, (self.wait - self.load) / 1e6, self.load / 1e6)
        return b"queue;dur=%.3f, fetch;dur=%.3f, load;dur=%.3f, %b" % (*waits, steps)


class Clock:
    """Writes the Server-Timing of one process. `start`: what its next request says, COLD or RESTORED; then WARM."""

    def __init__(self, *, on: bool) -> None:
        self.start = COLD
        self._on = on

    def headers(self, timing: Timing) -> tuple[Header, ...]:
        """Returns the header; none where DRAGOMAN_SERVER_TIMING is off."""
        if not self._on:
            return ()
        start = self.start
        if start is not WARM:
            self.start = WARM
        elif timing.cold:
            start = COLD
        return ((TIMING, timing.text(start)),)


class Codec(Protocol[T_co]):
    """How one request of a protocol is read, and how its answer is written. `size`: bytes of its body."""

    @property
    def size(self) -> int: ...

    def ref(self) -> ModelRef | None:
        """Returns the model that will answer, if that costs little to find out and the request may be short."""
        ...

    def read(self) -> Decoded:
        """Returns the operation, and the reply that phrases its result; reads once. Raises ServingError."""
        ...

    def finish(self, reply: Any, operation: Operation, use: Use | None, *, lazy: bool) -> T_co:
        """Returns what is sent for a reply. `lazy`: its parts are made one by one, by the model of the use."""
        ...


class Job(Generic[T]):
    """One request of any protocol. It may run again, where it had to wait for a model."""

    __slots__ = ("codec", "registry", "timing")

    def __init__(self, codec: Codec[T], registry: Registry, timing: Timing) -> None:
        self.codec = codec
        self.registry = registry
        self.timing = timing

    def is_quick(self) -> bool:
        """Decides whether it is so sure to be short that changing threads twice (25 to 55 us) would be most of it."""
        ref = self.codec.ref()
        return ref is not None and self.registry.is_quick(ref, self.codec.size)

    def run(self) -> T:
        """Raises ServingError, Pending."""
        self.timing.begun = time.perf_counter_ns()
        operation, reply = self.codec.read()
        self.timing.size = self.codec.size  # reading may inflate the body
        answer: T = engine.answer(operation, reply, self.codec.finish, self.registry, self.timing)
        return answer

    def phrase(self, result: Any) -> T:
        """Returns the answer of an operation whose result another thread has brought."""
        operation, reply = self.codec.read()
        return self.codec.finish(reply(result), operation, None, lazy=False)


class HttpCodec:
    """A request of a protocol over HTTP. `compress_from`: bytes of an answer that are worth compressing."""

    __slots__ = ("_call", "_compress_from", "_decoded", "_route", "size")

    def __init__(self, route: Route, call: Call, compress_from: int) -> None:
        self._route = route
        self._call = call
        self._compress_from = compress_from
        self._decoded: Decoded | None = None
        self.size = len(call.request.body)

    def ref(self) -> ModelRef | None:
        request, path = self._call.request, self._call.path
        if b"content-encoding" in request.headers:  # its size does not tell what it inflates to
            return None
        if "model" in path:
            return ModelRef(path["model"], path.get("version"), path.get("label"))
        operation = self.read()[0] if self.size <= QUICKLY_READ else None
        return operation.ref if isinstance(operation, Infer | Deferred) else None

    def read(self) -> Decoded:
        if self._decoded is None:
            self._decoded = self._route.decode(self._call)
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
            headers = tuple(header for header in headers if header[0] != VERSION)
        version = (VERSION, use.version)
        if isinstance(reply, HttpStream):
            chunks = reply.chunks
            if not isinstance(chunks, tuple):
                chunks = engine.kept(use, chunks) if lazy else tuple(chunks)
            return HttpStream(reply.status, (*headers, version), chunks)
        if type(operation) is not Custom:
            reply = compressed(reply, self._call.request, self._compress_from)
            headers = reply.headers
        return HttpResponse(reply.status, (*headers, version), reply.parts)


class Inline:
    """Works on a request in the caller's thread, as on Lambda, where an instance has one request at a time."""

    loaders = None

    async def answer(self, job: Job[T], _waits: Waits, _deadline: Deadline = NEVER) -> T:
        """Returns the job's answer. Raises ServingError."""
        return job.run()

    async def work(self, work: Callable[[], T], *, is_quick: bool) -> T:  # noqa: ARG002 - as Threads
        return work()

    async def aside(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    def begin(self, work: Callable[[], None]) -> None:
        work()

    def each(self, items: Iterable[T]) -> AsyncGenerator[T]:
        return streams.each(items, None)

    def close(self) -> None:
        """There is nothing to end."""


def compressed(response: HttpResponse, request: HttpRequest, least: int) -> HttpResponse:
    """Returns the answer, from `least` bytes on in a coding that the client accepts."""
    wanted = request.headers.get(b"accept-encoding")
    if wanted is None or response.length < least:
        return response
    coding = compression.accepted(wanted)
    if coding is None:
        return response
    headers: tuple[Header, ...] = (*response.headers, (b"content-encoding", coding), (b"vary", b"accept-encoding"))
    return HttpResponse(response.status, headers, (compression.deflate(response.parts, coding),))
