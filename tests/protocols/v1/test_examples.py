"""Catalogue section 8: classify and regress, whose requests are lists of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, post, read, results

if TYPE_CHECKING:
    from tests.support.wire import Answer, Wire

VERBS = ["classify", "regress"]
EXAMPLES = [{"weight": 1.5, "count": 2, "name": "a"}, {"weight": [2.5], "count": [4], "name": ["b"]}]


def asked(wire: Wire, verb: str, *examples: Any, signature: str | None = None, **more: Any) -> Answer:
    """An answer of the person model."""
    return post(wire, f"person:{verb}", {"signature_name": signature or verb, "examples": examples, **more})


@pytest.mark.row("V1-089", "V1-090")
@pytest.mark.parametrize("blank", LENGTHS)
def test_regress_gives_a_number_per_example(wire: Wire, blank: str) -> None:
    """Under `results`."""
    assert results(wire, "person:regress", "regress", EXAMPLES, x=blank) == [3.5, 6.5]


@pytest.mark.row("V1-089", "V1-090")
@pytest.mark.parametrize("blank", LENGTHS)
def test_classify_gives_pairs_of_label_and_score_per_example(wire: Wire, blank: str) -> None:
    """Under `results`, too."""
    assert results(wire, "person:classify", "classify", EXAMPLES, x=blank) == [[["a", 3.5]], [["b", 6.5]]]


@pytest.mark.row("V1-090")
def test_every_class_has_a_pair_in_the_models_order(wire: Wire) -> None:
    """Not sorted by the score."""
    found = results(wire, "classifier_batch:classify", "", [{"features": [0.25, 4.0, 1.0, 0.5]}])
    assert found == [[["ant", 0.25], ["bee", 4.0], ["cat", 1.0], ["dog", 0.5]]]


@pytest.mark.row("V1-091")
def test_without_classes_a_label_is_empty_or_from_the_settings(wire: Wire) -> None:
    """TF Serving's is always empty."""
    examples = [{"weight": 1.0, "count": 2}]
    assert results(wire, "person:classify", "classify_scores", examples) == [[["", 3.0], ["", 1.0]]]
    assert results(wire, "person:classify", "classify_labelled", examples) == [[["sum", 3.0], ["weight", 1.0]]]


@pytest.mark.row("V1-091")
def test_without_scores_a_score_is_zero(wire: Wire) -> None:
    """The class alone."""
    found = results(wire, "person:classify", "classify_classes", [{"weight": 1.0, "name": "a"}])
    assert found == [[["a", 0.0]]]


@pytest.mark.row("V1-092")
@pytest.mark.parametrize(
    ("verb", "signature"), [("regress", "classify"), ("regress", "classify_scores"), ("classify", "regress")]
)
def test_a_signature_of_the_other_method_is_refused(wire: Wire, verb: str, signature: str) -> None:
    """Its outputs are not the verb's."""
    refusal(asked(wire, verb, *EXAMPLES, signature=signature), 400)
    alive(wire)


@pytest.mark.row("V1-093")
@pytest.mark.parametrize(("verb", "word"), [("regress", "regression"), ("classify", "classification")])
@pytest.mark.parametrize("name", [{}, {"signature_name": ""}, {"signature_name": "serving_default"}])
def test_the_default_signature_is_serving_default_here_too(
    wire: Wire, verb: str, word: str, name: dict[str, str]
) -> None:
    """Which usually is one for predict."""
    document = {"examples": [{"x": 1.0}], **name}
    text = refusal(post(wire, f"half_plus_two:{verb}", document), 400)
    assert text.startswith(f"No {word} inputs found in SignatureDef")


@pytest.mark.row("V1-093")
def test_a_default_signature_for_classify_needs_no_name(wire: Wire) -> None:
    """Where the settings make it one."""
    document = {"examples": [{"features": [1.0, 2.0, 3.0, 4.0]}]}
    assert len(read(post(wire, "classifier_batch:classify", document))["results"][0]) == 4


@pytest.mark.row("V1-094")
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_signature_is_refused(wire: Wire, verb: str) -> None:
    """In other words than predict's."""
    text = refusal(asked(wire, verb, *EXAMPLES, signature="nope"), 400)
    assert text.startswith("No signature was found with the name: nope")


