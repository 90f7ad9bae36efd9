"""Catalogue section 2: which model and version answers, and in which order a request is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import alive, get, post, predict, rows

if TYPE_CHECKING:
    from tests.support.wire import Wire

VERBS = ["predict", "classify", "regress"]


def asked(wire: Wire, target: str, verb: str) -> Any:
    """A right document for the verb."""
    document = {"instances": [0]} if verb == "predict" else {"signature_name": "s", "examples": [{"x": 0}]}
    return post(wire, f"{target}:{verb}", document)


@pytest.mark.row("V1-015")
@pytest.mark.parametrize(
    ("model", "answers"),
    [
        ("versions_latest", {"": 10, "/versions/10": 10}),
        ("versions_latest_two", {"": 10, "/versions/2": 2}),
        ("versions_specific", {"": 2, "/versions/1": 1}),
        ("versions", {"": 10, "/versions/1": 1, "/versions/2": 2}),
    ],
)
def test_without_a_version_the_highest_served_one_answers(wire: Wire, model: str, answers: dict[str, int]) -> None:
    """By default the newest alone is served; `latest`, `specific` and `all` choose others."""
    assert {place: rows(wire, model + place, [0])[0] for place in answers} == answers


@pytest.mark.row("V1-016", "V1-114")
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_model_is_not_found(wire: Wire, verb: str) -> None:
    """The specification's own text."""
    assert refusal(asked(wire, "half", verb), 404) == "Servable not found for request: Latest(half)"
    alive(wire)


@pytest.mark.row("V1-016", "V1-131")
@pytest.mark.parametrize("place", ["", "/versions/1", "/metadata", "/versions/1/metadata"])
def test_an_unknown_model_has_no_status_and_no_metadata(wire: Wire, place: str) -> None:
    """404 that names it."""
    assert "half" in refusal(get(wire, f"half{place}"), 404)


@pytest.mark.row("V1-017")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("model", "version"),
    [("labelled", 99), ("versions_latest", 1), ("versions_latest_two", 1), ("versions_specific", 10), ("half", 7)],
)
def test_an_unknown_version_is_not_found(wire: Wire, model: str, version: int, verb: str) -> None:
    """One that does not exist, or that the policy leaves out."""
    text = refusal(asked(wire, f"{model}/versions/{version}", verb), 404)
    assert text == f"Servable not found for request: Specific({model}, {version})"


@pytest.mark.row("V1-018")
@pytest.mark.parametrize("label", ["canary", "STABLE", "x%20y", "%C3%A9"])
@pytest.mark.parametrize("verb", [":predict", ":classify", ":regress", "/metadata"])
def test_an_unknown_label_is_the_clients_mistake(wire: Wire, label: str, verb: str) -> None:
    """400, on every verb and on metadata."""
    target = f"labelled/labels/{label}"
    answer = asked(wire, target, verb[1:]) if verb[0] == ":" else get(wire, target + verb)
    word = {"x%20y": "x y", "%C3%A9": "é"}.get(label, label)
    assert refusal(answer, 400) == f"Unrecognized servable version label: {word}"


@pytest.mark.row("V1-019")
@pytest.mark.parametrize("label", ["1", "10", "01"])
def test_a_label_is_never_a_number(wire: Wire, label: str) -> None:
    """Version 1 is there, a label 1 is not."""
    text = refusal(predict(wire, f"labelled/labels/{label}", {"instances": [0]}), 400)
    assert text == f"Unrecognized servable version label: {label}"


@pytest.mark.row("V1-018")
@pytest.mark.parametrize(("target", "version"), [("labelled/labels/gone", 99), ("labelled_latest/labels/old", 1)])
def test_a_label_of_a_version_that_is_not_served_is_not_found(wire: Wire, target: str, version: int) -> None:
    """The label is known, its version is not; the model's other labels go on."""
    text = refusal(predict(wire, target, {"instances": [0]}), 404)
    assert text == f"Servable not found for request: Specific({target.partition('/')[0]}, {version})"
    assert rows(wire, "labelled_latest/labels/new", [0]) == [2]


@pytest.mark.row("V1-018")
@pytest.mark.parametrize("target", ["half_plus_two/labels/stable", "unheard_of/labels/stable"])
def test_a_label_of_a_model_without_labels_is_refused(wire: Wire, target: str) -> None:
    """By the label, or by the model where there is none."""
    refusal(predict(wire, target, {"instances": [0]}), 400, 404)


UNKNOWN_FIRST: list[tuple[str, str, bytes, int, str]] = [
    ("half", "predict", b"[", 400, "JSON Parse error"),
    ("half", "predict", b'{"signature_name": 1}', 400, "'signature_name' key must be a string value."),
    ("half", "predict", b'{"signature_name": "s"}', 404, "Servable not found"),
    ("half", "predict", b"{}", 404, "Servable not found"),
    ("labelled/versions/99", "predict", b'{"instances": 5}', 404, "Servable not found"),
    ("half_plus_two", "predict", b'{"signature_name": "s"}', 400, 'Serving signature name: "s" not found'),
    ("half", "classify", b"[]", 400, "Is not object"),
    ("half", "regress", b'{"examples": [{"x": 1.0}]}', 404, "Servable not found"),
]


@pytest.mark.row("V1-020")
@pytest.mark.parametrize(("model", "verb", "body", "status", "text"), UNKNOWN_FIRST)
def test_checks_have_an_order(wire: Wire, model: str, verb: str, body: bytes, status: int, text: str) -> None:
    """The JSON, the model, the signature, the rest."""
    assert text in refusal(post(wire, f"{model}:{verb}", body), status)


@pytest.mark.row("V1-021", "V1-125")
@pytest.mark.parametrize("target", ["some_broken", "some_broken/versions/2", "some_broken/labels/bad", "broken_onnx"])
def test_a_version_that_cannot_load_is_refused_with_the_reason(wire: Wire, target: str) -> None:
    """503, and the model's other versions answer."""
    text = refusal(predict(wire, target, {"instances": [0]}), 503)
    assert target.partition("/")[0] in text
    assert rows(wire, "some_broken/versions/1", [0]) == [1]
    assert rows(wire, "some_broken/labels/good", [0]) == [1]
