"""How many requests, how many failed and how long they took, as pydantic models: of a version, a protocol, a span."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from handler.lifecycle.traffic.recent import SPAN, AnswerCount, Figures, Lapse, figures

TIMES: Final = ("p50", "p95", "p99")
PROTOCOLS: Final = {
    "": "Steps of pipelines",
    "v1": "V1",
    "v2": "V2",
    "openai": "OpenAI",
    "grps": "GRPS",
    "platform": "Platform",
    "custom": "The model's own route",
    "explain": "Explanations",
    "connect": "Connect",
    "grpc-web": "gRPC-Web",
    "grpc": "gRPC",
}
"""What is counted apart, as people write it: the protocols of inferences, and questions that are not inferences."""

APART: Final = ("custom", "explain")


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


def protocol_view(name: str, count: AnswerCount, spans: Sequence[tuple[int, Lapse]]) -> ProtocolView:
    return ProtocolView(
        name=PROTOCOLS.get(name, name),
        requests=sum(count.times.values()),
        failures=count.failures,
        times=times_view(count),
        spans=[span_view(ago, lapse.protocols[name]) for ago, lapse in spans if name in lapse.protocols],
    )


def span_view(ago: int, found: Figures) -> SpanView:
    times = dict(zip(TIMES, found.times, strict=False))
    return SpanView(ago=ago * SPAN, count=found.successes, failures=found.failures, **times)


def times_view(count: AnswerCount) -> TimesView:
    return TimesView(**dict(zip(TIMES, figures(count).times, strict=False)))
