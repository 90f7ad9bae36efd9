"""core.dialects.grps.monitor: the points of each metric, and the page."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from core.dialects import GRPS
from core.dialects.grps.monitor import CDF, NAMES, PERCENT
from core.errors import InvalidInput
from core.operations import ServerSeries
from core.router import Router
from core.statistics import Series, Span
from core.wire import Call, HttpRequest, Right, Waits

SIZES = [86_400] * 30 + [3_600] * 24 + [60] * 60 + [1] * 60
EMPTY = tuple(map(Span, SIZES))
BUSY = (*EMPTY[:113], Span(60, 30, 3, 90_000_000, 8_000_000), *EMPTY[114:-1], Span(1, 4, 1, 6_000_000, 3_500_000))
ROUTER = Router(GRPS)


def asked(path: str, query: bytes = b"") -> Any:
    """The function that phrases the series."""
    route, values = ROUTER.find("GET", f"/grps/v1/monitor/{path}")
    assert (route.right, route.waits) == (Right.READ, Waits.STORE)
    operation, reply = route.decode(Call(HttpRequest("GET", f"/grps/v1/monitor/{path}", query=query), values))
    assert operation == ServerSeries()
    return reply


def series(query: bytes, told: Series) -> dict[str, Any]:
    """What a client reads."""
    response: Any = asked("series", query)(told)
    assert (response.status, response.headers) == (200, ((b"content-type", b"application/json"),))
    found: dict[str, Any] = json.loads(b"".join(response.parts))
    return found


@pytest.mark.parametrize(("query", "minute", "second"), [
    (b"name=*qps", 0.5, 4), (b"name=%2Aqps&x=1", 0.5, 4), (b"name=*fail_rate(%)", 10, 25),
    (b"name=*fail_rate(%25)", 10, 25), (b"name=*latency_avg(ms)", 3, 1.5), (b"name=*latency_max(ms)", 8, 3.5),
])  # fmt: skip
def test_a_trend_has_a_point_for_each_span(query: bytes, minute: float, second: float) -> None:
    """GRPS's page asks without encoding the name; a span without inferences is 0."""
    told = series(query, Series(BUSY))
    assert told["label"] == "trend"
    assert [x for x, _ in told["data"]] == list(range(174))
    assert {x: y for x, y in told["data"] if y} == {113: minute, 173: second}


def test_a_cdf_has_the_times_that_parts_of_the_inferences_took() -> None:
    """In milliseconds, of the last second; zeros without inferences."""
    times = tuple((number * 1_000_000, 10) for number in range(1, 1_001))
    told = series(b"name=*latency_cdf(ms)", Series(EMPTY, times))
    assert (told["label"], [x for x, _ in told["data"]]) == ("cdf", list(PERCENT))
    expected = [*range(100, 1000, 100), *range(910, 1000, 10), 999, 1000]
    assert [y for _, y in told["data"]] == expected
    assert {y for _, y in series(b"name=*latency_cdf(ms)", Series(EMPTY))["data"]} == {0}


@pytest.mark.parametrize("query", [b"", b"name=", b"name=qps", b"name=*qps&name=*qps", b"x=*qps", b"name=\xff"])
def test_an_unknown_metric_is_refused_with_the_known_ones(query: bytes) -> None:
    """One has to be named."""
    with pytest.raises(InvalidInput, match=re.escape(f"expected one of {', '.join(NAMES)}")):
        asked("series", query)


@pytest.mark.parametrize("spans", [EMPTY, BUSY], ids=["empty", "busy"])
def test_the_page_shows_every_metric_with_a_line_of_its_points(spans: tuple[Span, ...]) -> None:
    """Its links lead to the series; it runs no script."""
    response: Any = asked("metrics")(Series(spans))
    assert dict(response.headers)[b"content-type"] == b"text/html; charset=utf-8"
    links, lines = [], []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag != "script"
            if tag == "a":
                links.append(str(dict(attributes)["href"]))
            if tag == "polyline":
                lines.append(str(dict(attributes)["points"]).split())

    Page().feed(b"".join(response.parts).decode())
    assert [series(link.partition("?")[2].encode(), Series(spans))["label"] for link in links] == ["trend"] * 4 + [
        "cdf"
    ]
    assert [len(line) for line in lines] == [174] * 4 + [len(PERCENT)]
    assert NAMES[-1] == CDF
