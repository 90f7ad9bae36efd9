"""A receiver of OpenTelemetry's spans, as a collector has one: OTLP over HTTP, in protobuf."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support import web


class Collector:
    """`spans`: what has come, as OTLP's messages. `resources`: the attributes of their processes."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.posts = 0
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []

    def take(self, body: bytes) -> None:
        self.posts += 1
        if self.status == 200:
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(each.resource))
                self.spans += [span for scope in each.scope_spans for span in scope.spans]

    def roots(self) -> list[Any]:
        """The spans of requests, which are not a step of another one here."""
        own = {span.span_id for span in self.spans}
        return [span for span in self.spans if span.parent_span_id not in own]

    def children(self, root: Any) -> list[Any]:
        found = (span for span in self.spans if span.parent_span_id == root.span_id)
        return sorted(found, key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))


def attributes(owner: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in owner.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Runs a receiver beside the test."""
    collector = Collector()

    class Handler(web.Handler):
        def do_POST(self) -> None:
            collector.take(self.body())
            self.answer(collector.status)

    with web.serving(Handler) as server:
        collector.url = server.url
        yield collector
