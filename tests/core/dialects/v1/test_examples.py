"""core.dialects.v1.examples: lists of feature objects become tensors; labels, scores and numbers become answers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.v1.examples import classify, regress
from core.encoding.jsonio import NonFinite, Oversized
from core.errors import InvalidInput
from core.float16 import bf16_from_float
from core.operations import Infer, ModelRef
from core.signature import Method, Signature
from tests.support.samples import told
from tests.support.v1_samples import binding, listed, model, output, question, result, signature

SCORES = {"scores": "s"}


def regressor(**features: Any) -> Signature:
    """Returns a model that regresses from those features to y."""
    return signature(features, {"outputs": "y"}, Method.REGRESS)


def classifier(labels: tuple[str, ...] = (), **outputs: Any) -> Signature:
    """Returns a model that classifies from x to the outputs."""
    return signature({"x": binding("x", shape=(-1, 1))}, outputs or SCORES, Method.CLASSIFY, labels)


def asked(features: dict[str, Any], *examples: Any, **members: Any) -> Infer:
    """Returns what the model is asked for those examples."""
    document = {"examples": list(examples), **members}
    return regress(question(document), model(serving_default=regressor(**features)))[0]


def refused(features: dict[str, Any], *examples: Any, **members: Any) -> str:
    with pytest.raises(InvalidInput) as refusal:
        asked(features, *examples, **members)
    return refusal.value.message


def one(datatype: str, **said: Any) -> dict[str, Any]:
    """Returns feature `f` with one value for each example, unless another shape is given."""
    return {"f": binding("t", datatype, said.pop("shape", (-1, 1)), said.pop("default", None), **said)}


def classes(
    outputs: list[Any], labels: tuple[str, ...] = (), policy: NonFinite | None = NonFinite.BARE, examples: int = 2
) -> Any:
    """Returns the results of a classification whose model returned those outputs, called scores, then classes."""
    named = dict(zip(("scores", "classes"), outputs, strict=False))
    bound = {alias: binding(alias, tensor.datatype.name) for alias, tensor in named.items() if tensor is not None}
    spec = model(serving_default=classifier(labels, **bound))
    _, reply = classify(question({"examples": [{"x": 1.0}] * examples}, policy), spec)
    tensors = [tensor._replace(name=alias) for alias, tensor in named.items() if tensor is not None]
    return told(reply(result(*tensors)))["results"]


def numbers(tensor: Any, policy: NonFinite | None = NonFinite.BARE, examples: int = 1) -> Any:
    """The results of a regression whose model gave that output."""
    spec = model(serving_default=regressor(x=binding("x", shape=(-1, 1))))
    _, reply = regress(question({"examples": [{"x": 1.0}] * examples}, policy), spec)
    return told(reply(result(tensor)))["results"]


@pytest.mark.parametrize(("datatype", "values", "array"), [
    ("FP32", [1.5, 80, [2.5]], [[1.5], [80], [2.5]]),
    ("FP64", [0.1, -3, float("inf")], [[0.1], [-3], [float("inf")]]),
    ("FP16", [0.5, 1], [[0.5], [1]]),
    ("INT64", [2**63 - 1, -(2**63), True], [[2**63 - 1], [-(2**63)], [1]]),
    ("UINT8", [255, False], [[255], [0]]),
    ("BOOL", [True, 0, 1], [[True], [False], [True]]),
    ("BYTES", ["a", {"b64": "/w=="}], [[b"a"], [b"\xff"]]),
])  # fmt: skip
def test_a_feature_is_a_value_or_a_flat_list(datatype: str, values: list[Any], array: list[Any]) -> None:
    """Integers are accepted for floats, because JavaScript writes 80.0 as 80; booleans are 1 and 0."""
    operation = asked(one(datatype), *({"f": value} for value in values))
    assert operation.ref == ModelRef("m", "3")
    assert listed(operation.inputs) == {"t": array}
    assert operation.inputs[0].datatype.name == datatype


def test_bfloat16_features_are_numbers() -> None:
    """So is their default, which is kept as its bits."""
    bits = bf16_from_float(np.array([0.1, 3.0])).tolist()
    operation = asked(one("BF16", default=[bits[0]]), {}, {"f": 3})
    assert listed(operation.inputs) == {"t": [[bits[0]], [bits[1]]]}


@pytest.mark.parametrize(("said", "shape", "values", "array"), [
    ({"shape": None}, None, [1], [[1]]),
    ({"shape": (-1, 2)}, None, [1, 2], [[1, 2]]),
    ({"shape": (-1,)}, None, [1], [1]),
    ({"shape": (-1, 4)}, (2, 2), [1, 2, 3, 4], [[[1, 2], [3, 4]]]),
    ({"shape": (-1, -1)}, None, [1, 2, 3], [[1, 2, 3]]),
    ({"shape": (-1, 2, -1)}, None, [1, 2, 3, 4], [[[1, 2], [3, 4]]]),
    ({"shape": (-1, -1, 2)}, None, [1, 2, 3, 4, 5, 6], [[[1, 2], [3, 4], [5, 6]]]),
])  # fmt: skip
def test_features_have_the_settings_shape_else_the_tensors_without_its_batch(
    said: Any, shape: Any, values: list[int], array: list[Any]
) -> None:
    """Without either it has one value. A variable axis takes as many values as there are."""
    assert listed(asked(one("INT64", feature=shape, **said), {"f": values}).inputs) == {"t": array}


def test_an_encoded_feature_is_a_string_whose_bytes_are_its_elements() -> None:
    """It is text or base64, and has one length within a request."""
    feature = {"f": binding("t", "UINT8", (-1, -1), encoded=True)}
    infer = asked(feature, {"f": "ab"}, {"f": [{"b64": "AP8="}]})
    assert listed(infer.inputs) == {"t": [[97, 98], [0, 255]]}
    assert "strings of 1 and of 2 bytes" in refused(feature, {"f": "ab"}, {"f": "a"})
    assert "Data type: int64 but expected type: string" in refused(feature, {"f": 97})


def test_what_an_example_lacks_is_the_default() -> None:
    """An empty list counts as absent, too. A feature without a default is required."""
    operation = asked(one("INT64", default=[7]), {}, {"f": []}, {"f": 1})
    assert listed(operation.inputs) == {"t": [[7], [7], [1]]}
    assert listed(asked(one("BYTES", default=[b"\xff"]), {}, {"f": "a"}).inputs) == {"t": [[b"\xff"], [b"a"]]}
    assert listed(asked(one("BOOL", default=[True]), {}).inputs) == {"t": [[True]]}
    for example in ({}, {"f": []}):
        assert refused(one("FP32"), example) == "Feature: f (data type: float) is required but could not be found."


def test_the_context_is_part_of_every_example() -> None:
    """An example's own value takes precedence."""
    features = {"f": binding("t", "INT64", (-1, 1)), "g": binding("u", "INT64", (-1, 1))}
    operation = asked(features, {"f": 1}, {"f": 2, "g": 3}, context={"g": 9})
    assert listed(operation.inputs) == {"t": [[1], [2]], "u": [[9], [3]]}
    assert listed(asked(features, {"f": 1, "g": 2}, context={}).inputs) == {"t": [[1]], "u": [[2]]}


