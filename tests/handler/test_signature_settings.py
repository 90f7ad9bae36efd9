"""handler.settings.signatures: signatures as they are written, and over a model's tensors."""

from __future__ import annotations

from typing import Any

import pytest

from core.dtype import DATATYPES
from core.signature import Method, Signature
from core.tensor import TensorSpec
from handler.settings.checked import Wrong
from handler.settings.signatures import SaidBinding, bind, parse

X = TensorSpec("x", DATATYPES["FP32"], (-1, 2))
N = TensorSpec("n", DATATYPES["INT64"], (-1, 1))
JPEG = TensorSpec("jpeg", DATATYPES["UINT8"], (-1, -1))
Y = TensorSpec("y", DATATYPES["FP32"], (-1,))
Z = TensorSpec("z", DATATYPES["BYTES"], None)
OUT: dict[str, Any] = {"outputs": {"y": "y"}}
SCORES: dict[str, Any] = {"method": "classify", "outputs": {"scores": "y"}}


def bound(said: Any, inputs: Any = (X, N), outputs: Any = (Y, Z)) -> Signature:
    """Returns signature `s` over a model of those tensors."""
    return bind(parse({"s": said}), inputs, outputs)["s"]


def wrong(call: Any, *arguments: Any) -> str:
    """Returns the text of the error."""
    with pytest.raises(Wrong) as error:
        call(*arguments)
    return str(error.value)


def test_a_binding_is_a_name_or_says_more() -> None:
    """It is read as written; a missing tensor shows when the model is loaded."""
    more = {"tensor": "n", "shape": [2, -1], "default": [1], "encoding": "bytes"}
    said = parse({"s": {"inputs": {"a": "x", "b": more, "c": {"tensor": "q"}}, "outputs": {"y": "y"}}})["s"]
    assert said.method is Method.PREDICT
    assert said.inputs == {"a": SaidBinding("x"), "b": SaidBinding("n", (2, -1), [1], True), "c": SaidBinding("q")}  # noqa: FBT003 - encoded
    assert said.outputs == {"y": SaidBinding("y")}
    assert said.class_labels == ()


def test_a_signature_knows_whether_it_renames_an_input() -> None:
    """Outputs do not matter: no request is refused for them."""
    assert not bound({"inputs": {"x": "x", "n": "n"}, "outputs": {"other": "y"}}).renames
    assert bound({"inputs": {"x": "x", "other": "n"}, "outputs": {"y": "y"}}).renames
    assert not bound(OUT).renames


def test_a_description_is_for_people() -> None:
    """It has no effect; null counts as absent."""
    assert parse({"s": OUT | {"description": "halves"}}) == parse({"s": OUT})
    empty = {"inputs": None, "class_labels": None, "method": "predict"}
    assert parse({"s": OUT | empty}) == parse({"s": OUT})
    assert parse({}) == {}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([], "signatures is []; expected an object"),
        ({"s": []}, "signatures.s is []; expected an object"),
        ({"s": OUT | {"input": {}}}, "signatures.s.input is {}; expected no such key; the keys are method, inputs,"),
        ({"s": OUT | {"method": "explain"}}, "signatures.s.method is 'explain'; expected one of predict, classify,"),
        ({"s": OUT | {"method": None}}, "signatures.s.method is null; expected one of predict, classify, regress"),
        ({"s": {}}, "signatures.s.outputs is null; expected an object"),
        ({"s": {"outputs": {}}}, "signatures.s.outputs is {}; expected an object with at least one alias"),
        ({"s": OUT | {"inputs": {}}}, "signatures.s.inputs is {}; expected an object with at least one alias"),
        ({"s": OUT | {"inputs": {"a": 1}}}, "signatures.s.inputs.a is 1; expected an object"),
        ({"s": OUT | {"inputs": {"a": {}}}}, "signatures.s.inputs.a.tensor is null; expected the name of a tensor"),
        (
            {"s": OUT | {"inputs": {"a": {"tensor": "x", "dtype": 1}}}},
            "signatures.s.inputs.a.dtype is 1; expected no such key; the keys are tensor, shape, default, encoding",
        ),
        (
            {"s": OUT | {"inputs": {"a": {"tensor": "x", "shape": 2}}}},
            "signatures.s.inputs.a.shape is 2; expected an array of whole numbers from -1 up",
        ),
        (
            {"s": OUT | {"inputs": {"a": {"tensor": "x", "encoding": "utf8"}}}},
            "signatures.s.inputs.a.encoding is 'utf8'; expected bytes",
        ),
        ({"s": SCORES | {"class_labels": [1]}}, "signatures.s.class_labels is [1]; expected an array of text"),
        ({"s": OUT | {"class_labels": ["a"]}}, "signatures.s.outputs.scores is null; expected the name of the output"),
        (
            {"s": OUT | {"method": "regress"}},
            "signatures.s.outputs is ['y']; expected outputs, as a regress signature requires",
        ),
        (
            {"s": SCORES | {"outputs": {"scores": "y", "probabilities": "z"}}},
            "signatures.s.outputs is ['probabilities', 'scores']; expected scores or classes or classes and scores, as",
        ),
    ],
)
def test_a_wrong_key_is_named_by_its_path_when_the_file_is_read(said: Any, message: str) -> None:
    """The message has its value and what was expected."""
    assert wrong(parse, said).startswith(message)


