"""Every bad request of every protocol is sent once, and its refusal keeps all promises about errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from tests.protocols.v1.refused import REFUSED as REFUSED_BY_V1
from tests.protocols.v2.bad_binaries import BAD_BINARIES
from tests.protocols.v2.bad_requests import BAD_REQUESTS
from tests.protocols.v2.refused import REFUSED as REFUSED_BY_V2
from tests.support.checks import Bad, alive, keeps_every_promise, refusal

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.wire import Wire

REFUSED = [*BAD_REQUESTS, *BAD_BINARIES, *REFUSED_BY_V2, *REFUSED_BY_V1]


@pytest.mark.parametrize("bad", REFUSED)
def test_a_bad_request_is_refused_in_the_protocols_form(wire: Wire, bad: Bad) -> None:
    """The status is right, the text names the culprit and shows no internals, and the server calculates on."""
    keeps_every_promise(wire, bad)
    alive(wire)


@pytest.mark.row("R-206")
def test_all_bad_requests_in_a_row_leave_the_server_alive(wire: Wire, server: Server) -> None:
    """One connection carries every bad inference, with the right answer after each."""
    for bad in (case.values[0] for case in (*BAD_REQUESTS, *BAD_BINARIES)):
        assert wire.call(bad.method, bad.target, bad.body, bad.headers).status >= HTTPStatus.BAD_REQUEST
        alive(wire)
    assert server.runs()


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v2/models/add_sub/infer", "/v2/repository/index", "/v2/models/add_sub"])
def test_a_bad_body_where_none_belongs_is_harmless(wire: Wire, verb: str, path: str) -> None:
    """The answer is the protocol's, whatever the method."""
    answer = wire.call(verb, path, b"\xff" * 1000, {"Content-Encoding": "nonsense", "Content-Type": "x"})
    if answer.status >= HTTPStatus.BAD_REQUEST:
        refusal(answer)
    alive(wire)
