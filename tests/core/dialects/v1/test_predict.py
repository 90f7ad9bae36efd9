"""core.dialects.v1.predict: the form of a request, the keys of its answer, and what the model is asked."""

import json
import math
from typing import Any

import numpy as np
import pytest

from core.dialects.v1.predict import explain, predict
from core.dialects.v1.request import V1Question
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, ModelFailed
from core.operations import Explain, ExplainResult, ModelRef
from tests.support.samples import told
from tests.support.v1_samples import binding, listed, model, output, question, result, signature

SPEC = model(
    serving_default=signature({"x": "x"}, {"y": "y"}),
    both=signature({"x": "x"}, {"a": "y", "b": "z"}),
    twice=signature({"x": "x"}, {"a": "y", "b": "y"}),
    pair=signature({"p": "p", "q": "q"}, {"y": "y"}),
)
Y = output("y", "FP32", [1.5, 2.5])
Z = output("z", "FP32", [0.5, 0.25])
BOTH = {"predictions": [1.5, 2.5], "outputs": [1.5, 2.5]}
ZEROTH = "Failed to process element: 0 of 'inputs' list. Error: INVALID_ARGUMENT: "
ROWS, COLUMNS = {"predictions": [1.5, 2.5]}, {"outputs": [1.5, 2.5]}


def answer(document: Any, *outputs: Any, spec: Any = SPEC, **said: Any) -> Any:
    """Returns what a client reads if the model returns those outputs."""
    _, reply = predict(question(document, **said), spec)
    response = reply(result(*(outputs or (Y,))))
    assert (response.status, response.headers) == (200, ((b"content-type", b"application/json"),))
    return told(response)


@pytest.mark.parametrize(("document", "expected"), [
    ({"instances": [1, 2]}, ROWS),
    ({"instances": [{"x": 1}, {"x": 2}]}, ROWS),
    ({"inputs": {"x": [1, 2]}}, COLUMNS),
    ({"inputs": [{"x": 1}, {"x": 2}]}, ROWS),
    ({"inputs": 1}, COLUMNS),
    ({"inputs": np.array(1)}, COLUMNS),
    ({"inputs": [1, 2]}, BOTH),
    ({"inputs": []}, BOTH),
    ({"inputs": np.array([1, 2])}, BOTH),
    ({"inputs": [1, 2], "signature_name": "serving_default"}, COLUMNS),
    ({"inputs": [1, 2], "signature_name": ""}, COLUMNS),
    ({"inputs": [1, 2], "parameters": {"top": 3}}, BOTH),
])  # fmt: skip
def test_the_form_of_the_request_decides_the_keys_of_the_answer(document: Any, expected: Any) -> None:
    """A list under inputs is rows for KServe's clients and columns for TensorFlow Serving's: both keys are sent."""
    assert answer(document) == expected


@pytest.mark.parametrize(("document", "tfs", "kserve"), [
    ({"inputs": [1, 2]}, COLUMNS, ROWS),
    ({"inputs": [1, 2], "signature_name": "serving_default"}, COLUMNS, ROWS),
    ({"inputs": 1}, COLUMNS, COLUMNS),
    ({"inputs": {"x": [1, 2]}}, COLUMNS, COLUMNS),
    ({"inputs": [{"x": 1}, {"x": 2}]}, ROWS, ROWS),
    ({"instances": [1, 2]}, ROWS, ROWS),
])  # fmt: skip
def test_a_setting_decides_the_one_clash_and_nothing_else(document: Any, tfs: Any, kserve: Any) -> None:
    """It takes precedence over everything in the request."""
    for pinned in (False, True):
        assert answer(document, v1_dialect="tfs", pinned=pinned) == tfs
        assert answer(document, v1_dialect="kserve", pinned=pinned) == kserve


@pytest.mark.parametrize("document", [{"instances": [{"a": [1], "b": [1]}]}, {"inputs": {"b": [[1]], "a": [[1]]}}])
def test_an_input_that_does_not_fit_is_refused_by_its_alias(document: Any) -> None:
    """The client does not know the name of the tensor behind it."""
    inputs = {"a": binding("a", shape=(-1, 1)), "b": binding("serving_default_b:0", shape=(-1, 2))}
    with pytest.raises(InvalidInput, match=r"^input 'b' has shape \[1, 1\]; the model expects \[-1, 2\]$"):
        answer(document, spec=model(serving_default=signature(inputs, {"y": "y"})))


