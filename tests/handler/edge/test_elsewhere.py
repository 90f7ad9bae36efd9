"""handler.edge.elsewhere: paths that no protocol owns."""

import threading
from typing import Any

import pytest

from handler.site import pages
from tests.handler.edge.client import ask, make


def test_the_first_look_at_a_page_does_not_stop_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are imported and made in another thread, because other requests would wait for half a second."""
    makers, create = [], pages.create

    def noted(*arguments: Any) -> Any:
        makers.append(threading.current_thread())
        return create(*arguments)

    monkeypatch.setattr(pages, "create", noted)
    app = make()
    assert [ask(app, "GET", path)[0] for path in ("/docs", "/nothing", "/status")] == [200, 404, 200]
    assert len(makers) == 1
    assert makers[0] is not threading.main_thread()
    app.close()
