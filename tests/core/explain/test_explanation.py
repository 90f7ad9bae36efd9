"""core.explain.explanation: a model and its inputs become an explanation of each example."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from core.dtype import BF16, BYTES, DATATYPES
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, NotSupported
from core.explain import explanation
from core.explain.explanation import explain, explained
from core.float16 import bf16_from_float, bf16_to_float
from core.operations import Explainer, ModelSpec
from core.tensor import Tensor, TensorSpec

FP32, INT64, BOOL = DATATYPES["FP32"], DATATYPES["INT64"], DATATYPES["BOOL"]
WEIGHTS = np.array([[1.0, -1.0], [2.0, 0.5], [0.0, 3.0]])
BACKGROUND = np.array([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]], np.float32)
EXAMPLES = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 5.0]], np.float32)


class Fake:
    """A model of one function, which keeps what it was asked."""

    steady = True
    stream = None
    http = None
    explain: Any = None

    def __init__(self, function: Callable[..., Mapping[str, Any]], **spec: Any) -> None:
        said = {"inputs": None, "outputs": None, "explainer": Explainer({"x": BACKGROUND})} | spec
        self.spec = ModelSpec("m", "1", "fake", **said)
        self.function = function
        self.asked: list[tuple[dict[str, Any], list[str], Any]] = []

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        arrays = {name: tensor.array for name, tensor in inputs.items()}
        self.asked.append((arrays, list(outputs), parameters))
        answers = {
            name: answer if isinstance(answer, Tensor) else Tensor(name, FP32, np.asarray(answer))
            for name, answer in self.function(**arrays).items()
        }
        return [answers[name] for name in outputs or answers]


def linear(x: Any) -> dict[str, Any]:
    return {"y": (x @ WEIGHTS).astype(np.float32)}


def tensor(array: Any, name: str = "x", datatype: Any = FP32) -> dict[str, Tensor]:
    """Returns the inputs of a model with one input."""
    return {name: Tensor(name, datatype, np.asarray(array, datatype.numpy))}


def column(function: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """Makes a model whose only output is y."""
    return lambda x: {"y": function(x)}


def spec(name: str, shape: tuple[int, ...] | None = (-1,), datatype: Any = FP32, labels: Any = ()) -> TensorSpec:
    """Returns the spec of a tensor."""
    return TensorSpec(name, datatype, shape, labels)


def test_each_examples_highest_score_is_explained() -> None:
    """It has scores, the base value, their sum, and the class, in types that JSON accepts."""
    found = orjson.loads(orjson.dumps(explain(Fake(linear), tensor(EXAMPLES), {}), option=orjson.OPT_SERIALIZE_NUMPY))
    assert found == [
        {"importance_scores": [2.0, 0.0, 0.0], "base_value": 3.0, "prediction": 5.0, "target": 0},
        {"importance_scores": [1.0, -0.5, 12.0], "base_value": 2.5, "prediction": 15.0, "target": 1},
    ]


def test_the_explainer_may_name_the_class() -> None:
    """It then holds for every example."""
    model = Fake(linear, explainer=Explainer({"x": BACKGROUND}, target=0))
    assert [e["target"] for e in explain(model, tensor(EXAMPLES), {})] == [0, 0]
    model = Fake(linear, explainer=Explainer({"x": BACKGROUND}, target=2))
    with pytest.raises(ModelNotLoadable, match="of model 'm' has the target 2, but the output has 2 classes"):
        explain(model, tensor(EXAMPLES), {})


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_an_output_of_one_score_has_no_target(shape: tuple[int, ...]) -> None:
    """[rows] and [rows, 1] are alike, and a target would not add information."""
    model = Fake(
        column(lambda x: (x @ [1.0, 2.0, 4.0]).reshape(shape)), explainer=Explainer({"x": BACKGROUND}, target=4)
    )
    first, _ = explain(model, tensor(EXAMPLES), {})
    assert first.keys() == {"importance_scores", "base_value", "prediction"}
    assert first["importance_scores"].tolist() == [2.0, 0.0, -4.0]


def test_scores_have_the_shape_of_the_examples_input() -> None:
    """The scores of a picture are a picture; given names stand beside the scores unchanged."""
    names = {"x": ("a", "b", "c", "d")}
    model = Fake(
        column(lambda x: x.sum((1, 2))),
        explainer=Explainer({"x": np.zeros((1, 2, 2), np.float32)}, feature_names=names),
    )
    (found,) = explain(model, tensor([[[1, 2], [3, 4]]]), {})
    assert found["importance_scores"].tolist() == [[1, 2], [3, 4]]
    assert found["feature_names"] == ("a", "b", "c", "d")


def test_an_example_that_is_a_number_scores_a_number() -> None:
    """It is not an array without axes, which JSON writers refuse."""
    (found,) = explain(
        Fake(column(lambda x: x * 2), explainer=Explainer({"x": np.ones(3, np.float32)})), tensor([3]), {}
    )
    assert found["importance_scores"] == 4.0
    assert type(found["importance_scores"]) is float


def test_several_inputs_score_by_name_and_keep_their_types() -> None:
    """Integers and booleans are features like others; the model sees the exact values of example and background."""
    inputs = tensor([[1.5, 2.0]]) | tensor([2**62 + 1], "n", INT64) | tensor([[True]], "b", BOOL)
    background = {"x": np.zeros((2, 2), np.float32), "n": np.array([1, 2]), "b": np.array([[False], [True]])}
    names = {"x": ("length", "width"), "n": ("id",), "b": ("flag",)}
    model = Fake(
        lambda x, n, b: {"y": x.sum(1) + (n == 2**62 + 1) + 4 * b[:, 0]},
        explainer=Explainer(background, feature_names=names),
    )
    (found,) = explain(model, inputs, {})
    scores = found["importance_scores"]
    assert (scores["x"].tolist(), scores["n"], scores["b"].tolist()) == ([1.5, 2.0], 1.0, [2.0])
    assert found["feature_names"] == names
    assert all([a["x"].dtype, a["n"].dtype, a["b"].dtype] == ["float32", "int64", "bool"] for a, _, _ in model.asked)


def test_bfloat16_is_explained_like_any_number() -> None:
    """Inputs are read by their bits, scores by their values."""
    background = {"x": bf16_from_float(np.array([[0.0, 0.5]]))}
    model = Fake(
        column(lambda x: Tensor("y", BF16, bf16_from_float(bf16_to_float(x).sum(1)))), explainer=Explainer(background)
    )
    inputs = {"x": Tensor("x", BF16, bf16_from_float(np.array([[2.0, -1.5]])))}
    assert explain(model, inputs, {})[0]["importance_scores"].tolist() == [2.0, -2.0]


def test_the_request_parameters_reach_every_prediction() -> None:
    """Only the explained output is requested once it is known."""
    model = Fake(linear)
    explain(model, tensor(EXAMPLES), {"k": 1})
    assert all(parameters == {"k": 1} for _, _, parameters in model.asked)
    assert [outputs for _, outputs, _ in model.asked[:2]] == [[], ["y"]]
    model = Fake(linear, outputs=(spec("y", None), spec("z", None, BYTES)))
    explain(model, tensor(EXAMPLES), {})
    assert {tuple(outputs) for _, outputs, _ in model.asked} == {("y",)}


def test_a_fixed_batch_is_filled_up() -> None:
    """The last row fills the missing rows, whatever the batch's size."""
    for size in (1, 2, 3):
        model = Fake(linear, inputs=(spec("x", (size, 3)),))
        found = explain(model, tensor(EXAMPLES), {})
        assert found[1]["importance_scores"].tolist() == [1.0, -0.5, 12.0]
        assert {len(arrays["x"]) for arrays, _, _ in model.asked} == {size}


