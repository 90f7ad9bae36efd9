"""One request of a protocol, run in one thread from decoding to phrasing, timed and counted."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

from core.encoding import compression
from core.engine import ask, execute
from core.errors import ServingError
from core.operations import Custom, Deferred, Infer, InferResult, ModelRef, Question, Stream
from core.wire import AnyReply, Call, Header, HttpRequest, HttpResponse, HttpStream, Route
from handler.edge.timing import Timing
from handler.lifecycle.registry import Registry
from handler.lifecycle.versions import Loaded

QUICKLY_READ: Final = 64 * 1024
"""Bytes of a body up to which it may be read before it is known which thread its model runs in."""
VERSION: Final = b"model-version"
"""The header that says which version answered: not every protocol's answers do, and a canary's should."""
T = TypeVar("T")
Sent = TypeVar("Sent")
Sent_co = TypeVar("Sent_co", covariant=True)


class AnyJob(Protocol[Sent_co]):
    """A request of any protocol, as `Job` is one over HTTP."""

    def is_quick(self) -> bool: ...

    def run(self) -> Sent_co: ...

    def phrase(self, result: Any) -> Sent_co: ...


class Job:
    """One request over HTTP, run in one thread from decoding to encoding; run again if it had to wait for a model."""

    __slots__ = ("_call", "_compress_from", "_decoded", "_registry", "_route", "_timing")

    def __init__(
        self, registry: Registry, route: Route, call: Call, compress_from: int, timing: Timing | None = None
    ) -> None:
        self._compress_from = compress_from
        self._registry = registry
        self._route = route
        self._call = call
        self._decoded: tuple[Any, AnyReply] | None = None
        self._timing = timing or Timing()

    def is_quick(self) -> bool:
        """Whether it is so sure to be short that changing threads twice (25 to 55 us) would be most of its time."""
        request, path = self._call.request, self._call.path
        size = len(request.body)
        if b"content-encoding" in request.headers:  # its size says nothing of what it inflates to
            return False
        if "model" in path:
            return self._registry.is_quick(ModelRef(path["model"], path.get("version"), path.get("label")), size)
        operation = self._read() if size <= QUICKLY_READ else None
        return isinstance(operation, Infer | Deferred) and self._registry.is_quick(operation.ref, size)

    def _read(self) -> Any:
        if self._decoded is None:
            self._decoded = self._route.decode(self._call)
        return self._decoded[0]

    def run(self) -> HttpResponse | HttpStream:
        """Raises ServingError, Pending."""
        self._timing.begun = time.perf_counter_ns()
        operation = self._read()
        if not isinstance(operation, Question):
            answer: HttpResponse = self.phrase(execute(operation, self._registry))
            return answer
        held = self._registry.use(operation.ref)
        waited_here(self._registry, self._timing)
        with held as model:
            if isinstance(operation, Deferred):
                self._decoded = operation.decode(model.spec)
                operation, _ = self._decoded
            return self._answer(operation, held)

    def _answer(self, operation: Any, held: Loaded) -> HttpResponse | HttpStream:
        """What the model says, with the version that it is."""
        answered: HttpResponse | HttpStream
        if isinstance(operation, Infer):
            answered = self._infer(operation, held)
        elif isinstance(operation, Stream):
            answered = self._stream(operation, held)
        elif isinstance(operation, Custom):
            answered = self.phrase(ask(operation, held.model))
            answered = answered._replace(headers=tuple(h for h in answered.headers if h[0] != VERSION))
        else:
            result = ask(operation, held.model)
            answered = compressed(self.phrase(result), self._call.request, self._compress_from)
        headers = (*answered.headers, (VERSION, held.version))
        if isinstance(answered, HttpResponse):
            return HttpResponse(answered.status, headers, answered.parts)
        chunks = answered.chunks
        return HttpStream(answered.status, headers, chunks if isinstance(chunks, tuple) else kept(held, chunks))

    def phrase(self, result: Any) -> Any:
        if self._decoded is None:
            raise AssertionError
        return self._decoded[1](result)

    def _stream(self, operation: Stream, held: Loaded) -> HttpStream:
        results = counted_each(held, operation, len(self._call.request.body), self._timing)
        stream: HttpStream = self.phrase(results)
        return stream._replace(chunks=tuple(stream.chunks)) if isinstance(results, tuple) else stream

    def _infer(self, operation: Infer, held: Loaded) -> HttpResponse:
        request = self._call.request

        def sent(result: Any) -> HttpResponse:
            # Nothing but inference is compressed, as in Triton: tritonclient's asyncio client asks for gzip everywhere,
            # and decodes it here alone.
            return compressed(self.phrase(result), request, self._compress_from)

        return counted(held, operation, sent, len(request.body), self._timing)


def waited_here(registry: Registry, timing: Timing) -> None:
    """Loads on the spot count as waiting for the model and as nothing else."""
    flight = registry.flown
    if flight is not None:
        registry.flown = None
        timing.wait(flight.ns, flight)
        timing.begun += flight.ns


def kept(held: Loaded, items: Iterable[T]) -> Iterator[T]:
    """The items of an iterator, whose model stays in use until it ends, or until nobody wants it any more."""

    def each() -> Iterator[Any]:
        with held.again():
            try:
                yield None
                yield from items
            finally:
                getattr(items, "close", lambda: None)()

    begun = each()
    next(begun)  # dropped before its first item, a generator that has not begun would not end the use
    return begun


def counted(held: Loaded, operation: Infer, sent: Callable[[Any], Sent], size: int, timing: Timing) -> Sent:
    """An inference and its answer, in the model's statistics and in `timing`. `size`: of the request's body."""
    decoded = time.perf_counter_ns()
    begun = timing.begun
    queued = begun - timing.came
    try:
        result = ask(operation, held.model)
        inferred = time.perf_counter_ns()
        answer = sent(result)
    except ServingError:
        held.slot.record((queued, time.perf_counter_ns() - begun), size, success=False)
        raise
    durations = (queued, decoded - begun, inferred - decoded, time.perf_counter_ns() - inferred)
    held.slot.record(durations, size, success=True)
    timing.durations = durations
    return answer


def counted_each(held: Loaded, operation: Stream, size: int, timing: Timing) -> Iterable[InferResult]:
    """The answers of a stream, which together are one inference in the model's statistics: a tuple, or a generator.

    What a client leaves before its end is not counted. The arguments are those of `counted`.
    """
    decoded = time.perf_counter_ns()
    begun = timing.begun
    queued = begun - timing.came

    def record(infer: int, *, success: bool) -> None:
        held.slot.record((queued, decoded - begun, infer, 0), size, success=success)

    try:
        results = ask(operation, held.model)
    except ServingError:
        record(time.perf_counter_ns() - decoded, success=False)
        raise
    spent = time.perf_counter_ns() - decoded
    if not isinstance(results, tuple):
        return _timed(results, spent, record)
    record(spent, success=True)
    return results


def _timed(results: Any, spent: int, record: Callable[..., None]) -> Iterator[InferResult]:
    try:
        while True:
            stepped = time.perf_counter_ns()
            result = next(results, None)
            spent += time.perf_counter_ns() - stepped
            if result is None:
                break
            yield result
    except ServingError:
        record(spent, success=False)
        raise
    finally:
        results.close()
    record(spent, success=True)


def compressed(response: HttpResponse, request: HttpRequest, least: int) -> HttpResponse:
    """The answer, from `least` bytes on in a coding that the client accepts."""
    wanted = request.headers.get(b"accept-encoding")
    if wanted is None or response.length < least:
        return response
    coding = compression.accepted(wanted)
    if coding is None:
        return response
    headers: tuple[Header, ...] = (*response.headers, (b"content-encoding", coding), (b"vary", b"accept-encoding"))
    return HttpResponse(response.status, headers, (compression.deflate(response.parts, coding),))
