"""Facts as Prometheus reads them, written by its own library, which the first scrape imports.

Counting is ours: the library's counters must exist before the first request, and cost it ten times as much. Its
multiprocess mode is about those counters, of which each process keeps a file up to date at every request. Ours are
numbers in memory, whose sums `workers` shares between processes, so that the mode is not needed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from core.wire import Header
from handler.edge.observe.facts import Facts
from handler.edge.observe.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM, SUMMARY, Family

TEXT: Final = "text/plain"
OPEN_METRICS: Final = "application/openmetrics-text"
"""The media types of the two formats, as the library's `choose_encoder` compares them."""
TOTAL: Final = "_total"
"""The end of a counter's name. OpenMetrics permits no other one, and the library writes no other one."""
UNTYPED: Final = re.compile(rb"^(# TYPE \S+) untyped$", re.MULTILINE)
"""A metric without a type: a counter of another server, without the end of a counter's name."""
WEIGHT: Final = re.compile(r"q=(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)", re.ASCII)
Samples = list[tuple[tuple[str, ...], Any]]


class FactCollector(Collector):
    """The metrics of `families`, as the library's encoders ask for them."""

    def __init__(self, facts: Facts, families: Iterable[Family]) -> None:
        self._families = families
        self._by_name: dict[str, Samples] = {}
        for (name, labels), value in sorted(facts.items()):
            self._by_name.setdefault(name, []).append((labels, value))

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            shown: dict[tuple[str, ...], Any] = {}
            for values, number in self._by_name.get(family.fact, ()):
                shows = family.shows[: len(family.labels)]
                labels = tuple(each if isinstance(each, str) else values[each] for each in shows)
                shown[labels] = _sum(shown.get(labels), number)
            yield _METRICS[family.kind](family, list(shown.items()))


def written(facts: Facts, servers: Iterable[str], accept: str = "") -> tuple[Header, bytes]:
    """Returns the Content-Type, and the metrics under the names of those servers.

    `accept`: the client's. It gets OpenMetrics if it prefers that to text, and the format has types for all names.
    """
    wanted = frozenset(servers)
    families = [family for family in FAMILIES if family.server in wanted]
    is_open = _prefers_open_metrics(accept) and all(family.kind != COUNTER or _is_total(family) for family in families)
    # The client's header is not passed on: the library fails on some versions in it, and repeats others in its answer.
    encode, content_type = choose_encoder(OPEN_METRICS if is_open else "")
    found = encode(FactCollector(facts, families))
    return (b"content-type", content_type.encode()), found if is_open else UNTYPED.sub(rb"\1 counter", found)


def _prefers_open_metrics(accept: str) -> bool:
    """Decides by the weights of both formats (RFC 9110 12.4.2), and with equal ones by their order."""
    weights: dict[str, float] = {}
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind in (TEXT, OPEN_METRICS):
            weights[kind] = max(_weight(parameters), weights.get(kind, 0.0))
    return max(weights, key=weights.__getitem__, default=TEXT) == OPEN_METRICS and weights[OPEN_METRICS] > 0


def _weight(parameters: Iterable[str]) -> float:
    """Returns the weight among the parameters of a media type, 0 for one that is not a number."""
    found = next((text for text in parameters if text.startswith("q=")), "q=1")
    return float(found[2:]) if WEIGHT.fullmatch(found) else 0.0


def _is_total(family: Family) -> bool:
    return family.name.endswith(TOTAL)


def _sum(before: Any, number: Any) -> Any:
    if before is None:
        return number
    return list(map(sum, zip(before, number, strict=True))) if isinstance(number, list) else before + number


def _scaled(family: Family, number: float) -> float:
    return number if family.scale == 1 else round(number * family.scale, 6)


def _counter(family: Family, samples: Samples) -> Metric:
    made = CounterMetricFamily if _is_total(family) else UnknownMetricFamily
    return _numbers(made(family.name, family.about, labels=family.labels), family, samples)


def _gauge(family: Family, samples: Samples) -> Metric:
    return _numbers(GaugeMetricFamily(family.name, family.about, labels=family.labels), family, samples)


def _numbers(
    metric: CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily, family: Family, samples: Samples
) -> Metric:
    for labels, number in samples:
        metric.add_metric(labels, _scaled(family, number))
    return metric


def _summary(family: Family, samples: Samples) -> Metric:
    metric = SummaryMetricFamily(family.name, family.about, labels=family.labels)
    for labels, (times, ns) in samples:
        metric.add_metric(labels, times, ns * family.scale)
    return metric


def _histogram(family: Family, samples: Samples) -> Metric:
    metric = HistogramMetricFamily(family.name, family.about, labels=family.labels)
    numbers = (float(format(end * family.scale, ".9g")) for end in (*family.ends, float("inf")))
    ends = [floatToGoString(number) for number in numbers]  # type: ignore[no-untyped-call] # the library's own form
    for labels, (*steps, ns) in samples:
        metric.add_metric(labels, list(zip(ends, accumulate(steps), strict=True)), ns * family.scale)
    return metric


_METRICS: Final[dict[str, Callable[[Family, Samples], Metric]]] = {
    COUNTER: _counter,
    GAUGE: _gauge,
    SUMMARY: _summary,
    HISTOGRAM: _histogram,
}