def test_batches_are_as_large_as_model_and_memory_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has at most `max_batch_size` rows, a number of rows, and a number of elements."""
    plain = spec("x", (-1, 3)), spec("scalar", ()), spec("any", None)
    model = Fake(linear, inputs=plain, max_batch_size=5)
    found = explain(model, tensor(EXAMPLES), {})
    assert found[0]["importance_scores"].tolist() == [2.0, 0.0, 0.0]
    assert max(len(arrays["x"]) for arrays, _, _ in model.asked) <= 5
    for name, limit, largest in (("BATCH_ROWS", 4, 4), ("BATCH_ELEMENTS", 9, 3)):
        with monkeypatch.context() as patch:
            patch.setattr(explanation, name, limit)
            model = Fake(linear, inputs=plain)
            explain(model, tensor(EXAMPLES), {})
        assert max(len(arrays["x"]) for arrays, _, _ in model.asked) == largest


def test_many_examples_are_predicted_together_and_score_as_each_alone() -> None:
    """Their players and classes differ; the model is called for batches, not for each example."""
    background = np.array([[0, 0, 0, 0], [1, 2, 3, 4]], np.float32)
    rows: list[int] = []

    def counted(x: Any) -> Any:
        rows.append(len(x))
        return np.stack([x[:, 0] * x[:, 1], x[:, 2] * x[:, 3], x.max(1)], 1)

    model = Fake(column(counted), explainer=Explainer({"x": background}, budget=100))
    examples = np.random.default_rng(0).integers(-3, 4, (300, 4)).astype(np.float32)
    together = explain(model, tensor(examples), {})
    assert len(rows) < 60
    assert {each["target"] for each in together} == {0, 1, 2}
    for example, found in zip(examples, together, strict=True):
        (alone,) = explain(model, tensor(example[None]), {})
        assert found["importance_scores"].tolist() == pytest.approx(alone.pop("importance_scores").tolist())
        assert {name: found[name] for name in alone} == pytest.approx(alone)


def test_no_examples_have_no_explanations() -> None:
    """They cost nothing."""
    model = Fake(linear)
    assert explain(model, tensor(np.zeros((0, 3))), {}) == []
    assert model.asked == []


def test_a_model_without_an_explainer_says_how_to_get_one() -> None:
    """The refusal names both ways."""
    text = "model 'm' has no explainer: add \"explainer\" .*model-settings.json, or.*explain.*model.py"
    with pytest.raises(NotSupported, match=text):
        explain(Fake(linear, explainer=None), tensor(EXAMPLES), {})


def test_a_models_own_explanations_go_first() -> None:
    """They stay unchanged, one for each example."""
    model = Fake(linear)
    model.explain = lambda inputs, parameters: ({"why": parameters["k"]}, {"why": inputs["x"].array[-1, 2]})
    assert explain(model, tensor(EXAMPLES), {"k": 1}) == [{"why": 1}, {"why": 5.0}]
    with pytest.raises(ModelFailed, match="model 'm' returned 2 explanations for 1 examples"):
        explain(model, tensor([[1, 2, 5]]), {"k": 1})


@pytest.mark.parametrize(("inputs", "error", "message"), [
    (tensor([1.0, 2.0]), InvalidInput, r"'x' has examples of shape \[\]; the explainer's background has \[3\]"),
    (tensor([[1.0] * 4]), InvalidInput, r"'x' has examples of shape \[4\]"),
    (tensor(1.0), InvalidInput, "'x' is a scalar; an explanation needs an axis of examples"),
    (tensor(EXAMPLES) | tensor([1], "z"), InvalidInput, "same number of examples to be explained, not {'x': 2, "),
    (tensor(EXAMPLES, "z"), NotSupported, "input 'z' of model 'm' cannot be explained by its explainer"),
    ({}, InvalidInput, "same number of examples to be explained, not {}"),
])  # fmt: skip
def test_inputs_that_cannot_be_explained_are_refused(
    inputs: dict[str, Tensor], error: type[Exception], message: str
) -> None:
    """The refusal has the name and what was expected."""
    with pytest.raises(error, match=message):
        explain(Fake(linear), inputs, {})


@pytest.mark.parametrize("bounds", [{"MOST_FOR_MANY": 0, "MOST_ROWS": 3}, {"FEW": 1, "MOST_FOR_MANY": 3}])
@pytest.mark.parametrize(("features", "each"), [(3, 8 * 2), (10, 100 * 2)])
def test_a_request_orders_a_bounded_number_of_predictions(
    monkeypatch: pytest.MonkeyPatch, features: int, each: int, bounds: dict[str, int]
) -> None:
    """It is examples times coalitions times background; the refusal says how many examples would be accepted."""
    background = np.zeros((2, features), np.float32)
    model = Fake(column(lambda x: x.sum(1)), explainer=Explainer({"x": background}, budget=100))
    for name, most in bounds.items():
        monkeypatch.setattr(explanation, name, most if name == "FEW" else most * each)
    assert len(explain(model, tensor(np.ones((3, features))), {})) == 3
    message = f"to explain 4 examples takes {4 * each} predictions ({each} each); one request can take {3 * each}"
    with pytest.raises(InvalidInput, match=re.escape(f"{message}, which is 3 examples")):
        explain(model, tensor(np.ones((4, features))), {})


def test_a_text_for_each_example_is_one_feature() -> None:
    """Its input has the shape [rows], without an axis of features."""
    texts = np.array([b"bad", b"good"], object)
    model = Fake(column(lambda x: (x == b"good") * 2.0), explainer=Explainer({"x": texts}))
    (found,) = explain(model, tensor([b"good"], datatype=BYTES), {})
    assert (found["importance_scores"], found["base_value"]) == (1.0, 1.0)


def test_texts_are_explained_as_numbers_are() -> None:
    """A feature has the example's text or the background's; a text that equals the background's scores nothing."""
    points = {b"f": 2.0, b"m": 0.0, b"C": 1.0, b"S": 0.0}
    background = {"age": np.zeros((1, 1), np.float32), "text": np.array([[b"m", b"S"]], object)}

    def score(age: Any, text: Any) -> dict[str, Any]:
        return {"y": (age[:, 0] + [points[a] + points[b] for a, b in text]).astype(np.float32)}

    inputs = tensor([[5.0], [0.0]], "age") | tensor([[b"f", b"S"], [b"f", b"C"]], "text", BYTES)
    found = explain(Fake(score, explainer=Explainer(background)), inputs, {})
    assert [{name: part.tolist() for name, part in each["importance_scores"].items()} for each in found] == [
        {"age": [5.0], "text": [2.0, 0.0]},
        {"age": [0.0], "text": [2.0, 1.0]},
    ]


