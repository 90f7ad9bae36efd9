"""A server of V1's models for this folder, in place of V2's, and the same application in process with any settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from handler.edge.app import App
from handler.settings import Settings
from tests import zoo_v1
from tests.conformance.asgi import Local
from tests.conformance.server import Server, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `tests.zoo_v1`, made once per session."""
    return zoo_v1.build(tmp_path_factory.mktemp("zoo_v1"))


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of those models, with no setting of the protocols; it must outlive every test."""
    log = tmp_path_factory.mktemp("server_v1") / "log"
    with serve(log, REPOSITORY=str(repository), ALLOW_CODE="true") as running:
        yield running
        assert running.runs(), log.read_text(errors="replace")[-4000:]


def application(repository: Path, **settings: str) -> Local:
    """The application in this process."""
    variables = {"REPOSITORY": str(repository), "ALLOW_CODE": "true", **settings}
    return Local(App(Settings.from_env({f"DRAGOMAN_{name}": value for name, value in variables.items()})))


@pytest.fixture(scope="session")
def local(repository: Path) -> Iterator[Local]:
    """The application with no setting of the protocols."""
    client = application(repository)
    yield client
    client.close()
    client.app.close()


@pytest.fixture
def local_with(repository: Path) -> Iterator[Callable[..., Local]]:
    """Make further applications with settings of their own; they end with the test."""
    made: list[Local] = []

    def make(**settings: str) -> Local:
        made.append(application(repository, **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()
        client.app.close()