@pytest.mark.parametrize(("datatype", "value", "message"), [
    ("FP32", None, "Feature: f has element with unexpected JSON type: Null"),
    ("FP32", Oversized("1e400"), "Feature: f has element with unexpected JSON type: Number"),
    ("INT64", [1, "a"], "Unexpected element type in feature: f expecting type: int64"),
    ("INT64", 2**63, f"Feature: f has {2**63}: Only int64_t is supported"),
    ("INT64", 1.5, "Key: f. Data types don't match. Data type: float but expected type: int64"),
    ("INT64", ["a", 1], "Unexpected element type in feature: f expecting type: bytes"),
    ("FP32", [1, "a"], "Unexpected element type in feature: f expecting type: int64"),
    ("FP32", [1, 1.5, "a"], "Unexpected element type in feature: f expecting type: int64"),
    ("FP32", [1.5, 1, "a"], "Unexpected element type in feature: f expecting type: float"),
    ("FP32", [1.5, True], "Unexpected element type in feature: f expecting type: float"),
    ("FP32", [True, 1.5], "Unexpected element type in feature: f expecting type: int64"),
    ("FP32", True, "Key: f. Data types don't match. Data type: int64 but expected type: float"),
    ("BF16", [1, True], "Key: f. Data types don't match. Data type: int64 but expected type: bfloat16"),
    ("FP32", "a", "Key: f. Data types don't match. Data type: string but expected type: float"),
    ("BYTES", True, "Key: f. Data types don't match. Data type: int64 but expected type: string"),
    ("BYTES", ["a", "b"], "Key: f. Number of bytes values != expected. Values size: 2 but output shape: [1]"),
    ("INT8", 300, "JSON Value: 300 Type: Number is not of expected type: int8, which holds -128 to 127"),
])  # fmt: skip
def test_a_feature_that_does_not_fit_is_named(datatype: str, value: Any, message: str) -> None:
    """The text is TF Serving's where it has one."""
    assert refused(one(datatype), {"f": value}) == message