def test_long_texts_are_refused_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prediction copies them, so their length counts as often as there are predictions."""
    background = np.array([[b"m"]] * 3, object)
    model = Fake(column(lambda x: np.array([len(text) for (text,) in x])), explainer=Explainer({"x": background}))
    monkeypatch.setattr(explanation, "MOST_TEXT", 2 * 3 * 10)
    assert len(explain(model, tensor([[b"123456"], [b"1234"]], datatype=BYTES), {})) == 2
    model.asked.clear()
    message = "the examples have 11 bytes of text, which 6 predictions each would copy; one request may have 10"
    with pytest.raises(InvalidInput, match=message):
        explain(model, tensor([[b"123456"], [b"12345"]], datatype=BYTES), {})
    assert model.asked == []


@pytest.mark.parametrize(("function", "shape"), [
    (lambda x: x.sum(), "[]"), (lambda x: x[None], "[1, 2, 3]"), (lambda x: x[:1], "[1, 3]"),
    (lambda x: x[:, :0], "[2, 0]"),
])  # fmt: skip
def test_an_output_of_another_shape_cannot_be_explained(function: Any, shape: str) -> None:
    """An explanation needs a score for each row."""
    message = re.escape(f"output 'y' of model 'm' has shape {shape} for 2 rows; an explanation needs [rows] or")
    with pytest.raises(NotSupported, match=message):
        explain(Fake(column(function)), tensor(EXAMPLES), {})


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("when", [lambda x: x[:, 0] == 3, lambda x: (x[:, 0] == 3) & (x[:, 1] == 2)])
def test_scores_that_are_not_finite_are_the_models_failure(value: float, when: Any) -> None:
    """The score may be of the example itself, or of a mixture of it and the background."""
    model = Fake(column(lambda x: np.where(when(x), value, x.sum(1))))
    with pytest.raises(ModelFailed, match="model 'm' returned scores that are not finite"):
        explain(model, tensor(EXAMPLES[:1]), {})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_not_finite_because_of_the_input_are_the_requests_fault(value: float) -> None:
    """A model may make something of such an input; this one passes it on."""
    odd = np.array(EXAMPLES[:1], float)
    odd[0, 1] = value
    with pytest.raises(InvalidInput, match="not finite, which cannot be explained: input 'x' has values"):
        explain(Fake(column(lambda x: x.sum(1))), tensor(odd), {})


A_FLOAT, AN_INTEGER, TEXT = spec("f"), spec("i", datatype=INT64), spec("t", datatype=BYTES)


@pytest.mark.parametrize(("outputs", "name", "expected"), [
    ([TEXT, AN_INTEGER], None, "i"),
    ([AN_INTEGER, A_FLOAT, spec("l", labels=("no", "yes"))], None, "l"),
    ([AN_INTEGER, A_FLOAT, spec("probabilities")], None, "probabilities"),
    ([A_FLOAT, spec("scores")], None, "scores"),
    ([AN_INTEGER, A_FLOAT, spec("g")], None, "f"),
    ([AN_INTEGER, spec("h", datatype=BF16)], None, "h"),
    ([AN_INTEGER, spec("j", datatype=INT64)], None, "i"),
    ([A_FLOAT, AN_INTEGER], "i", "i"),
    ([A_FLOAT, TEXT], "t", None),
    ([A_FLOAT], "q", None),
    ([TEXT], None, None),
])  # fmt: skip
def test_one_output_is_explained(outputs: list[TensorSpec], name: str | None, expected: str | None) -> None:
    """It is the one that is named, else the only one, the one of scores, the first of floats, or the first."""
    found = explained(outputs, name)
    assert (found and found.name) == expected


@pytest.mark.parametrize("outputs", [None, (spec("y", None, BYTES),)])
def test_a_model_without_numbers_cannot_be_explained(outputs: Any) -> None:
    """The rule holds whether the spec or only the result shows it."""
    model = Fake(column(lambda x: Tensor("y", BYTES, np.full(len(x), b"a", object))), outputs=outputs)
    with pytest.raises(NotSupported, match="model 'm' has no output of numbers that could be explained"):
        explain(model, tensor(EXAMPLES), {})
    model.spec = model.spec._replace(explainer=Explainer({"x": BACKGROUND}, output="y"))
    with pytest.raises(NotSupported, match="model 'm' has no output of numbers 'y' that"):
        explain(model, tensor(EXAMPLES), {})
