"""The generate extension has plain members in and out, and server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import refusal

if TYPE_CHECKING:
    from tests.support.wire import Wire

pytestmark = pytest.mark.row("N-06")


@pytest.mark.parametrize("version", ["", "/versions/1"])
@pytest.mark.parametrize(
    ("body", "members"),
    [
        ({"x": [1.5]}, {"x": 1.5, "parameters": "{}"}),
        ({"x": 1, "id": "7", "temperature": 0.5}, {"id": "7", "x": 1.0, "parameters": '{"temperature": 0.5}'}),
        (
            {"x": [1, 2], "parameters": {"a": True, "triton_enable_empty_final_response": True}},
            {"x": [1.0, 2.0], "parameters": '{"a": true}'},
        ),
    ],
)
def test_members_are_inputs_and_parameters(wire: Wire, version: str, body: Any, members: Any) -> None:
    """The answer has the outputs as members."""
    answer = wire.post(f"/v2/models/py_echo_parameters{version}/generate", body)
    expected = {"model_name": "py_echo_parameters", "model_version": "1", **members}
    assert (answer.status, answer.json(), answer.headers["model-version"]) == (200, expected, "1")


def test_a_stream_has_an_event_for_each_answer(wire: Wire) -> None:
    """A model with one answer makes one event."""
    for model, body, texts in (("stream", {"n": "3"}, ["0", "1", "2"]), ("text", {"INPUT0": "a"}, ["a"])):
        answer = wire.post(f"/v2/models/{model}/generate_stream", body)
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, end = answer.body.decode().split("\n\n")
        found = [json.loads(event.removeprefix("data: ")) for event in events]
        assert [list(event.values())[-1] for event in found] == texts
        assert end == ""


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_a_refusal_is_that_of_the_protocol(wire: Wire, route: str) -> None:
    """Its status comes before any event."""
    assert "nobody" in refusal(wire.post(f"/v2/models/nobody/{route}", {}), 404)
    assert "'x'" in refusal(wire.post(f"/v2/models/py_echo_parameters/{route}", {"x": "a"}), 400)
    assert "the body is 1" in refusal(wire.post(f"/v2/models/py_echo_parameters/{route}", 1), 400)
    assert "'x' is ragged" in refusal(wire.post(f"/v2/models/py_echo_parameters/{route}", {"x": [[1], [2, 3]]}), 400)
    assert "missing" in refusal(wire.post(f"/v2/models/py_echo_parameters/{route}", {}), 400)
