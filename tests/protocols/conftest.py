"""One server of all models and protocols for the session, connections to it, and the same application in process."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.support import connect_client, grps_client
from tests.support import remote as grpc_client
from tests.support.asgi import Local, application
from tests.support.catalogue import note
from tests.support.server import HOST, Server, serve_rpc
from tests.support.triton import process
from tests.support.wire import Wire
from tests.support.zoo import grps, v1

# All tests share readiness here: no client may set it offline.
SETTINGS = {"ALLOW_CODE": "true", "GRPS_HEALTH_CONTROL": "off"}


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, object, object]:
    """Notes the cases of every test of a module that is read; only later are some of them chosen to run."""
    made = yield
    note(collector.config, made if isinstance(made, list) else [])
    return made


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the models of all protocols, made once per session. Tests only read it."""
    return grps.build(v1.build(tmp_path_factory.mktemp("zoo")))


@pytest.fixture(scope="session")
def server(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the zoo over HTTP and gRPC, which must outlive every test."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serve_rpc(log, REPOSITORY=str(zoo), **SETTINGS) as running:
        yield running
        assert running.runs(), log.read_text(errors="replace")[-4000:]


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A separate connection for each test."""
    with server.wire() as connection:
        yield connection
    assert server.runs()


@pytest.fixture
def remote(server: Server) -> Iterator[grpc_client.Remote]:
    """A separate gRPC connection for each test, over which the server still calculates afterwards."""
    connection = grpc_client.Remote(server.rpc_netloc)
    yield connection
    grpc_client.alive(connection)
    connection.close()


@pytest.fixture
def caller(server: Server) -> Iterator[connect_client.Caller]:
    """A separate connection for Connect, over which the server still calculates afterwards."""
    connection = connect_client.Caller(server.netloc)
    yield connection
    connect_client.alive(connection)
    connection.close()


@pytest.fixture
def http(server: Server) -> Iterator[grps_client.Http]:
    """A separate connection for GRPS, over which the server still calculates afterwards."""
    with grps_client.Http(HOST, server.port) as connection:
        yield connection
    with grps_client.Http(HOST, server.port) as connection:
        grps_client.alive(connection)


@pytest.fixture
def rpc(server: Server) -> Iterator[grps_client.Rpc]:
    """A separate connection for GRPS over gRPC, over which the server still calculates afterwards."""
    with grps_client.Rpc(server.rpc_netloc) as connection:
        yield connection
        assert connection.ask("Predict", model="text-1", str_data="alive").str_data == "alive"


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """The process of tritonclient.grpc."""
    with process() as pool:
        yield pool


@pytest.fixture(scope="session")
def local(zoo: Path) -> Iterator[Local]:
    """The application of the zoo in this process."""
    client = Local(application(zoo, **SETTINGS))
    yield client
    client.close()


@pytest.fixture
def local_with(zoo: Path) -> Iterator[Callable[..., Local]]:
    """Makes further applications with other settings; they end with the test."""
    made: list[Local] = []

    def make(**settings: str) -> Local:
        made.append(Local(application(zoo, **SETTINGS, **settings)))
        return made[-1]

    yield make
    for client in made:
        client.close()
