"""The spans of one request, made when it has ended, of the times that were measured anyway.

Names and attributes follow OpenTelemetry's semantic conventions for HTTP, remote calls and functions. What a client has
made up becomes an attribute, bounded and escaped, and never a span's name.
"""

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from core.dialects.connect.codes import CODES
from core.errors import escaped
from handler.edge.observe.access import SHOWN
from handler.edge.observe.record import Record
from handler.edge.observe.traces.parents import parent_of
from handler.edge.observe.traces.provider import Exporting

METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
OTHER: Final = "_OTHER"
SYSTEMS: Final = {"grpc": "grpc", "grpc-web": "grpc", "connect": "connect_rpc"}
BROKEN: Final = 500
"""From this status on, the request has failed by the server's fault."""
NUMBERS: Final = {"OK": 0, "CANCELLED": 1} | {code.name.upper(): code.number for code in CODES.values()}
"""gRPC's numbers of the codes that it answers here."""
FAILED_CODES: Final = frozenset(("DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE"))
"""The codes of a server's failures (semantic conventions for gRPC)."""


class RequestSpans:
    """Makes the spans of an application's requests."""

    def __init__(self, exporting: Exporting) -> None:
        self._tracer = exporting.tracer
        self.flush = exporting.flush

    def begin(self, record: Record, headers: Mapping[str, str], route: str) -> Span:
        """Begins the span of a request that is about to end, and notes its trace in the record.

        `headers`: or gRPC's metadata, by lower-case name. `route`: the pattern of the path, "" if there is none.
        """
        span: Span = self._tracer.start_span(
            _name(record, route),
            context=parent_of(headers, os.environ),
            kind=SpanKind.SERVER,
            start_time=_wall(record.came),
        )
        context = span.get_span_context()
        if context.is_valid:
            record.trace = trace.format_trace_id(context.trace_id).encode()
        return span

    def end(self, span: Span, record: Record, timing: Any, route: str, model: tuple[str, str]) -> None:
        """Ends the span of a request that has its answer, with children for the steps that were measured."""
        if span.is_recording():
            span.set_attributes(dict(_attributes(record, route, model)))
            if _has_failed(record):
                span.set_status(StatusCode.ERROR, escaped(record.error.message[:SHOWN]) if record.error else None)
            if timing is not None:
                self._steps(span, timing)
        span.end()

    def _steps(self, span: Span, timing: Any) -> None:
        context, start = trace.set_span_in_context(span), _wall(timing.came)
        for name, ns in steps(timing):
            child: Span = self._tracer.start_span(name, context=context, start_time=start)
            if name == "infer":
                child.set_attributes({f"dragoman.step.{step.decode()}.ms": took / 1e6 for step, took in timing.steps})
            start += ns
            child.end(start)


def steps(timing: Any) -> Iterator[tuple[str, int]]:
    """Yields the steps of a request in their order, each with its nanoseconds.

    `fetch` and `load` are waits for the model. A request that was refused has no steps after them.
    """
    durations = timing.durations
    queue = durations[0] if durations is not None else timing.begun - timing.came if timing.begun else 0
    if durations is not None or timing.begun:
        yield "queue", max(0, queue - timing.wait)
    if timing.wait:
        yield "fetch", timing.wait - timing.load
        yield "load", timing.load
    if durations is not None:
        yield from zip(("decode", "infer", "encode"), durations[1:], strict=True)


def _wall(counter: int) -> int:
    """Returns nanoseconds since the epoch for a time on time.perf_counter_ns()."""
    return time.time_ns() - (time.perf_counter_ns() - counter)


def _name(record: Record, route: str) -> str:
    if record.protocol in SYSTEMS:
        return route[1:] or record.protocol
    method = record.method if record.method in METHODS else "HTTP"
    return f"{method} {route}" if route else method


def _attributes(record: Record, route: str, model: tuple[str, str]) -> Iterator[tuple[str, str | int]]:
    yield "dragoman.protocol", record.protocol
    yield "dragoman.request_id", record.request_id.decode()
    if model[0]:
        yield "dragoman.model.name", escaped(model[0][:SHOWN])
        yield "dragoman.model.version", escaped(model[1][:SHOWN])
    if record.given:
        yield "faas.invocation_id", record.given
    if record.error is not None:
        yield "error.type", record.error.fault
    yield from (_call if record.protocol in SYSTEMS else _http)(record, route)


def _call(record: Record, route: str) -> Iterator[tuple[str, str | int]]:
    yield "rpc.system", SYSTEMS[record.protocol]
    if route:
        _, service, method = route.split("/")
        yield "rpc.service", service
        yield "rpc.method", method
    if isinstance(record.status, str):
        yield "rpc.grpc.status_code", NUMBERS.get(record.status, 2)
    else:
        yield "http.response.status_code", record.status


def _http(record: Record, route: str) -> Iterator[tuple[str, str | int]]:
    is_known = record.method in METHODS
    yield "http.request.method", record.method if is_known else OTHER
    if not is_known:
        yield "http.request.method_original", escaped(record.method[:SHOWN])
    yield "url.path", escaped(record.path[:SHOWN])
    if record.notes is not None:
        yield "url.scheme", record.notes.scheme
    if route:
        yield "http.route", route
    yield "http.response.status_code", record.status
    yield "http.request.body.size", record.received
    yield "http.response.body.size", record.sent


def _has_failed(record: Record) -> bool:
    status = record.status
    if isinstance(status, str):
        return status in FAILED_CODES
    if record.protocol in SYSTEMS and record.error is not None:  # gRPC-Web answers 200, with the code in its trailers
        return record.error.fault in FAILED_CODES
    return status >= BROKEN
