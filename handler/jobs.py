"""One request of a protocol, run in one thread from decoding to phrasing, timed and counted."""

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from core import compression
from core.engine import execute, settled
from core.errors import ServingError
from core.operations import Deferred, Explain, Infer, ModelRef
from core.wire import Call, Header, HttpRequest, HttpResponse, Reply, Route
from handler.registry import Registry

Sent = TypeVar("Sent")
Sent_co = TypeVar("Sent_co", covariant=True)


class AnyJob(Protocol[Sent_co]):
    """A request of any protocol, as `Job` is one over HTTP."""

    def is_quick(self) -> bool: ...

    def run(self) -> Sent_co: ...

    def phrase(self, result: Any) -> Sent_co: ...


class Job:
    """One request over HTTP, run in one thread from decoding to encoding; run again if it had to wait for a model."""

    __slots__ = ("_call", "_compress_from", "_decoded", "_registry", "_route", "_started")

    def __init__(self, registry: Registry, route: Route, call: Call, compress_from: int) -> None:
        self._compress_from = compress_from
        self._registry = registry
        self._route = route
        self._call = call
        self._decoded: tuple[Any, Reply] | None = None
        self._started = time.perf_counter_ns()

    def is_quick(self) -> bool:
        """Whether it is so sure to be short that changing threads twice (25 to 55 us) would be most of its time."""
        path = self._call.path
        if b"content-encoding" in self._call.request.headers:  # its size says nothing of what it inflates to
            return False
        ref = ModelRef(path["model"], path.get("version"), path.get("label"))
        return self._registry.is_quick(ref, len(self._call.request.body))

    def run(self) -> HttpResponse:
        """Raises ServingError, Pending."""
        begun = time.perf_counter_ns()
        if self._decoded is None:
            self._decoded = self._route.decode(self._call)
        operation, _ = self._decoded
        if isinstance(operation, Deferred):
            self._decoded = settled(operation, self._registry)
            operation, _ = self._decoded
        if isinstance(operation, Infer):
            return self._infer(operation, begun)
        if isinstance(operation, Explain):
            result = execute(operation, self._registry)
            return compressed(self.phrase(result), self._call.request, self._compress_from)
        return self.phrase(execute(operation, self._registry))

    def phrase(self, result: Any) -> HttpResponse:
        if self._decoded is None:
            raise AssertionError
        return self._decoded[1](result)

    def _infer(self, operation: Infer, begun: int) -> HttpResponse:
        request = self._call.request

        def sent(result: Any) -> HttpResponse:
            # Nothing but inference is compressed, as in Triton: tritonclient's asyncio client asks for gzip everywhere,
            # and decodes it here alone.
            return compressed(self.phrase(result), request, self._compress_from)

        return counted(self._registry, operation, sent, len(request.body), (self._started, begun))


def counted(
    registry: Registry, operation: Infer, sent: Callable[[Any], Sent], size: int, times: tuple[int, int]
) -> Sent:
    """An inference and its answer, in the model's statistics.

    `size`: of the request's body. `times`: when it came, and when it left the queue, on time.perf_counter_ns.
    """
    decoded = time.perf_counter_ns()
    came, begun = times
    queued = begun - came
    try:
        result = execute(operation, registry)
        inferred = time.perf_counter_ns()
        answer = sent(result)
    except ServingError:
        registry.record(operation.ref, (queued, time.perf_counter_ns() - begun), size, success=False)
        raise
    durations = (queued, decoded - begun, inferred - decoded, time.perf_counter_ns() - inferred)
    registry.record(operation.ref, durations, size, success=True)
    return answer


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
