"""Explanations: KServe's verb, and catalogue row 122."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, post, read
from tests.support.zoo.v1 import WEIGHTS

if TYPE_CHECKING:
    from tests.support.wire import Wire

X = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-1.0, 0.5, 4.0]]
Y = [sum(weight * x for weight, x in zip(WEIGHTS, row, strict=True)) + 1.0 for row in X]


def explained(wire: Wire, target: str, document: Any) -> tuple[list[Any], list[Any]]:
    """Predictions and scores: one explanation per prediction."""
    found = read(post(wire, f"{target}:explain", document))
    assert set(found) == {"predictions", "explanations"}
    assert len(found["predictions"]) == len(found["explanations"])
    return found["predictions"], [explanation["importance_scores"] for explanation in found["explanations"]]


@pytest.mark.row("V1-122")
@pytest.mark.parametrize("document", [{"instances": [1.0]}, {"inputs": [1.0]}, {"instances": [{"x": 1.0}]}])
def test_without_an_explainer_there_is_no_explanation(wire: Wire, document: object) -> None:
    """501 that says how to have one."""
    text = refusal(post(wire, "half_plus_two:explain", document), 501)
    assert "half_plus_two" in text
    assert "explainer" in text
    alive(wire)


@pytest.mark.row("V1-122")
@pytest.mark.parametrize("place", ["", "/versions/1"])
@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_the_settings_explainer_gives_scores_per_feature(wire: Wire, place: str, key: str, blank: str) -> None:
    """Of a linear model against zeros: weight times feature, whose sum is the answer less the background's."""
    predictions, scores = explained(wire, f"linear{place}", {key: X, "x": blank})
    assert predictions == pytest.approx(Y, abs=1e-5)
    for row, found, prediction in zip(X, scores, predictions, strict=True):
        expected = [weight * x for weight, x in zip(WEIGHTS, row, strict=True)]
        assert found == pytest.approx(expected, abs=1e-4)
        assert math.isclose(sum(found), prediction - 1.0, abs_tol=1e-4)


@pytest.mark.row("V1-122")
def test_rows_may_name_the_input(wire: Wire) -> None:
    """As for predict."""
    predictions, scores = explained(wire, "linear", {"instances": [{"x": row} for row in X]})
    assert (len(predictions), len(scores)) == (3, 3)


@pytest.mark.row("V1-122")
def test_a_python_model_may_explain_itself(wire: Wire) -> None:
    """With its own function."""
    predictions, scores = explained(wire, "py_explains", {"instances": [[1.0, 2.0], [3.0, 4.0]]})
    assert predictions == [[2.0, 4.0], [6.0, 8.0]]
    assert scores == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.row("V1-018", "V1-122")
def test_a_label_may_be_explained(wire: Wire) -> None:
    """The route is there as for predict: its version has no explainer."""
    refusal(post(wire, "labelled/labels/stable:explain", {"instances": [0]}), 501)
    refusal(post(wire, "labelled/labels/canary:explain", {"instances": [0]}), 400)


@pytest.mark.row("V1-016", "V1-021")
@pytest.mark.parametrize(
    ("target", "status"), [("half", 404), ("linear/versions/9", 404), ("broken_onnx", 503), ("linear/labels/x", 400)]
)
def test_a_model_that_cannot_answer_cannot_explain(wire: Wire, target: str, status: int) -> None:
    """As for predict."""
    refusal(post(wire, f"{target}:explain", {"instances": [[1.0, 2.0, 3.0]]}), status)


@pytest.mark.row("V1-115")
@pytest.mark.parametrize(
    "document",
    [
        b"", b"{", b"[]", {}, {"instances": []}, {"instances": 1}, {"instances": [[1.0, 2.0]]},
        {"instances": [["a"] * 3]},
        {"instances": [[1.0, 2.0, 3.0], [1.0]]}, {"instances": [{"y": 1.0}]}, {"instances": [[1.0] * 3], "inputs": []},
        {"instances": [[1.0] * 3], "signature_name": 5}, {"instances": [[1.0] * 3], "signature_name": "nope"},
    ],
)  # fmt: skip
def test_what_predict_refuses_explain_refuses(wire: Wire, document: object) -> None:
    """400, with the same text."""
    text = refusal(post(wire, "linear:explain", document), 400)
    assert text == refusal(post(wire, "linear:predict", document), 400)
    alive(wire)
