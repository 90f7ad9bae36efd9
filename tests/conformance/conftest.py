"""One server for all black-box tests, connections to it, and the same application in process for the fuzzers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from handler.edge.app import App
from handler.settings import Settings
from tests.conformance.asgi import Local
from tests.conformance.catalogue import note
from tests.conformance.server import Server, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from tests.conformance.wire import Wire


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, object, object]:
    """Note the cases of every test of a module that is read; only later are some of them chosen to run."""
    made = yield
    note(collector.config, made if isinstance(made, list) else [])
    return made


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
