"""handler.edge.elsewhere: paths that no protocol owns."""

import asyncio
import threading
from itertools import islice
from typing import Any

import pytest

from handler.edge.elsewhere import MOST_WAITING, PAGES, SCRAPES
from handler.site import pages
from tests.handler.edge.client import exchange, make


def test_the_first_look_at_a_page_does_not_stop_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are imported and made in another thread, because other requests would wait for half a second."""
    makers, create = [], pages.create

    def noted(*arguments: Any) -> Any:
        makers.append(threading.current_thread())
        return create(*arguments)

    monkeypatch.setattr(pages, "create", noted)
    app = make()

    async def at_once() -> list[int]:
        paths = ("/docs", "/nothing", "/status", "/docs")
        return [status for status, *_ in await asyncio.gather(*(exchange(app, "GET", path) for path in paths))]

    assert asyncio.run(at_once()) == [200, 404, 200, 200]
    assert len(makers) == 1, "requests that come at the same time make the pages once"
    assert makers[0] is not threading.main_thread()
    app.close()


@pytest.mark.parametrize(("path", "most", "kind"), [("/docs", PAGES, "pages"), ("/metrics", SCRAPES, "metrics")])
def test_few_pages_and_metrics_are_made_at_a_time_and_few_requests_wait_for_them(
    path: str, most: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd that asks for them does not take all threads, which health waits for, too."""
    app, may_end, running, counts = make(), threading.Event(), [0], []

    def slow(*_: Any) -> Any:
        running[0] += 1
        counts.append(running[0])
        may_end.wait(60)
        running[0] -= 1
        return "" if path == "/docs" else ((b"content-type", b"text/plain"), b"")

    monkeypatch.setattr(pages.Documentation, "content", slow)
    monkeypatch.setattr(app.observer, "scrape", slow)

    async def crowd() -> tuple[list[Any], list[Any], list[Any]]:
        asked = [asyncio.ensure_future(exchange(app, "GET", path)) for _ in range(most + MOST_WAITING + 3)]
        refused = [await each for each in islice(asyncio.as_completed(asked, timeout=60), 3)]
        others = [
            await exchange(app, *words) for words in (("GET", "/v2/health/ready"), ("GET", "/no"), ("PUT", "/docs"))
        ]
        may_end.set()
        return refused, others, await asyncio.gather(*asked)

    refused, others, answers = asyncio.run(crowd())
    for status, headers, body in refused:
        assert status == 503
        assert headers["retry-after"] == "1"
        assert body == b'{"error":"%d requests for %s wait already: try again"}' % (MOST_WAITING, kind.encode())
    assert [status for status, *_ in others] == [200, 404, 405]
    assert sorted(status for status, *_ in answers) == [200] * (most + MOST_WAITING) + [503] * 3
    assert max(counts) <= most
    app.close()


def test_a_client_that_does_not_read_its_page_keeps_no_other_one_waiting() -> None:
    """The turn ends when the page was made, and not when it was sent."""
    app = make()
    scope = {"type": "http", "method": "GET", "path": "/docs", "headers": [], "client": ("127.0.0.1", 1)}

    async def stall(_: Any) -> None:
        await asyncio.Event().wait()

    async def receive() -> Any:
        return {"type": "http.request"}

    async def stalled() -> int:
        idle = [asyncio.ensure_future(app(dict(scope), receive, stall)) for _ in range(PAGES)]
        status, *_ = await asyncio.wait_for(exchange(app, "GET", "/status"), 60)
        for each in idle:
            each.cancel()
        return status

    assert asyncio.run(stalled()) == 200
    app.close()