def test_a_path_with_a_version_or_a_label_is_tensorflow_servings() -> None:
    """KServe does not have such paths."""
    assert answer({"inputs": [1, 2]}, pinned=True) == COLUMNS
    assert answer({"instances": [1, 2]}, pinned=True) == ROWS


def test_outputs_that_are_no_rows_are_told_as_columns_alone() -> None:
    """Both keys would stand there otherwise. A client that asked for rows is refused."""
    for outputs, expected in (
        ([output("y", "FP32", 1.5), Z], {"a": 1.5, "b": [0.5, 0.25]}),
        ([output("y", "FP32", [1.5]), Z], {"a": [1.5], "b": [0.5, 0.25]}),
    ):
        columns = {"inputs": [1, 2], "signature_name": "both"}
        assert answer(columns, *outputs) == {"outputs": expected}
        only = model(serving_default=SPEC.signatures["both"])
        assert answer({"inputs": [1, 2]}, *outputs, spec=only) == {"outputs": expected}
        with pytest.raises(InvalidInput, match="^Tensor name: [ab] has "):
            answer({"instances": [1, 2]}, *outputs, spec=only)


def test_several_outputs_stand_under_their_aliases() -> None:
    """There is one object per row, or one object of columns."""
    assert answer({"instances": [1, 2], "signature_name": "both"}, Y, Z) == {
        "predictions": [{"a": 1.5, "b": 0.5}, {"a": 2.5, "b": 0.25}]
    }
    assert answer({"inputs": {"x": [1, 2]}, "signature_name": "both"}, Y, Z) == {
        "outputs": {"a": [1.5, 2.5], "b": [0.5, 0.25]}
    }


@pytest.mark.parametrize(("document", "message"), [
    ({}, "Missing 'inputs' or 'instances' key"),
    ({"instance": [1]}, "Missing 'inputs' or 'instances' key"),
    ({"instances": [1], "inputs": [1]},
     "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"),
    ({"instances": []}, "No values in 'instances' array"),
    ({"inputs": [{"z": 1}]}, f"{ZEROTH}JSON object: does not have named input: z"),
    ({"instances": [1], "signature_name": "q"}, 'Serving signature name: "q" not found in signature def'),
    ({"instances": [1], "signature_name": "q" * 9999},
     f'Serving signature name: "{"q" * 256}" not found in signature def'),
    ({"instances": [1], "signature_name": "{0}"}, 'Serving signature name: "{0}" not found in signature def'),
])  # fmt: skip
def test_a_request_that_cannot_be_understood_is_refused_in_tf_servings_words(document: Any, message: str) -> None:
    """The text is bounded."""
    for method in (predict, explain):
        with pytest.raises(InvalidInput) as refusal:
            method(question(document), SPEC)
        assert refusal.value.message == message


def test_the_model_is_asked_by_its_own_names_for_the_signatures_outputs() -> None:
    """Each is asked for once, in the signature's order, and always of the version whose signatures these are."""
    infer, _ = predict(question({"inputs": {"p": [1], "q": [2]}, "signature_name": "pair"}), SPEC)
    assert infer.ref == ModelRef("m", "3")
    assert listed(infer.inputs) == {"p": [1], "q": [2]}
    for name, wanted in (("serving_default", ["y"]), ("both", ["y", "z"]), ("twice", ["y"])):
        infer, _ = predict(question({"instances": [1], "signature_name": name}), SPEC)
        assert [wish.name for wish in infer.outputs] == wanted


def test_a_model_that_says_nothing_takes_and_gives_everything() -> None:
    """Tensors have their own names; the model has only the default signature."""
    infer, _ = predict(question({"inputs": {"p": [1], "q": "a"}}), model())
    assert listed(infer.inputs) == {"p": [1], "q": b"a"}
    assert infer.outputs == ()
    assert answer({"instances": [1, 2]}, Y, Z, spec=model()) == {
        "predictions": [{"y": 1.5, "z": 0.5}, {"y": 2.5, "z": 0.25}]
    }
    with pytest.raises(InvalidInput, match='"q" not found'):
        predict(question({"instances": [1], "signature_name": "q"}), model())