@pytest.mark.parametrize("aliases", [("scores",), ("classes",), ("scores", "classes")])
def test_classify_is_known_by_its_aliases(aliases: tuple[str, ...]) -> None:
    """One of the two is enough."""
    found = bound(SCORES | {"outputs": dict(zip(aliases, ("y", "z"), strict=False))})
    assert found.method is Method.CLASSIFY
    assert tuple(found.outputs) == aliases


def test_a_signature_is_over_the_models_own_tensors() -> None:
    """They have the order of the settings. If none is named, all inputs have their own names."""
    found = bound({"inputs": {"b": "n", "a": "x"}, "outputs": {"second": "z", "first": "y"}})
    assert found.inputs is not None
    assert [(alias, binding.spec) for alias, binding in found.inputs.items()] == [("b", N), ("a", X)]
    assert [(alias, binding.spec) for alias, binding in found.outputs.items()] == [("second", Z), ("first", Y)]
    found = bound(OUT)
    assert found.inputs is not None
    assert [(alias, binding.spec) for alias, binding in found.inputs.items()] == [("x", X), ("n", N)]
    assert bound(SCORES | {"class_labels": ["no", "yes"]}).class_labels == ("no", "yes")


def test_the_labels_of_scores_are_the_outputs_unless_the_signature_has_its_own() -> None:
    """An output has them from its settings, or from the maps of a scikit-learn classifier."""
    labelled = (Y._replace(labels=("no", "yes")), Z)
    assert bound(SCORES, outputs=labelled).class_labels == ("no", "yes")
    assert bound(SCORES | {"class_labels": ["-", "+"]}, outputs=labelled).class_labels == ("-", "+")
    assert bound({"method": "classify", "outputs": {"classes": "z"}}, outputs=labelled).class_labels == ()


def test_an_output_may_have_several_aliases() -> None:
    """An input must not: it could get two values."""
    found = bound({"outputs": {"first": "y", "second": "y"}})
    assert [binding.spec for binding in found.outputs.values()] == [Y, Y]


def test_a_default_is_a_whole_tensor_or_one_examples_values() -> None:
    """The method decides; the default has the input's own type."""
    found = bound(OUT | {"inputs": {"x": {"tensor": "x", "default": [[1, 2.5]]}, "n": {"tensor": "n", "default": 7}}})
    assert found.inputs is not None
    x, n = (found.inputs[alias].default for alias in ("x", "n"))
    assert x is not None
    assert n is not None
    assert (x.name, x.datatype, x.array.tolist()) == ("x", DATATYPES["FP32"], [[1.0, 2.5]])
    assert (n.array.shape, n.array.dtype) == ((), "i8")
    features = {"x": {"tensor": "x", "default": [1, 2]}, "n": {"tensor": "n", "default": 7, "shape": [1]}}
    found = bound(SCORES | {"inputs": features})
    assert found.inputs is not None
    x, n = (found.inputs[alias].default for alias in ("x", "n"))
    assert x is not None
    assert n is not None
    assert (x.array.tolist(), n.array.tolist()) == ([1.0, 2.0], [7])
    assert found.inputs["n"].shape == (1,)


