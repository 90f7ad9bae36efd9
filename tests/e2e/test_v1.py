"""The requests reach /v1 through Lambda's runtime, and through SAM's local gateway by curl."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.e2e import rie
from tests.e2e.tools import run
from tests.e2e.v1 import EXCHANGES, SESSION, Exchange

Ask = Callable[[Exchange], tuple[int, Any]]
FORM = "application/x-www-form-urlencoded"


def through_runtime(instance: rie.Rie, exchange: Exchange) -> tuple[int, Any]:
    """Make the request as a REST API hands over what curl sends."""
    path = f"/v1/models/{exchange.path}"
    if exchange.text is None:
        return instance.http("GET", path)
    return instance.http("POST", path, exchange.text, Content_Type=FORM)


def through_gateway(api: str, exchange: Exchange) -> tuple[int, Any]:
    """Return what curl prints."""
    data = () if exchange.text is None else ("-d", exchange.text)
    url = f"http://{api}/v1/models/{exchange.path}"
    body, _, status = run("curl", "-sS", *data, "-w", "\n%{http_code}", url).rpartition("\n")
    return int(status), json.loads(body)


@pytest.fixture(params=["runtime", "gateway"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Offer both ways to an instance that all tests share."""
    if request.param == "runtime":
        return partial(through_runtime, request.getfixturevalue("warm"))
    return partial(through_gateway, request.getfixturevalue("api"))


def test_the_session_of_tf_servings_page_is_answered(ask: Ask) -> None:
    """It has predict, regress, the mistake, and the status in TF Serving's form and in the form for both protocols."""
    for exchange in SESSION:
        assert ask(exchange) == (exchange.status, exchange.answer)


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=list(EXCHANGES))
def test_paths_and_values_arrive_as_they_were_sent(ask: Ask, exchange: Exchange) -> None:
    """The cases are colons and %3A, versions and labels, bytes in base64, infinities, and refusals of anything else."""
    assert ask(exchange) == (exchange.status, exchange.answer)


@pytest.mark.parametrize(("place", "version"), [("versions/2", "2"), ("labels/stable", "1")])
def test_status_and_metadata_are_those_of_the_version_that_the_path_names(ask: Ask, place: str, version: str) -> None:
    """The path names it by its number or its label."""
    _, status = ask(Exchange(f"labelled/{place}", None, None))
    assert [entry["version"] for entry in status["model_version_status"]] == [version]
    _, metadata = ask(Exchange(f"labelled/{place}/metadata", None, None))
    assert metadata["model_spec"] == {"name": "labelled", "signature_name": "", "version": version}


def test_an_unknown_label_has_no_status(ask: Ask) -> None:
    """TF Serving would list every version instead."""
    told = {"error": "Unrecognized servable version label: nightly"}
    assert ask(Exchange("labelled/labels/nightly", None, None)) == (400, told)


def test_a_cold_instance_tells_its_state_and_loads_with_the_first_prediction(cold: rie.Rie) -> None:
    """A status never loads: it is 503 with version and state for KServe's clients, and 200 for TF Serving's."""
    started = {"version": "123", "state": "START", "status": {"error_code": "OK", "error_message": ""}}
    wanted = {"name": "half_plus_three", "ready": False, "model_version_status": [started]}
    assert cold.http("GET", "/v1/models/half_plus_three") == (503, wanted)
    assert cold.http("GET", "/v1/models/half_plus_three/versions/123") == (200, {"model_version_status": [started]})
    assert through_runtime(cold, SESSION[0]) == (200, SESSION[0].answer)
    assert cold.inits() == 1


def test_kserves_clients_find_the_server_and_its_models(warm: rie.Rie) -> None:
    """They find that it is alive, and the list of names."""
    assert warm.http("GET", "/") == (200, {"status": "alive"})
    assert {"half_plus_three", "iris", "labelled"} <= set(warm.http("GET", "/v1/models")[1]["models"])


def test_a_cloud_event_is_answered_with_one(warm: rie.Rie) -> None:
    """The form is structured: the prediction is the data of an event that names the model."""
    asked = {"specversion": "1.0", "id": "1", "source": "test", "type": "request", "data": {"instances": [1.0]}}
    status, event = warm.http(
        "POST", "/v1/models/half_plus_three:predict", json.dumps(asked), Content_Type="application/cloudevents+json"
    )
    assert (status, event["data"]) == (200, {"predictions": [3.5]})
    assert event["source"] == "io.kserve.inference.half_plus_three"


def test_a_prediction_is_explained_by_nothing_but_the_artifact(warm: rie.Rie) -> None:
    """A sample model's own settings ask for Shapley values: with the base value they add up to the prediction."""
    status, answer = warm.http("POST", "/v1/models/iris:explain", '{"instances": [[5.1, 3.5, 1.4, 0.2]]}')
    assert status == 200
    (explanation,) = answer["explanations"]
    total = explanation["base_value"] + sum(explanation["importance_scores"])
    assert total == pytest.approx(answer["predictions"][0][explanation["target"]])
