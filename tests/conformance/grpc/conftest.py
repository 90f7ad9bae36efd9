"""One server with gRPC for this folder, in place of the one without, and connections to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.conformance.grpc.remote import GrpcServer, Remote, raw, serve, tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

collect_ignore = ["triton_client.py"]  # a script: importing it here would end what imports kserve


@pytest.fixture(scope="session")
def server(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """The server of the zoo, which must outlive every test."""
    log = tmp_path_factory.mktemp("server_grpc") / "log"
    with serve(log, REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="2", GRPS_HEALTH_CONTROL="off") as running:
        yield running
        assert running.runs(), log.read_text(errors="replace")[-4000:]


@pytest.fixture
def remote(server: GrpcServer) -> Iterator[Remote]:
    """A connection of this test's own, over which the server still calculates afterwards."""
    connection = Remote(server.netloc)
    yield connection
    alive(connection)
    connection.close()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., GrpcServer]]:
    """Start a further server with settings of its own; it ends with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serve(tmp_path / "server.log", **settings))


def alive(remote: Remote) -> None:
    """Assert that the server calculates."""
    left, right = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    found = tensors(remote.infer("add_sub", raw("INPUT0", "INT32", left), raw("INPUT1", "INT32", right)))
    assert np.array_equal(found["OUTPUT0"], left + right)
    assert np.array_equal(found["OUTPUT1"], left - right)
