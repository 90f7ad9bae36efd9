"""V1's explanations are made by KServe's verb."""

import math
from typing import Any

import pytest

from tests.protocols.v1.refused import EXPLAINED
from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, post, read
from tests.support.wire import Wire
from tests.support.zoo.v1 import WEIGHTS

X = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-1.0, 0.5, 4.0]]
Y = [sum(weight * x for weight, x in zip(WEIGHTS, row, strict=True)) + 1.0 for row in X]


def explained(wire: Wire, target: str, document: Any) -> tuple[list[Any], list[Any]]:
    """Returns predictions and scores: one explanation per prediction."""
    found = read(post(wire, f"{target}:explain", document))
    assert set(found) == {"predictions", "explanations"}
    assert len(found["predictions"]) == len(found["explanations"])
    return found["predictions"], [explanation["importance_scores"] for explanation in found["explanations"]]


@pytest.mark.row("V1-122")
@pytest.mark.parametrize("place", ["", "/versions/1"])
@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_the_settings_explainer_gives_scores_per_feature(wire: Wire, place: str, key: str, blank: str) -> None:
    """A linear model's scores are weight times feature, and their sum is the answer less the background's."""
    predictions, scores = explained(wire, f"linear{place}", {key: X, "x": blank})
    assert predictions == pytest.approx(Y, abs=1e-5)
    for row, found, prediction in zip(X, scores, predictions, strict=True):
        expected = [weight * x for weight, x in zip(WEIGHTS, row, strict=True)]
        assert found == pytest.approx(expected, abs=1e-4)
        assert math.isclose(sum(found), prediction - 1.0, abs_tol=1e-4)


@pytest.mark.row("V1-122")
def test_rows_may_name_the_input(wire: Wire) -> None:
    """Explanations take the rows that predictions take."""
    predictions, scores = explained(wire, "linear", {"instances": [{"x": row} for row in X]})
    assert (len(predictions), len(scores)) == (3, 3)


@pytest.mark.row("V1-115")
@pytest.mark.parametrize("document", EXPLAINED)
def test_what_predict_refuses_explain_refuses(wire: Wire, document: object) -> None:
    """The status is 400, and the text is the same."""
    text = refusal(post(wire, "linear:explain", document), 400)
    assert text == refusal(post(wire, "linear:predict", document), 400)
    alive(wire)
