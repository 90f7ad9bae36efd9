"""Catalogue row 126: CloudEvents are accepted in both modes of their HTTP binding, and answered in the same mode."""

import json
from datetime import datetime
from typing import Any

import pytest
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent, from_http

from tests.support.v1_client import post, predict
from tests.support.wire import Answer, Wire

DATA = {"instances": [1.0, 2.0, 5.0]}
ANSWER = {"predictions": [2.5, 3.0, 4.5]}
ATTRIBUTES = {
    "id": "36077800-0c23-4f38-a0b4-01f4369f670a",
    "source": "https://example.com/event-producer",
    "type": "com.example.sampletype1",
}
BINARY = {f"ce-{name}": value for name, value in {**ATTRIBUTES, "specversion": "1.0"}.items()}
STRUCTURED = {"Content-Type": "application/cloudevents+json"}


def event(data: Any = DATA, **attributes: str) -> CloudEvent:
    """Returns a request as a client of the CloudEvents SDK makes it."""
    return CloudEvent({**ATTRIBUTES, "datacontenttype": "application/json", **attributes}, data)


def check(answered: Answer, model: str = "half_plus_two") -> CloudEvent:
    """Checks what both modes' answers have in common, read by the SDK."""
    assert answered.status == 200, answered.content
    found = from_http(dict(answered.headers), answered.content)
    assert found["specversion"] == "1.0"
    assert found["source"] == f"io.kserve.inference.{model}"
    assert found["type"] == "io.kserve.inference.response"
    assert found["id"]
    assert datetime.fromisoformat(found["time"]).tzinfo is not None
    return found


@pytest.mark.row("V1-126")
def test_a_binary_event_is_answered_by_a_binary_event(wire: Wire) -> None:
    """Its attributes are in headers, and the body is the prediction."""
    headers, body = to_binary(event())
    answer = predict(wire, "half_plus_two", body, headers)
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.content) == ANSWER
    assert {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"} <= set(answer.headers)
    assert check(answer).data == ANSWER


@pytest.mark.row("V1-126")
def test_a_structured_event_is_answered_by_a_structured_event(wire: Wire) -> None:
    """Attributes and data are in one JSON."""
    headers, body = to_structured(event())
    answer = predict(wire, "half_plus_two", body, headers)
    assert answer.headers["content-type"] == "application/cloudevents+json"
    assert json.loads(answer.content)["data"] == ANSWER
    assert check(answer).data == ANSWER
    assert not [name for name in answer.headers if name.startswith("ce-")]


@pytest.mark.row("V1-126")
@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
def test_a_binary_event_may_have_any_type_of_content(wire: Wire, kind: str | None) -> None:
    """Every request may have any type."""
    headers = BINARY if kind is None else {**BINARY, "Content-Type": kind}
    assert check(predict(wire, "half_plus_two", DATA, headers)).data == ANSWER


@pytest.mark.row("V1-126")
@pytest.mark.parametrize("kind", ["application/cloudevents+json; charset=utf-8", "application/CloudEvents+json"])
def test_the_structured_type_is_read_as_a_media_type(wire: Wire, kind: str) -> None:
    """It may be in any case and have parameters."""
    document = {**ATTRIBUTES, "specversion": "1.0", "data": DATA}
    answer = predict(wire, "half_plus_two", document, {"Content-Type": kind})
    assert check(answer).data == ANSWER


@pytest.mark.row("V1-126")
def test_data_may_be_base64(wire: Wire) -> None:
    """It is `data_base64` of the JSON format."""
    document = {**ATTRIBUTES, "specversion": "1.0", "data_base64": "eyJpbnN0YW5jZXMiOiBbMS4wXX0="}
    assert check(predict(wire, "half_plus_two", document, STRUCTURED)).data == {"predictions": [2.5]}


@pytest.mark.row("V1-126")
@pytest.mark.parametrize("mode", [to_binary, to_structured])
def test_explain_takes_events_too(wire: Wire, mode: Any) -> None:
    """The model's name is in the source."""
    headers, body = mode(event({"instances": [[1.0, 2.0]]}))
    found = check(post(wire, "py_explains:explain", body, headers), "py_explains")
    assert found.data["predictions"] == [[2.0, 4.0]]


@pytest.mark.row("V1-126")
def test_a_prediction_with_nan_is_an_event_all_the_same(wire: Wire) -> None:
    """The token stands bare in both modes."""
    for mode in (to_binary, to_structured):
        headers, body = mode(event())
        answer = predict(wire, "identity_fp32", body.replace(b"2.0", b"NaN"), headers)
        assert answer.status == 200
        assert b"NaN" in answer.content


@pytest.mark.row("V1-126")
def test_no_event_is_answered_without_an_event(wire: Wire) -> None:
    """A stray ce- header does not make an event."""
    answer = predict(wire, "half_plus_two", DATA, {"Content-Type": "application/json"})
    assert not [name for name in answer.headers if name.startswith("ce-")]
