"""One request of a protocol, run in one thread from decoding to phrasing, timed and counted."""

import time
from typing import Any

from core import compression
from core.engine import execute, settled
from core.errors import ServingError
from core.operations import Deferred, Explain, Infer, ModelRef
from core.wire import Call, Header, HttpRequest, HttpResponse, Reply, Route
from handler.registry import Registry


class Job:
    """One request, run in one thread from decoding to encoding; run again if it had to wait for a model."""

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
        decoded = time.perf_counter_ns()
        queued = begun - self._started
        size = len(self._call.request.body)
        try:
            result = execute(operation, self._registry)
            inferred = time.perf_counter_ns()
            # Nothing but inference is compressed, as in Triton: tritonclient's asyncio client asks for gzip everywhere,
            # and decodes it here alone.
            response = compressed(self.phrase(result), self._call.request, self._compress_from)
        except ServingError:
            self._registry.record(operation.ref, (queued, time.perf_counter_ns() - begun), size, success=False)
            raise
        durations = (queued, decoded - begun, inferred - decoded, time.perf_counter_ns() - inferred)
        self._registry.record(operation.ref, durations, size, success=True)
        return response


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
