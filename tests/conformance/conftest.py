"""One server for all black-box tests, connections to it, and the same application in process for the fuzzers."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from handler.app import App
from handler.settings import Settings
from tests.conformance.asgi import Local
from tests.conformance.server import Server, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.wire import Wire


COLLECTED = pytest.StashKey[Counter[str]]()
FILES = pytest.StashKey[set[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note, before anything is deselected, how many cases every row has and in which files they are."""
    marks = [mark for item in items for mark in item.iter_markers("row")]
    config.stash[COLLECTED] = Counter(row for mark in marks for row in mark.args)
    config.stash[FILES] = {item.path.name for item in items if item.path.parent == Path(__file__).parent}


@pytest.fixture(scope="session")
def server(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the zoo, which must outlive every test."""
    log = tmp_path_factory.mktemp("server") / "log"
    # Readiness is everybody's here: no client may set it offline.
    with serve(log, REPOSITORY=str(zoo), ALLOW_CODE="true", GRPS_HEALTH_CONTROL="off") as running:
        yield running
        assert running.runs(), log.read_text(errors="replace")[-4000:]


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A connection of this test's own."""
    with server.wire() as connection:
        yield connection
    assert server.runs()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a further server with settings of its own; it ends with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serve(tmp_path / "server.log", **settings))


@pytest.fixture(scope="session")
def local(zoo: Path) -> Iterator[Local]:
    """The application of the zoo in this process."""
    environ = {"DRAGOMAN_REPOSITORY": str(zoo), "DRAGOMAN_ALLOW_CODE": "true", "DRAGOMAN_GRPS_HEALTH_CONTROL": "off"}
    app = App(Settings.from_env(environ))
    client = Local(app)
    yield client
    client.close()
    app.close()
