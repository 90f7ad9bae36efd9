"""GRPS's monitor: the series that its tools plot, and the page that lists them.

A trend has 174 points: 30 days, 24 hours, 60 minutes and 60 seconds, the last second at the end. The points of a CDF
are 10 % to 90 %, 91 % to 99 %, and 99.9 % and 99.99 % as 100 and 101. The names are those of GRPS's own metrics.
Sources: GRPS's monitor.py, grps_handler.py (`monitor_data`) and metrics_handler.py.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import parse_qs

from core.errors import InvalidInput, shown
from core.statistics import Series, Span
from core.wire import HttpResponse, json_answer

PERCENT: Final = (*range(10, 100, 10), *range(91, 102))
PARTS: Final = {100: 0.999, 101: 0.9999}
CDF: Final = "*latency_cdf(ms)"
TRENDS: Final[dict[str, Callable[[Span], float]]] = {
    "*qps": lambda span: span.inferences / span.seconds,
    "*fail_rate(%)": lambda span: 100 * span.failures / max(1, span.inferences),
    "*latency_avg(ms)": lambda span: span.ns / max(1, span.inferences) / 1e6,
    "*latency_max(ms)": lambda span: span.most / 1e6,
}
NAMES: Final = (*TRENDS, CDF)
HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
)
WIDTH: Final = 696
HEIGHT: Final = 120
PAGE: Final = """<!DOCTYPE html><html><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>GRPS metrics</title>
<style>body{{font-family:sans-serif}}svg{{background:#fafafa}}polyline{{fill:none;stroke:#c60}}</style></head><body>
{}</body></html>
"""
METRIC: Final = """<p class="variable"><a href="series?name={query}">{name}</a> : <span>{value}</span></p>
<svg width="{width}" height="{height}"><polyline points="{points}"/></svg>
"""


def name_of(query: bytes) -> str:
    """Returns the metric that a query names. Raises InvalidInput that lists the known ones."""
    given = parse_qs(query.decode("latin-1")).get("name", [""])
    if len(given) != 1 or given[0] not in NAMES:
        raise InvalidInput(f"'name' is {shown(given[0])}; expected one of {', '.join(NAMES)}")
    return given[0]


def points(name: str, series: Series) -> list[list[float]]:
    """Returns [x, y] of a metric, rounded as GRPS rounds."""
    if name == CDF:
        return [[percent, round(_quantile(series.times, percent) / 1e6, 2)] for percent in PERCENT]
    value = TRENDS[name]
    return [[index, round(value(span), 2)] for index, span in enumerate(series.spans)]


def _quantile(times: Sequence[tuple[int, int]], percent: int) -> int:
    """Returns the nanoseconds that so many of the inferences took at most; 0 if there are none."""
    wanted = PARTS.get(percent, percent / 100) * sum(count for _, count in times)
    seen = 0
    for ns, count in times:
        seen += count
        if seen >= wanted:
            return ns
    return 0


def answer(name: str, series: Series) -> HttpResponse:
    """Returns {"label", "data"} of a metric, as GRPS's page reads it."""
    told: dict[str, Any] = {"label": "cdf" if name == CDF else "trend", "data": points(name, series)}
    return json_answer(told)


def page(series: Series) -> HttpResponse:
    """Returns the page of all metrics, each with its last value and its points as a line."""
    body = "".join(_metric(name, points(name, series)) for name in NAMES)
    return HttpResponse(200, HEADERS, (PAGE.format(body).encode(),))


def _metric(name: str, found: list[list[float]]) -> str:
    most = max(y for _, y in found) or 1
    step = WIDTH / (len(found) - 1)
    line = " ".join(f"{index * step:.0f},{HEIGHT - y / most * HEIGHT:.0f}" for index, (_, y) in enumerate(found))
    query = name.replace("%", "%25")
    return METRIC.format(
        query=escape(query), name=escape(name), value=found[-1][1], width=WIDTH, height=HEIGHT, points=line
    )