def test_an_encoded_binding_is_of_bytes_with_an_axis_for_them() -> None:
    """The rule holds for inputs and outputs."""
    image = {"image_bytes": {"tensor": "jpeg", "encoding": "bytes"}}
    found = bound({"inputs": image, "outputs": image}, (JPEG,), (JPEG,))
    assert found.inputs is not None
    assert found.inputs["image_bytes"].encoded
    assert found.outputs["image_bytes"].encoded


@pytest.mark.parametrize(
    ("said", "inputs", "outputs", "message"),
    [
        (OUT, (X,), None, "signatures is ['s']; expected none, as the model does not declare its outputs"),
        ({"outputs": {"o": "q"}}, (X,), (Y,), "signatures.s.outputs.o is 'q'; expected one of the model's tensors: y"),
        (
            OUT | {"inputs": {"a": "x"}},
            (X, N),
            (Y,),
            "signatures.s.inputs is ['a']; expected an alias for the model's input 'n', too",
        ),
        (
            OUT | {"inputs": {"x": "x", "a": "q"}},
            (X, N),
            (Y,),
            "signatures.s.inputs.a is 'q'; expected one of the model's tensors: x, n",
        ),
        (
            OUT | {"inputs": {"x": "x", "a": "q"}},
            (X,),
            (Y,),
            "signatures.s.inputs.a is 'q'; expected one of the model's tensors: x",
        ),
        (
            OUT | {"inputs": {"a": "x", "b": "x"}},
            (X,),
            (Y,),
            "signatures.s.inputs is 'x'; expected each of the model's inputs under one alias",
        ),
        (
            OUT | {"inputs": {"x": {"tensor": "x", "default": ["a"]}}},
            (X,),
            (Y,),
            "signatures.s.inputs.x.default is ['a']; expected FP32 (JSON Value:",
        ),
        (
            SCORES | {"inputs": {"x": {"tensor": "x", "default": [[1]]}}},
            (X,),
            (Y,),
            "signatures.s.inputs.x.default is [[1]]; expected FP32 (JSON Value:",
        ),
        (
            OUT | {"inputs": {"x": {"tensor": "x", "encoding": "bytes"}}},
            (X,),
            (Y,),
            "signatures.s.inputs.x.encoding is 'bytes'; expected a tensor of UINT8 with an axis, not FP32",
        ),
        (
            OUT | {"inputs": {"x": {"tensor": "x", "encoding": "bytes"}}},
            (X._replace(datatype=DATATYPES["UINT8"], shape=()),),
            (Y,),
            "signatures.s.inputs.x.encoding is 'bytes'; expected a tensor of UINT8 with an axis, not UINT8",
        ),
        (
            OUT | {"inputs": {"x": "x"}},
            None,
            (Y,),
            "signatures.s.inputs is ['x']; expected a model that declares its inputs, for predict",
        ),
        (
            SCORES,
            None,
            (Y,),
            "signatures.s.inputs is []; expected a model that declares its inputs, for classify",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_named_when_it_is_loaded(
    said: Any, inputs: Any, outputs: Any, message: str
) -> None:
    """The message has its path, before any request."""
    assert wrong(bound, said, inputs, outputs).startswith(message)


GRID = TensorSpec("x", DATATYPES["FP32"], (-1, -1, -1))
ANY = TensorSpec("x", DATATYPES["FP32"], None)
PAIRS = TensorSpec("x", DATATYPES["FP32"], (-1, 2))


@pytest.mark.parametrize(
    ("spec", "feature", "message"),
    [
        (GRID, {}, "shape is [-1, -1]; expected one variable axis at most"),
        (PAIRS, {"shape": [7]}, "shape is [7]; expected [2], the shape of one example"),
        (PAIRS, {"shape": []}, "shape is []; expected [2], the shape of one example"),
        (ANY, {"shape": [-1, 0]}, "shape is [-1, 0]; expected one variable axis at most, beside axes above 0"),
        (ANY, {"shape": [1], "default": [1, 2]}, "default is '2 elements'; expected as many as the shape [1] needs"),
        (ANY, {"shape": [2, -1], "default": [1]}, "default is '1 element'; expected as many as the shape [2, -1]"),
        (JPEG, {"default": [1], "encoding": "bytes"}, "default is 'a value'; expected none, for a feature"),
    ],
)
def test_a_features_shape_and_default_fit_each_other(spec: TensorSpec, feature: Any, message: str) -> None:
    """An example must not meet a publisher's mistake."""
    said = SCORES | {"inputs": {"f": {"tensor": spec.name} | feature}}
    assert wrong(bound, said, (spec,)).startswith(f"signatures.s.inputs.f.{message}")


def test_a_feature_needs_an_axis_for_the_examples() -> None:
    """A scalar cannot hold several."""
    said = SCORES | {"inputs": {"f": {"tensor": "x"}}}
    expected = "signatures.s.inputs.f is 'x'; expected a tensor with an axis for the examples"
    assert wrong(bound, said, (PAIRS._replace(shape=()),)) == expected


@pytest.mark.parametrize(
    ("default", "shape"), [(5, []), ([1, 2, 3], [3]), ([[1, 2, 3]], [1, 3]), ([[[1, 2]]], [1, 1, 2])]
)
def test_a_default_that_fits_no_row_is_refused(default: Any, shape: list[int]) -> None:
    """Clients that leave the input out would be blamed for it."""
    said = OUT | {"inputs": {"f": {"tensor": "x", "default": default}}}
    expected = f"signatures.s.inputs.f.default is 'a value of shape {shape}'; expected [2] for each row, or [-1, 2]"
    assert wrong(bound, said, (PAIRS,)) == expected


@pytest.mark.parametrize(
    ("shape", "default"),
    [((-1, 2), [1, 2]), ((-1, 2), [[1, 2], [3, 4]]), ((-1, 1), 5), ((-1,), 5), ((-1,), [1, 2]), ((), 5), (None, [[1]])],
)
def test_a_default_is_a_row_or_all_of_them(shape: tuple[int, ...] | None, default: Any) -> None:
    """A scalar is the row of a column, and anything fits a model that does not declare a shape."""
    said = OUT | {"inputs": {"f": {"tensor": "x", "default": default}}}
    found = bound(said, (PAIRS._replace(shape=shape),))
    assert found.inputs is not None
    assert found.inputs["f"].default is not None


@pytest.mark.parametrize("feature", [{"shape": [2, -1], "default": [1, 2, 3, 4]}, {"shape": [2], "default": [1, 2]}])
def test_a_default_of_the_right_length_is_taken(feature: Any) -> None:
    """The rule includes a variable axis."""
    said = bound(SCORES | {"inputs": {"f": {"tensor": "x"} | feature}}, (ANY,))
    assert said.inputs is not None
    assert said.inputs["f"].default is not None


def test_a_model_that_does_not_say_its_inputs_takes_anything() -> None:
    """The rule holds for predict, whose outputs are known."""
    found = bound(OUT, None)
    assert found.inputs is None
    assert list(found.outputs) == ["y"]


def test_an_input_that_the_model_can_do_without_needs_no_alias() -> None:
    """It is fed if a signature names it."""
    spare = N._replace(optional=True)
    found = bound(OUT | {"inputs": {"x": "x"}}, (X, spare))
    assert found.inputs is not None
    assert list(found.inputs) == ["x"]
    found = bound(OUT | {"inputs": {"x": "x", "n": "n"}}, (X, spare))
    assert found.inputs is not None
    assert found.inputs["n"].spec is spare
