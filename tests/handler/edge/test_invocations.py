"""handler.edge.function.deadlines: how long an invocation waits, and loads that take several invocations."""

from types import SimpleNamespace
from typing import Any

import pytest

from core.deadline import NEVER
from handler.edge.function.deadlines import GATEWAY_SECONDS, LEAST_SECONDS, deadline_of
from tests.handler.calling import context

NOW = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops both clocks."""
    monkeypatch.setattr("handler.edge.function.deadlines.time", SimpleNamespace(time=lambda: NOW))
    monkeypatch.setattr("core.deadline.time", SimpleNamespace(monotonic=lambda: 50.0))


def rest(ago: float) -> dict[str, Any]:
    """Returns an event of a REST API that received its request so many seconds ago."""
    return {"requestContext": {"requestTimeEpoch": (NOW - ago) * 1e3}}


@pytest.mark.parametrize(("event", "seconds", "limit", "expected"), [
    ({}, 3.0, None, 2.25),
    ({}, 900.0, None, 899.0),
    ({}, 900.0, 5.0, 5.0),
    ([], None, 5.0, 5.0),
    (rest(0), 900.0, None, GATEWAY_SECONDS - 1),
    (rest(9), 900.0, None, GATEWAY_SECONDS - 10),
    (rest(9), 15.0, None, 14.0),
    (rest(9), 900.0, 100.0, 91.0),
    (rest(40), 900.0, None, LEAST_SECONDS),
    (rest(10**6), 900.0, None, GATEWAY_SECONDS - 1),
    (rest(-100), 900.0, None, GATEWAY_SECONDS - 1),
    ({"requestContext": {"timeEpoch": NOW * 1e3, "domainName": "x.execute-api.e"}}, 60.0, None, 28.0),
    ({"requestContext": {"timeEpoch": 1, "domainName": "x.lambda-url.eu-west-1.on.aws"}}, 60.0, None, 59.0),
    ({"requestContext": {"elb": {}}}, 60.0, None, 59.0),
    ({"requestContext": {"requestTimeEpoch": "now"}}, 60.0, None, 59.0),
    ({"requestContext": 5}, 60.0, None, 59.0),
])  # fmt: skip
def test_a_function_waits_no_longer_than_its_timeout_and_its_gateway(
    event: Any, seconds: float | None, limit: float | None, expected: float, clock: None
) -> None:
    """A cold start is part of the gateway's time; clocks that cannot be right are ignored."""
    found = deadline_of(event, None if seconds is None else context(seconds), limit)
    assert not found.is_never
    assert found.left == pytest.approx(expected)


def test_sams_local_gateway_does_not_know_when_it_took_a_request(clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute after its start, its REST API dates each request half a minute back."""
    monkeypatch.setenv("AWS_SAM_LOCAL", "true")
    assert deadline_of(rest(40), context(900.0), None).left == pytest.approx(GATEWAY_SECONDS - 1)


def test_without_any_limit_a_function_waits_for_as_long_as_it_takes() -> None:
    """A direct invocation in a test does not have a context."""
    assert deadline_of({}, None, None) is NEVER