def test_what_is_not_finite_is_bare_unless_the_operator_wants_something_else() -> None:
    """The choices are strict JSON, or an error; rows and columns behave alike."""
    odd = output("y", "FP32", [math.nan, math.inf])
    _, reply = predict(question({"inputs": [1, 2]}), SPEC)
    assert b"".join(reply(result(odd)).parts) == b'{"predictions":[NaN,Infinity],"outputs":[NaN,Infinity]}'
    _, reply = predict(question({"inputs": [1, 2]}, NonFinite.NULL), SPEC)
    assert told(reply(result(odd))) == {"predictions": [None, None], "outputs": [None, None]}
    for document in ({"instances": [1]}, {"inputs": 1}, {"inputs": [1]}):
        with pytest.raises(InvalidInput, match="DRAGOMAN_NON_FINITE=error"):
            answer(document, odd, non_finite=None)


def test_an_encoded_tensor_is_text_on_both_sides() -> None:
    """The model takes and returns bytes as numbers."""
    image = binding("jpeg", "UINT8", (-1, -1), encoded=True)
    spec = model(serving_default=signature({"image_bytes": image}, {"image_bytes": image}))
    document = {"instances": [{"image_bytes": {"b64": "AP8="}}]}
    infer, _ = predict(question(document), spec)
    assert listed(infer.inputs) == {"jpeg": [[0, 255]]}
    assert answer(document, output("jpeg", "UINT8", [[0, 255]]), spec=spec) == {"predictions": [{"b64": "AP8="}]}


def explained(
    explanations: list[Any], asked: V1Question | None = None, outputs: tuple[Any, ...] = (Y,), spec: Any = SPEC
) -> bytes:
    """Returns the answer's text for what a model explained."""
    operation, reply = explain(asked or question({"instances": [1, 2]}), spec)
    assert isinstance(operation, Explain)
    assert operation.infer.ref == ModelRef("m", "3")
    return b"".join(reply(ExplainResult(result(*outputs), explanations)).parts)


def test_an_explanation_stands_beside_the_predictions() -> None:
    """It may have any members; arrays become lists."""
    members = {"importance_scores": np.array([[0.1]], np.float32), "classes": np.array([2**53 + 1]), "text": "why"}
    assert json.loads(explained([members, {}])) == {
        "predictions": [1.5, 2.5],
        "explanations": [{"importance_scores": [[0.1]], "classes": [2**53 + 1], "text": "why"}, {}],
    }


@pytest.mark.parametrize("document", [{"inputs": [1, 2]}, {"inputs": {"x": [1, 2]}}, {"instances": [{"x": 1}]}])
def test_every_form_can_be_explained_and_is_answered_in_rows(document: Any) -> None:
    """Each row has one explanation."""
    assert json.loads(explained([{}], question(document))) == {"predictions": [1.5, 2.5], "explanations": [{}]}


@pytest.mark.parametrize(
    ("policy", "written"), [(NonFinite.BARE, b"[NaN,0.1]"), (NonFinite.NULL, b"[null,0.1]"), (None, b"[null,0.1]")]
)
def test_scores_that_are_not_finite_follow_the_operators_choice(policy: NonFinite | None, written: bytes) -> None:
    """The choice of an error holds for predictions alone."""
    asked = question({"instances": [1, 2]}, policy)
    for scores in (np.array([math.nan, 0.1]), [math.nan, 0.1], (np.float32("nan"), 0.1)):
        assert written in explained([{"importance_scores": scores}], asked)
        assert written in explained([{"why": [{"scores": scores}]}], asked)


def test_what_json_cannot_carry_is_the_models_fault() -> None:
    """The error names the model."""
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), {1, 2}, 1j, endless):
        with pytest.raises(ModelFailed, match="^model 'm': explain returned what JSON cannot carry: "):
            explained([{"why": value}])


def test_predictions_that_are_no_rows_cannot_be_explained() -> None:
    """The explanations could not be assigned to rows."""
    with pytest.raises(InvalidInput, match="has no shape information"):
        explained([{}], outputs=(output("y", "FP32", 1.5),))