def test_the_count_of_values_fits_the_shape() -> None:
    """A variable axis needs whole rows, and the same number of every example."""
    wide = one("INT64", shape=(-1, 2, -1))
    told = "Key: f. Number of int64 values != expected. Values size: 3 but output shape: [2, -1]"
    assert refused(wide, {"f": [1, 2, 3]}) == told
    told = "Key: f. Examples have different numbers of values: [2, 4]"
    assert refused(wide, {"f": [1, 2]}, {"f": [1, 2, 3, 4]}) == told
    assert "Values size: 1 but output shape: [0, -1]" in refused(one("INT64", shape=(-1, 0, -1)), {"f": 1})


@pytest.mark.parametrize(("document", "message"), [
    ({}, "When method is {name}, key 'examples' is expected and was not found"),
    ({"examples": {"x": 1}}, "Expecting 'examples' value to be an list/array"),
    ({"examples": None}, "Expecting 'examples' value to be an list/array"),
    ({"examples": []}, "'examples' value is an empty array"),
    ({"examples": [], "context": [1]}, "Example must be JSON object but got JSON Array as 'context'"),
])  # fmt: skip
def test_examples_are_a_list_and_the_context_an_object(document: Any, message: str) -> None:
    """In TF Serving's words, and in its order: before it looks for a signature."""
    spec = model(regress=regressor(), classify=classifier())
    for method, signature_name in ((regress, "regress"), (classify, "classify"), (classify, "nobody")):
        name = method.__name__
        with pytest.raises(InvalidInput) as refusal:
            method(question(document | {"signature_name": signature_name}), spec)
        assert refusal.value.message == message.replace("{name}", name)


@pytest.mark.parametrize(("example", "kind"), [(1.5, "Number"), ([], "Array"), (None, "Null"), ("a", "String")])
def test_every_example_is_an_object(example: Any, kind: str) -> None:
    """The refusal gives the position of the first that is not an object."""
    text = f"Example must be JSON object but got JSON {kind} at item 1"
    assert refused(one("FP32"), {"f": 1.0}, example) == text


def test_a_signature_of_the_method_is_needed() -> None:
    """The refusal lists the signatures that there are. The default signature belongs to one method only."""
    predict = signature({"x": "x"}, {"y": "y"})
    spec = model(serving_default=predict, r=regressor(x="x"), c=classifier())
    for method, noun, names in ((regress, "regression", "['r']"), (classify, "classification", "['c']")):
        with pytest.raises(InvalidInput, match=f"^No {noun} inputs found in SignatureDef: Expected {noun} ") as told:
            method(question({"examples": [{"x": 1}]}), spec)
        was = f"method_name to be tensorflow/serving/{method.__name__}. Was: tensorflow/serving/predict; "
        assert was in told.value.message
        assert told.value.message.endswith(f"those for {method.__name__} are {names}")
        for poor in (model(), model(serving_default=predict)):
            with pytest.raises(InvalidInput, match=f"the model has none for {method.__name__}$"):
                method(question({"examples": [{"x": 1}]}), poor)
        with pytest.raises(InvalidInput, match="^No signature was found with the name: q$"):
            method(question({"examples": [{"x": 1}], "signature_name": "q"}), spec)


def test_only_the_signatures_outputs_are_asked_for() -> None:
    """Each is asked for once, whatever its alias."""
    spec = model(c=classifier(scores=binding("s"), classes=binding("s")), d=classifier(scores=binding("z")))
    operation, _ = classify(question({"examples": [{"x": 1}], "signature_name": "c"}), spec)
    assert [wish.name for wish in operation.outputs] == ["s"]


S = output("s", "FP32", [[0.1, 3.0], [0.25, 0.75]])
C = output("c", "BYTES", [[b"no", "\u65e5".encode()], [b"\xff", b""]])


def test_classes_are_pairs_of_label_and_score() -> None:
    """Labels come from the model, from the settings, or are empty. Scores come from the model, or are zero."""
    assert classes([S, C]) == [[["no", 0.1], ["\u65e5", 3.0]], [[{"b64": "/w=="}, 0.25], ["", 0.75]]]
    assert classes([S]) == [[["", 0.1], ["", 3.0]], [["", 0.25], ["", 0.75]]]
    assert classes([S], ("no", "yes")) == [[["no", 0.1], ["yes", 3.0]], [["no", 0.25], ["yes", 0.75]]]
    assert classes([None, C])[0] == [["no", 0.0], ["\u65e5", 0.0]]
    assert classes([S, output("c", "INT64", [[7, 8], [9, 10]])])[0] == [["7", 0.1], ["8", 3.0]]


