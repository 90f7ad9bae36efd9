"""GRPS's monitor over a server: what its tools ask for."""

from tests.support.grps_client import Http


def test_the_monitor_counts_what_the_server_answers(http: Http) -> None:
    """Once the second of an answer has ended, it is in the series; the page has every metric."""
    for _ in range(100_000):
        http.predict({"model": "text-1", "str_data": "a"}).content()
        told = http.call("GET", "monitor/series?name=*qps").json()
        if told["data"][173][1]:
            break
    assert told["label"] == "trend"
    assert len(told["data"]) == 174
    assert told["data"][173][1] >= 1
    page = http.call("GET", "monitor/metrics")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert all(f"series?name={name}" in page.body.decode() for name in ("*qps", "*latency_max(ms)", "*latency_cdf(ms)"))
    http.call("GET", "monitor/series?name=qps").refusal(400)
    http.call("GET", "monitor/series").refusal(400)
