"""Catalogue section 8: the features of an example for classify and regress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, post, results

if TYPE_CHECKING:
    from tests.support.wire import Wire


def refused(wire: Wire, *examples: Any, **more: Any) -> list[str]:
    """The texts of both verbs' refusals."""
    found = []
    for verb in ("classify", "regress"):
        document = {"signature_name": verb, "examples": examples, **more}
        found.append(refusal(post(wire, f"person:{verb}", document), 400))
    alive(wire)
    return found


KINDS: list[tuple[dict[str, Any], float]] = [
    ({"weight": 1.5}, 1.5 + 3),
    ({"weight": [1.5]}, 1.5 + 3),
    ({"weight": 1e2}, 100.0 + 3),
    ({"weight": 0.0, "count": 7}, 7.0),
    ({"weight": 0.0, "count": [-7]}, -7.0),
    ({"weight": 0.0, "count": True}, 1.0),
    ({"weight": 0.0, "count": False}, 0.0),
    ({"weight": 0.0, "pair": [True, 5]}, 3.0 + 6),
    ({"weight": 0.0, "pair": [5, False]}, 3.0 + 5),
]


@pytest.mark.row("V1-095", "V1-097")
@pytest.mark.parametrize(("example", "answer"), KINDS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_feature_is_a_value_or_a_flat_list(wire: Wire, example: dict[str, Any], answer: float, blank: str) -> None:
    """Floats, integers, and booleans among integers."""
    assert results(wire, "person:regress", "regress", [example], x=blank) == [answer]


@pytest.mark.row("V1-095")
@pytest.mark.parametrize(
    ("name", "label"), [("a", "a"), (["é"], "é"), ({"b64": "aGk="}, "hi"), ([{"b64": "aGk="}], "hi"), ("", "")]
)
def test_a_feature_may_be_text_or_base64(wire: Wire, name: object, label: str) -> None:
    """As for predict."""
    found = results(wire, "person:classify", "classify_classes", [{"weight": 1.0, "name": name}])
    assert found == [[[label, 0.0]]]


@pytest.mark.row("V1-026", "V1-095")
def test_a_feature_may_be_a_bare_token(wire: Wire) -> None:
    """And so may a result."""
    body = b'{"signature_name": "regress", "examples": [{"weight": Infinity}, {"weight": -Infinity}, {"weight": NaN}]}'
    answer = post(wire, "person:regress", body)
    assert answer.content == b'{"results":[Infinity,-Infinity,NaN]}'


@pytest.mark.row("V1-095")
@pytest.mark.parametrize(
    "example",
    [{"weight": "1.0"}, {"weight": 1.0, "count": 1.5}, {"weight": 1.0, "count": "1"}, {"weight": 1.0, "name": 1}],
)
def test_a_feature_of_another_type_is_refused(wire: Wire, example: dict[str, Any]) -> None:
    """By name of the feature or its types."""
    for text in refused(wire, example):
        assert "type" in text.lower()


@pytest.mark.row("V1-096")
@pytest.mark.parametrize(
    ("value", "word"),
    [(None, "Null"), ([None], "Null"), ({"a": 1}, "Object"), ([{}], "Object"), ([[1.0]], "Array"), ([[]], "Array")],
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_feature_is_nothing_else(wire: Wire, value: object, word: str, blank: str) -> None:
    """No null, no object, no list in a list."""
    for text in refused(wire, {"weight": value}, x=blank):
        assert text.startswith("Feature: weight ")
        assert "has element with unexpected JSON type" in text
        assert word in text


@pytest.mark.row("V1-097")
@pytest.mark.parametrize(
    ("value", "kind"),
    [([1, "a"], "int64"), (["a", 1], ""), ([1.5, "a"], "float"), ([True, "a"], "int64"), (["a", 1.5], "")],
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_list_of_one_feature_has_one_kind(wire: Wire, value: object, kind: str, blank: str) -> None:
    """The first element's."""
    for text in refused(wire, {"weight": 1.0, "pair": value}, x=blank):
        assert text.startswith(f"Unexpected element type in feature: pair expecting type: {kind}")


@pytest.mark.row("V1-098")
@pytest.mark.parametrize("value", [2**63, 2**64 - 1, [2**63], -(2**63) - 1])
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_integer_beyond_int64_is_refused(wire: Wire, value: object, blank: str) -> None:
    """Exactly: int64's ends are taken."""
    refused(wire, {"weight": 1.0, "count": value}, x=blank)


@pytest.mark.row("V1-098")
def test_the_text_says_which_integers_are_possible(wire: Wire) -> None:
    """TF Serving's own."""
    for text in refused(wire, {"weight": 1.0, "count": 2**63}):
        assert "Only int64_t is supported" in text


@pytest.mark.row("V1-098")
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_ends_of_int64_are_taken(wire: Wire, value: int) -> None:
    """And calculated with."""
    (found,) = results(wire, "person:regress", "regress", [{"weight": 0.0, "count": value}])
    assert np.float32(found) == np.float32(value)


@pytest.mark.row("V1-099")
@pytest.mark.parametrize(("weight", "answer"), [(80, 83.0), ([80], 83.0), (-1, 2.0), (2**20, 2.0**20 + 3)])
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_integer_is_right_for_a_float_feature(wire: Wire, weight: object, answer: float, blank: str) -> None:
    """JavaScript prints 80.0 as 80."""
    assert results(wire, "person:regress", "regress", [{"weight": weight}], x=blank) == [answer]


@pytest.mark.row("V1-099")
def test_a_batch_may_mix_integers_and_floats_of_one_feature(wire: Wire) -> None:
    """Example by example."""
    assert results(wire, "person:regress", "regress", [{"weight": 1}, {"weight": 1.5}, {"weight": 2}]) == [
        4.0,
        4.5,
        5.0,
    ]


@pytest.mark.row("V1-100")
@pytest.mark.parametrize("example", [{}, {"weight": []}, {"count": 1}])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_feature_without_a_default_is_needed(wire: Wire, example: dict[str, Any], blank: str) -> None:
    """Missing or empty, alone and beside a right example."""
    for examples in ([example], [{"weight": 1.0}, example]):
        for text in refused(wire, *examples, x=blank):
            assert text.startswith("Feature: weight (data type: float) is required but could not be found")


@pytest.mark.row("V1-100")
@pytest.mark.parametrize("count", [{}, {"count": []}])
def test_a_feature_with_a_default_may_be_missing_or_empty(wire: Wire, count: dict[str, Any]) -> None:
    """In one example and not in the next."""
    examples = [{"weight": 1.0, **count}, {"weight": 1.0, "count": 1}]
    assert results(wire, "person:regress", "regress", examples) == [4.0, 2.0]


@pytest.mark.row("V1-101")
@pytest.mark.parametrize("value", [1, "a", [1.5, 2.5], {"b64": "AA=="}])
def test_unknown_features_are_ignored(wire: Wire, value: object) -> None:
    """Of any kind."""
    assert results(wire, "person:regress", "regress", [{"weight": 1.0, "shoe_size": value}]) == [4.0]


@pytest.mark.row("V1-102")
@pytest.mark.parametrize(
    ("feature", "value", "text"),
    [
        ("weight", [1.0, 2.0], "Number of float values != expected. Values size: 2 but output shape: [1]"),
        ("pair", [1], "Number of int64 values != expected. Values size: 1 but output shape: [2]"),
        ("pair", [1, 2, 3], "Number of int64 values != expected. Values size: 3 but output shape: [2]"),
        ("pair", 1, "Number of int64 values != expected. Values size: 1 but output shape: [2]"),
        ("name", ["a", "b"], "Number of"),
    ],
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_feature_has_as_many_values_as_its_shape(
    wire: Wire, feature: str, value: object, text: str, blank: str
) -> None:
    """Neither more nor fewer."""
    for found in refused(wire, {"weight": 1.0, feature: value}, x=blank):
        assert text in found