@pytest.mark.parametrize(("labels", "expected"), [(("a",), ["a", ""]), (("a", "b", "c"), ["a", "b"])])
def test_labels_of_another_number_are_filled_up_or_cut(labels: tuple[str, ...], expected: list[str]) -> None:
    """An answer is better than a refusal."""
    assert [label for label, _ in classes([S], labels)[0]] == expected


def test_labels_of_the_model_go_over_those_of_the_settings() -> None:
    """They describe this very example."""
    assert classes([S, C], ("a", "b"))[0][0] == ["no", 0.1]


def test_scores_may_be_of_any_number_type() -> None:
    """Integers stay integers; values that are not finite follow the operator's choice."""
    assert classes([output("s", "INT64", [[2**53 + 1]])], examples=1) == [[["", 2**53 + 1]]]
    assert classes([output("s", "FP16", [[0.1]])], examples=1) == [[["", 0.1]]]
    odd = output("s", "FP32", [[np.inf]])
    assert classes([odd], examples=1) == [[["", np.inf]]]
    assert classes([odd], policy=NonFinite.NULL, examples=1) == [[["", None]]]
    with pytest.raises(InvalidInput, match="DRAGOMAN_NON_FINITE=error"):
        classes([odd], policy=None, examples=1)


def test_examples_without_classes_are_empty_lists() -> None:
    """One for each example."""
    assert classes([output("s", "FP32", np.empty((2, 0)))]) == [[], []]


@pytest.mark.parametrize(("outputs", "told"), [([S], "scores"), ([None, C], "classes"), ([S, C], "scores")])
@pytest.mark.parametrize("examples", [1, 3])
def test_a_model_that_classifies_another_number_of_examples_is_refused(
    outputs: list[Any], told: str, examples: int
) -> None:
    """Its rows could not be told apart. The text is TensorFlow Serving's."""
    with pytest.raises(InvalidInput, match=f"^Expected {told} output batch size of {examples}. Got: 2$"):
        classes(outputs, examples=examples)


@pytest.mark.parametrize(
    "outputs",
    [[output("s", "FP32", [0.5])], [output("s", "FP32", [[[0.5]]])], [S, output("c", "BYTES", [[b"no"], [b"yes"]])]],
)
def test_scores_and_classes_have_one_shape_of_two_axes(outputs: list[Any]) -> None:
    """The refusal names the shapes that the model returned."""
    with pytest.raises(InvalidInput, match=r"^Expected outputs of one shape \[batch_size, num_classes\] but got "):
        classes(outputs)


def test_scores_are_numbers() -> None:
    """Text cannot be ordered as scores."""
    with pytest.raises(InvalidInput, match="^Expected output 'scores' to be of numbers but got DT_STRING$"):
        classes([C])


@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9), column=st.booleans())
def test_a_regression_is_a_number_for_each_example(*, values: list[float], column: bool) -> None:
    """The output has one axis, or a second one of size one."""
    tensor = output("y", "FP32", np.array(values).reshape((-1, 1) if column else (-1,)))
    assert np.array(numbers(tensor, examples=len(values)), np.float32).tolist() == values


@pytest.mark.parametrize("shape", [(0,), (2,), (0, 1), (2, 1)], ids=str)
def test_a_regression_has_a_number_for_each_example(shape: tuple[int, ...]) -> None:
    """No more and no fewer, in TF Serving's words."""
    with pytest.raises(InvalidInput) as refusal:
        numbers(output("y", "FP32", np.zeros(shape)))
    assert refusal.value.message == f"Input batch size did not match output batch size: 1 vs. {shape[0]}"


def test_a_regression_of_half_or_double_has_its_own_digits() -> None:
    """A tenth is a tenth; values that are not finite follow the operator's choice."""
    for datatype in ("FP16", "FP32", "FP64"):
        assert numbers(output("y", datatype, [[0.1]])) == [0.1]
    assert numbers(output("y", "FP32", [np.nan]), NonFinite.NULL) == [None]


@pytest.mark.parametrize("shape", [(), (2, 2), (2, 1, 1)], ids=str)
def test_a_regression_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    """The refusal names the shape."""
    with pytest.raises(InvalidInput) as refusal:
        numbers(output("y", "FP32", np.zeros(shape)))
    expected = "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
    assert refusal.value.message == expected + str(list(shape))


@pytest.mark.parametrize(("datatype", "value", "kind"), [("BYTES", b"1", "DT_STRING"), ("BOOL", True, "DT_BOOL")])
def test_a_regression_of_text_or_booleans_is_refused(datatype: str, value: Any, kind: str) -> None:
    """Neither is a number."""
    with pytest.raises(InvalidInput, match=f"^Expected output 'y' to be of numbers but got {kind}$"):
        numbers(output("y", datatype, [value]))
