"""Every bad request against every promise about errors."""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING

import pytest

from tests.protocols.v2.bad_binaries import BAD_BINARIES
from tests.protocols.v2.bad_requests import BAD_REQUESTS, Bad
from tests.support.checks import INTERNALS, alive, refusal

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.wire import Answer, Wire

ALL = [*BAD_REQUESTS, *BAD_BINARIES]


def cases(bad: list[Bad]) -> pytest.MarkDecorator:
    """One test per bad request."""
    return pytest.mark.parametrize("bad", bad, ids=[case.name for case in bad])


def sent(wire: Wire, bad: Bad) -> Answer:
    """The answer to it."""
    return wire.post(bad.path, bad.body, bad.headers)


def test_no_two_bad_requests_have_one_name() -> None:
    """A name in a report leads to one line."""
    assert len({case.name for case in ALL}) == len(ALL)


@pytest.mark.row("R-200", "R-208")
@cases(BAD_REQUESTS)
def test_a_bad_request_is_an_error_object(wire: Wire, bad: Bad) -> None:
    """{"error": text} as application/json, and the next request on this connection is answered right."""
    refusal(sent(wire, bad))
    alive(wire)


@pytest.mark.row("R-209", "R-208")
@cases(BAD_BINARIES)
def test_a_bad_binary_request_is_an_error_object(wire: Wire, bad: Bad) -> None:
    """The same promise for the extension."""
    refusal(sent(wire, bad))
    alive(wire)


@pytest.mark.row("R-201")
@cases(ALL)
def test_the_clients_mistake_is_400(wire: Wire, bad: Bad) -> None:
    """Not 422, not 500, not 412."""
    assert sent(wire, bad).status == http.client.BAD_REQUEST


@pytest.mark.row("R-202")
@cases([case for case in ALL if case.culprit])
def test_the_text_names_the_culprit(wire: Wire, bad: Bad) -> None:
    """The input, output, member or value that is wrong."""
    text = sent(wire, bad).json()["error"]
    assert re.search(bad.culprit, text, re.IGNORECASE | re.DOTALL), text


@pytest.mark.row("R-203")
@cases(ALL)
def test_the_text_shows_no_internals(wire: Wire, bad: Bad) -> None:
    """No traceback, no file, no class."""
    assert not INTERNALS.search(sent(wire, bad).content.decode())


@pytest.mark.row("R-201")
@cases([case for case in BAD_REQUESTS if case.body.strip()])
def test_the_length_of_a_bad_request_changes_nothing(wire: Wire, bad: Bad) -> None:
    """Readers of long texts are other code: blank space behind the JSON must not change what is wrong with it."""
    long = sent(wire, bad._replace(body=bad.body + b" " * 20_000))
    text = refusal(long, http.client.BAD_REQUEST)
    assert re.search(bad.culprit, text, re.IGNORECASE | re.DOTALL), text
    alive(wire)


@pytest.mark.row("R-206")
def test_all_bad_requests_in_a_row_leave_the_server_alive(wire: Wire, server: Server) -> None:
    """On one connection, twice, with the right answer after each."""
    for bad in ALL * 2:
        assert sent(wire, bad).status >= http.client.BAD_REQUEST
        alive(wire)
    assert server.runs()


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v2/models/add_sub/infer", "/v2/repository/index", "/v2/models/add_sub"])
def test_a_bad_body_where_none_belongs_is_harmless(wire: Wire, verb: str, path: str) -> None:
    """Whatever the method, the answer is the protocol's."""
    answer = wire.call(verb, path, b"\xff" * 1000, {"Content-Encoding": "nonsense", "Content-Type": "x"})
    if answer.status >= http.client.BAD_REQUEST:
        refusal(answer)
    alive(wire)
