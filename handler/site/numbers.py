"""How many inferences, how many failed and how long they took, as pydantic models: of a version, a protocol, a span."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from handler.lifecycle.traffic.recent import SPAN, AnswerCount, LapseCount, quantiles

TIMES: Final = ("p50", "p95", "p99")
SHARES: Final = (0.5, 0.95, 0.99)
PROTOCOLS: Final = {
    "": "Steps of pipelines",
    "v1": "V1",
    "v2": "V2",
    "openai": "OpenAI",
    "grps": "GRPS",
    "platform": "Platform",
    "custom": "The model's own route",
    "connect": "Connect",
    "grpc-web": "gRPC-Web",
    "grpc": "gRPC",
}
"""What the records of requests call a protocol, as people write it."""


class TimesView(BaseModel):
    """Times of successes in milliseconds, None without any."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class SpanView(TimesView):
    """Ten seconds. `ago`: seconds from their end to the end of the present ones."""

    ago: int
    count: int
    failures: int


class ProtocolView(BaseModel):
    """A version's inferences of one protocol. `name`: as people write it."""

    name: str
    requests: int
    failures: int
    times: TimesView
    spans: list[SpanView]


def protocol_view(name: str, count: AnswerCount, spans: Sequence[LapseCount]) -> ProtocolView:
    return ProtocolView(
        name=PROTOCOLS.get(name, name),
        requests=sum(count.times.values()),
        failures=count.failures,
        times=times_view(count),
        spans=[span_view(span.ago, span.protocols[name]) for span in spans if name in span.protocols],
    )


def span_view(ago: int, count: AnswerCount) -> SpanView:
    times = dict(zip(TIMES, quantiles(count.times, *SHARES), strict=False))
    return SpanView(ago=ago * SPAN, count=sum(count.times.values()), failures=count.failures, **times)


def times_view(count: AnswerCount) -> TimesView:
    return TimesView(**dict(zip(TIMES, quantiles(count.times, *SHARES), strict=False)))
