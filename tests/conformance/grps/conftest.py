"""One server of GRPS's models for this folder, with HTTP and gRPC, and connections to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from handler.edge.app import App
from handler.settings import Settings
from tests.conformance.asgi import Local
from tests.conformance.grpc.remote import GrpcServer, serve
from tests.conformance.grps import models
from tests.conformance.grps.client import Http, Rpc
from tests.conformance.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `models.build`, made once per session."""
    return models.build(tmp_path_factory.mktemp("zoo_grps"))


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """The server of those models, which must outlive every test."""
    log = tmp_path_factory.mktemp("server_grps") / "log"
    with serve(log, REPOSITORY=str(repository), ALLOW_CODE="true", THREADS="2") as running:
        yield running
        assert running.runs(), log.read_text(errors="replace")[-4000:]


@pytest.fixture
def http(server: GrpcServer) -> Iterator[Http]:
    """A connection of this test's own, over which the server still calculates afterwards."""
    with Http(HOST, server.http_port) as connection:
        yield connection
    alive(server)


@pytest.fixture
def rpc(server: GrpcServer) -> Iterator[Rpc]:
    """A connection of this test's own, over which the server still calculates afterwards."""
    with Rpc(server.netloc) as connection:
        yield connection
        assert connection.ask("Predict", model="text-1", str_data="alive").str_data == "alive"


def alive(server: GrpcServer) -> None:
    """Assert that the server calculates."""
    with Http(HOST, server.http_port) as connection:
        assert connection.predict({"model": "text-1", "str_data": "alive"}).content() == {"str_data": "alive"}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., GrpcServer]]:
    """Start a further server with settings of its own; it ends with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serve(tmp_path / "server.log", **settings))


@pytest.fixture(scope="session")
def local(repository: Path) -> Iterator[Local]:
    """The application of those models in this process."""
    variables = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_ALLOW_CODE": "true"}
    client = Local(App(Settings.from_env(variables)), stays=True)
    yield client
    client.close()
    client.app.close()
