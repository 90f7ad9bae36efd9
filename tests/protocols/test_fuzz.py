"""Anything sent to every protocol gets an answer of the protocol, and the next request is answered correctly."""

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.protocols.connect import fuzz as connect
from tests.protocols.grpc import fuzz as grpc
from tests.protocols.grps import fuzz as grps
from tests.protocols.v1 import fuzz as v1
from tests.protocols.v2 import fuzz as v2
from tests.support.asgi import Local
from tests.support.connect_client import Caller
from tests.support.grps_client import split
from tests.support.remote import Remote, alive
from tests.support.server import HOST, Server
from tests.support.strategies import DEPTHS

PROTOCOLS = {"v2": v2, "v1": v1, "grps": grps, "grpc": grpc, "connect": connect}
OVER_HTTP = {"v2": v2, "v1": v1, "grps": grps}


@pytest.fixture(scope="module")
def targets(local: Local, server: Server) -> Iterator[dict[str, Any]]:
    """The application in process for HTTP's protocols, and a connection for each of the others."""
    with closing(Remote(server.rpc_netloc)) as remote, closing(Caller(server.netloc)) as caller:
        yield {**dict.fromkeys(OVER_HTTP, local), "grpc": remote, "connect": caller}


@pytest.mark.parametrize(("protocol", "attack"), [(name, each) for name, m in PROTOCOLS.items() for each in m.ATTACKS])
def test_anything_is_answered_in_the_protocol(targets: dict[str, Any], protocol: str, attack: str) -> None:
    """Every example has an answer or a refusal in the protocol's form, and leaves the server calculating."""
    examples, strike = PROTOCOLS[protocol].ATTACKS[attack]

    @settings(suppress_health_check=list(HealthCheck))
    @given(examples)
    def holds(example: tuple[Any, ...]) -> None:
        strike(targets[protocol], *example)

    holds()


@pytest.mark.row("V1-033")
@pytest.mark.parametrize(("protocol", "form"), [(name, form) for name, each in OVER_HTTP.items() for form in each.DEEP])
@pytest.mark.parametrize("depth", DEPTHS)
def test_any_depth_of_nesting_is_refused(local: Local, protocol: str, form: str, depth: int) -> None:
    """No recursion ends the process."""
    module = OVER_HTTP[protocol]
    module.dive(local, module.DEEP[form](depth), depth)


def test_a_connection_that_is_no_grpc_ends_and_hurts_nobody(server: Server, remote: Remote) -> None:
    """HTTP/1.1, noise and a truncated preface leave the server calculating."""
    for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n"):
        with socket.create_connection((HOST, server.rpc_port), 10) as plain:
            plain.sendall(noise)
            with suppress(OSError):  # the server may have ended it already
                plain.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while plain.recv(4096):
                    pass
    alive(remote)


def test_documents_of_a_stream_are_split_where_they_end() -> None:
    """The oracle of other tests finds the end of each document."""
    assert split(b'{"a": "}{"}{"b": 1}') == [{"a": "}{"}, {"b": 1}]
