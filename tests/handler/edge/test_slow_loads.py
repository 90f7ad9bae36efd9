"""handler.aws and lifecycle: a load that takes longer than one invocation."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from core.deadline import within
from core.errors import StillLoading
from core.operations import State
from handler.aws import Function
from handler.lifecycle.single_flight import Background
from tests.handler.calling import context, http, infer
from tests.handler.lifecycle.samples import PATIENT


@pytest.fixture
def function(slow: list[Any]) -> Iterator[Function]:
    """An instance without a loaded model."""
    made = Function()
    yield made
    made.close()


def test_a_load_longer_than_the_timeout_ends_over_several_invocations(function: Function, slow: list[Any]) -> None:
    """Each refusal shows how far the load is, and the next invocation goes on at once."""
    told = []
    for _ in range(2):
        answer = function(infer(), context(3))
        assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
        assert "fetch;dur=" in answer["headers"]["server-timing"]
        told.append(json.loads(answer["body"])["error"])
    assert told == [f"model 'half_plus_three' is {done} of 300 MB loaded: try again" for done in (120, 240)]
    assert [progress.deadline.is_never for progress in slow] == [False, False]
    version = function.app.registry.known()[0]  # type: ignore[union-attr]
    assert (version.state, version.reason) == (State.LOADING, told[-1])
    assert function(infer(), context(3))["statusCode"] == 200
    assert function(infer(), context(3))["statusCode"] == 200


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_request_that_waits_in_vain_leaves_its_wait_in_the_log_and_the_metrics(
    slow: list[Any], form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The alarm about waits for models adds up those of refused requests, too: a load may never end."""
    for name, value in (("METRICS", "emf"), ("LOG_FORMAT", form)):
        monkeypatch.setenv(f"DRAGOMAN_{name}", value)
    with closing(Function()) as function:
        assert function(infer(), context(3))["statusCode"] == 503
        assert function.app is not None
        assert function.app.observer.counts.cold == 1
    assert len(slow) == 1
    written = capsys.readouterr()
    waits = r" fetch=[\d.]+ load=0\.000 in=" if form == "text" else r'"fetch_ms":[\d.]+,"load_ms":0.0,"reason"'
    assert re.search(waits, written.err)
    found = json.loads(written.out)
    assert (found["status"], found["FetchDuration"] > 0, found["LoadDuration"]) == ("503", True, 0)
    assert {"FetchDuration", "LoadDuration"} <= {
        each["Name"] for each in found["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    }
    assert "InferDuration" not in found


@pytest.mark.parametrize(("path", "body"), [
    ("/v2/models/half_plus_three/infer", infer()["body"]),
    ("/v1/models/half_plus_three:predict", '{"instances": [1.0]}'),
])  # fmt: skip
def test_the_protocol_says_it_in_its_own_shape(function: Function, path: str, body: str) -> None:
    """The refusal is 503 with Retry-After."""
    answer = function(http("POST", path, body), context(3))
    assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
    assert json.loads(answer["body"]) == {"error": "model 'half_plus_three' is 120 of 300 MB loaded: try again"}


def test_an_event_about_an_object_moves_a_load_on_as_well(function: Function) -> None:
    """The event counts as one of the invocations that the load takes."""
    app = function.app
    assert app is not None
    waiting = Background(within(3))
    with pytest.raises(StillLoading, match="120 of 300 MB"):
        app.registry.load("half_plus_three", waiting)
    assert function(infer(), context(3))["statusCode"] == 503
    assert function(infer(), context(3))["statusCode"] == 200


def test_what_an_event_has_loaded_no_request_has_waited_for(function: Function) -> None:
    """The next request's Server-Timing does not include the load."""
    app = function.app
    assert app is not None
    app.registry.load("half_plus_three", PATIENT)
    answer = function(infer(), context(3))
    assert "infer;dur=" in answer["headers"]["server-timing"]
    assert "fetch;dur=" not in answer["headers"]["server-timing"]


def test_what_the_init_phase_cannot_end_is_left_to_the_first_request(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model continues where the init phase stopped, and models after the deadline are not begun."""
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "half_plus_three,iris")
    function = Function()
    assert [progress.deadline.is_never for progress in slow] == [False, False]
    app = function.app
    assert app is not None
    function.close()
    slow.clear()
    late = Function(began=time.monotonic() - 60)
    assert slow == []
    assert late(http("GET", "/v2/health/live"), context(3))["statusCode"] == 200
    late.close()


@pytest.mark.parametrize("kind", ["provisioned-concurrency", "snap-start"])
def test_what_starts_before_any_request_has_no_deadline(
    kind: str, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All models that the settings name are loaded."""
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", kind)
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "half_plus_three,iris")
    monkeypatch.setattr("handler.edge.snapshots.HOOKS", "no_such_module")
    function = Function(began=time.monotonic() - 60)
    assert [progress.deadline.is_never for progress in slow] == [True, True]
    assert function(infer(), context(3))["statusCode"] == 200
    function.close()