@pytest.mark.row("V1-035")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", [None, 1, [], {}])
def test_the_name_of_a_signature_is_text_here_too(wire: Wire, verb: str, name: object) -> None:
    """As for predict."""
    text = refusal(post(wire, f"person:{verb}", {"signature_name": name, "examples": EXAMPLES}), 400)
    assert text == "'signature_name' key must be a string value."


@pytest.mark.row("V1-103")
@pytest.mark.parametrize("blank", LENGTHS)
def test_the_context_is_part_of_every_example(wire: Wire, blank: str) -> None:
    """Where an example has the feature itself, its own value wins."""
    examples = [{"weight": 1.0}, {"weight": 2.0, "count": 100}]
    found = results(wire, "person:regress", "regress", examples, context={"count": 10}, x=blank)
    assert found == [11.0, 102.0]


@pytest.mark.row("V1-103")
def test_the_context_alone_may_fill_an_example(wire: Wire) -> None:
    """As many results as examples."""
    context = {"weight": 1.0, "count": 1, "unheard_of": "x"}
    assert results(wire, "person:regress", "regress", [{}, {}, {}], context=context) == [2.0, 2.0, 2.0]


DOCUMENTS: list[dict[str, Any]] = [
    {},
    {"example": [{"weight": 1.0}]},
    {"instances": [{"weight": 1.0}]},
    {"examples": None},
    {"examples": {}},
    {"examples": {"weight": 1.0}},
    {"examples": 1},
    {"examples": "x"},
    {"examples": []},
    {"examples": [1]},
    {"examples": [None]},
    {"examples": [[]]},
    {"examples": [{"weight": 1.0}, 1.0]},
    {"examples": [{"weight": 1.0}], "context": []},
    {"examples": [{"weight": 1.0}], "context": None},
    {"examples": [{"weight": 1.0}], "context": 1},
    {"examples": [{"weight": 1.0}], "context": {"count": None}},
]


@pytest.mark.row("V1-104", "V1-115")
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_document_without_right_examples_is_refused(
    wire: Wire, document: dict[str, Any], verb: str, blank: str
) -> None:
    """None, no list, an empty one, one of anything but objects; a context that is no object."""
    refusal(post(wire, f"person:{verb}", {"signature_name": verb, "x": blank, **document}), 400)
    alive(wire)


@pytest.mark.row("V1-104")
@pytest.mark.parametrize("verb", VERBS)
def test_the_text_names_the_key_that_is_expected(wire: Wire, verb: str) -> None:
    """TF Serving's begins alike for both verbs."""
    assert "key 'examples' is expected" in refusal(post(wire, f"person:{verb}", {"signature_name": verb}), 400)


@pytest.mark.row("V1-022", "V1-023", "V1-024", "V1-029")
@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"1", b'{"examples": [{"weight": 1.0}]} x'])
@pytest.mark.parametrize("verb", VERBS)
def test_a_body_that_is_no_object_is_refused_here_too(wire: Wire, body: bytes, verb: str) -> None:
    """As for predict."""
    refusal(post(wire, f"person:{verb}", body), 400)


@pytest.mark.row("V1-105")
@pytest.mark.parametrize("signature", ["regress", "regress_flat", "regress_double"])
def test_regress_serves_any_float_of_one_number_per_example(wire: Wire, signature: str) -> None:
    """[n] and [n, 1], FP32 and FP64."""
    assert results(wire, "person:regress", signature, EXAMPLES) == [3.5, 6.5]


@pytest.mark.row("V1-105")
def test_classify_serves_scores_of_fp64(wire: Wire) -> None:
    """As FP32."""
    assert results(wire, "person:classify", "classify_double", EXAMPLES) == [[["", 3.5]], [["", 6.5]]]


@pytest.mark.row("V1-105")
@pytest.mark.parametrize(
    ("verb", "signature"), [("regress", "regress_two"), ("regress", "regress_text"), ("classify", "classify_uneven")]
)
def test_outputs_of_another_form_are_refused(wire: Wire, verb: str, signature: str) -> None:
    """400: one number per example, as many labels as scores."""
    refusal(asked(wire, verb, *EXAMPLES, signature=signature), 400)
    alive(wire)


@pytest.mark.row("V1-105")
def test_the_text_gives_the_shape_of_the_output(wire: Wire) -> None:
    """So that a publisher can mend it."""
    assert "[2,2]" in refusal(asked(wire, "regress", *EXAMPLES, signature="regress_two"), 400).replace(" ", "")
