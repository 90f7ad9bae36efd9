"""core.engine and core.classification, on a model that is a dictionary."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np
import pytest

from core import operations as ops
from core.classification import classify
from core.dtype import DATATYPES
from core.engine import MEANINGS, execute
from core.errors import InvalidInput, NotSupported
from core.operations import Deferred, Explain, Infer, ModelRef, ModelSpec, RequestedOutput
from core.tensor import Tensor, TensorSpec
from tests.support.v1_samples import signature

if typing.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FP32, INT32, BYTES = DATATYPES["FP32"], DATATYPES["INT32"], DATATYPES["BYTES"]
REF = ModelRef("m")


def spec(
    name: str, shape: tuple[int, ...] | None = (-1, 2), datatype: Any = FP32, labels: Sequence[str] = ()
) -> TensorSpec:
    """An input or output."""
    return TensorSpec(name, datatype, shape, tuple(labels))


class Echo:
    """Answers the array of input `a` under every output's name."""

    steady = True
    stream = None
    http: Any = None
    explain: Any = None

    def __init__(self, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None) -> None:
        self.spec = ModelSpec("m", "1", "test", inputs, outputs)
        self.asked: Sequence[str] = ()

    def predict(self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Mapping[str, Any]) -> list[Tensor]:
        """The only array there is."""
        self.asked = outputs
        return [Tensor(name, FP32, next(iter(inputs.values())).array) for name in outputs or ["free"]]


class Shelf:
    """core.ports.Models of one model."""

    def __init__(self, model: Echo) -> None:
        self.model = model

    def get(self, _: ModelRef) -> Echo:
        """Whatever the name."""
        return self.model


def tensor(name: str, *shape: int, datatype: Any = FP32) -> Tensor:
    """Zeros."""
    return Tensor(name, datatype, np.zeros(shape, datatype.numpy))


def run(operation: Infer, model: Echo | None = None) -> ops.InferResult:
    """Execute on a model of inputs a, b and outputs y, z."""
    model = model or Echo((spec("a"), spec("b")), (spec("y"), spec("z")))
    return execute(operation, Shelf(model))  # type: ignore[arg-type,no-any-return] # of the port, get alone


def test_every_operation_has_a_meaning() -> None:
    """None can be asked for in vain."""
    assert set(MEANINGS) == set(typing.get_args(ops.Operation))


def test_outputs_come_in_the_order_asked_else_in_the_models_own() -> None:
    """And nothing else comes."""
    inputs = (tensor("b", 1, 2), tensor("a", 1, 2))
    assert [t.name for t in run(Infer(REF, inputs)).outputs] == ["y", "z"]
    asked = (RequestedOutput("z"), RequestedOutput("y"))
    assert [t.name for t in run(Infer(REF, inputs, asked)).outputs] == ["z", "y"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((tensor("a", 1, 2),), "needs input 'b', which is missing"),
        ((), "needs input 'a', which is missing"),
        ((tensor("a", 1, 2), tensor("c", 1, 2)), "has no input 'c'; it has .'a', 'b'."),
        ((tensor("a", 1, 2), tensor("b", 1, 2), tensor("c", 1, 2)), "has no input 'c'"),
        ((tensor("a", 1, 2), tensor("a", 1, 2)), "input 'a' is given twice"),
        ((tensor("a", 1, 2), tensor("b", 1, 2, datatype=INT32)), "input 'b' is INT32; the model expects FP32"),
        ((tensor("a", 1, 3), tensor("b", 1, 2)), r"input 'a' has shape \[1, 3\]; the model expects \[-1, 2\]"),
        ((tensor("a", 2), tensor("b", 1, 2)), r"input 'a' has shape \[2\]"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused_by_name(inputs: tuple[Tensor, ...], message: str) -> None:
    """Before the model sees them."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, inputs))


@pytest.mark.parametrize(
    ("asked", "message"),
    [(["q"], "has no output 'q'; it has .'y', 'z'."), (["y", "y"], "output 'y' is asked for twice")],
)
def test_outputs_that_the_model_does_not_have_are_refused_by_name(asked: list[str], message: str) -> None:
    """Before the model runs."""
    outputs = tuple(RequestedOutput(name) for name in asked)
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (tensor("a", 1, 2), tensor("b", 1, 2)), outputs))


def test_a_model_that_says_nothing_of_its_tensors_takes_and_gives_anything() -> None:
    """Only a name given twice is wrong for every model."""
    model = Echo(None, None)
    assert [t.name for t in run(Infer(REF, (tensor("any", 3),)), model).outputs] == ["free"]
    assert [t.name for t in run(Infer(REF, (tensor("any", 3),), (RequestedOutput("q", 1),)), model).outputs] == ["q"]
    with pytest.raises(InvalidInput, match="twice"):
        run(Infer(REF, (tensor("any", 3), tensor("any", 3))), model)
    with pytest.raises(InvalidInput, match="does not say its inputs"):
        run(Infer(REF, (), raw=b""), model)


@pytest.mark.parametrize(
    ("shape", "raw", "expected"),
    [
        ((-1, 2), b"\0" * 16, (2, 2)),
        ((2, 2), b"\0" * 16, (2, 2)),
        ((), b"\0" * 4, ()),
        ((-1,), b"", (0,)),
        ((-1, 0), b"", (0, 0)),
    ],
)
def test_a_raw_request_takes_its_shape_from_the_model(
    shape: tuple[int, ...], raw: bytes, expected: tuple[int, ...]
) -> None:
    """One variable dimension follows from the size."""
    result = run(Infer(REF, (), raw=raw), Echo((spec("a", shape),), (spec("y"),)))
    assert result.outputs[0].array.shape == expected


@pytest.mark.parametrize(
    ("inputs", "raw", "message"),
    [
        ((spec("a"), spec("b")), b"", "for one input; model 'm' has 2"),
        ((spec("a", (-1, -1)),), b"", r"\[-1, -1\], which its size alone does not tell"),
        ((spec("a", None),), b"", "of any rank, which its size alone"),
        ((spec("a", (-1, 2)),), b"\0" * 7, "7 bytes"),
        ((spec("a", (2,), BYTES),), b"x", r"BYTES \[2\]; only BYTES \[1\] can be one element"),
        ((spec("a", None, BYTES),), b"x", "of any rank"),
    ],
)
def test_a_raw_request_that_is_not_clear_is_refused(inputs: tuple[TensorSpec, ...], raw: bytes, message: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (), raw=raw), Echo(inputs, (spec("y"),)))


def test_a_raw_request_may_be_one_text() -> None:
    """The whole body is the element."""
    result = run(Infer(REF, (), raw=b"ab"), Echo((spec("a", (1,), BYTES),), (spec("y"),)))
    assert result.outputs[0].array.tolist() == [b"ab"]


class Counts(Echo):
    """Gives as many answers as its input has elements; notes when it was left."""

    def __init__(self) -> None:
        super().__init__((spec("a", (-1,)),), (spec("y", (-1,)),))
        self.left = 0

    def stream(  # type: ignore[override] # Echo has none
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Mapping[str, Any]
    ) -> Iterator[list[Tensor]]:
        """Element by element."""
        self.asked = outputs
        try:
            for element in inputs["a"].array:
                yield [Tensor("y", FP32, np.array([element]))]
        finally:
            self.left += 1


def stream(model: Any, *inputs: Tensor, outputs: Sequence[str] = ()) -> Any:
    """The answers to a stream's question."""
    return execute(ops.Stream(ops.Infer(REF, inputs, tuple(map(RequestedOutput, outputs)))), Shelf(model))  # type: ignore[arg-type]


def test_a_whole_request_is_answered_by_the_models_own_function() -> None:
    """Where it has one."""
    model = Echo(None, None)
    asked = ops.Custom(REF, "request")
    with pytest.raises(NotSupported, match=r"model 'm' has no function http\(request\)"):
        execute(asked, Shelf(model))  # type: ignore[arg-type]
    model.http = str.upper
    assert execute(asked, Shelf(model)) == "REQUEST"  # type: ignore[arg-type]


def test_a_stream_has_as_many_answers_as_the_model_gives() -> None:
    """Each with the model's name and version."""
    model = Counts()
    answers = list(stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)), outputs=["y"]))
    assert [(a.model_name, a.model_version, a.outputs[0].array.tolist()) for a in answers] == [
        ("m", "1", [1.0]),
        ("m", "1", [2.0]),
    ]
    assert (model.asked, model.left) == (["y"], 1)


def test_a_stream_of_a_model_that_does_not_stream_is_one_answer_that_is_there() -> None:
    """A tuple: who sends it need not wait for a next one."""
    model = Echo((spec("a", (-1,)),), (spec("y", (-1,)),))
    answers = stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)))
    assert isinstance(answers, tuple)
    assert [answer.outputs[0].array.tolist() for answer in answers] == [[1.0, 2.0]]


def test_a_stream_that_is_left_ends_the_models_own() -> None:
    """So that it may free what it holds."""
    model = Counts()
    answers = stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)))
    next(answers)
    assert model.left == 0
    answers.close()
    assert model.left == 1


def test_a_question_that_does_not_fit_is_refused_before_its_stream_begins() -> None:
    """As without a stream."""
    with pytest.raises(InvalidInput, match="no output 'q'"):
        stream(Counts(), Tensor("a", FP32, np.array([1], np.float32)), outputs=["q"])
    with pytest.raises(InvalidInput, match="the model expects FP32"):
        stream(Counts(), Tensor("a", INT32, np.array([1], np.int32)))


def test_only_the_outputs_that_ask_for_it_are_classified() -> None:
    """With the labels of that output."""
    model = Echo((spec("a"),), (spec("y", labels=["no", "yes"]), spec("z")))
    given = Tensor("a", FP32, np.array([[0.25, 0.75]], np.float32))
    outputs = run(Infer(REF, (given,), (RequestedOutput("y", 1), RequestedOutput("z"))), model).outputs
    assert outputs[0].array.tolist() == [[b"0.750000:1:yes"]]
    assert outputs[1].array.tolist() == [[0.25, 0.75]]


@pytest.mark.parametrize(
    ("scores", "classes", "expected"),
    [
        ([3, 1, 2], 2, [b"3.000000:0:a", b"2.000000:2"]),
        ([1, 1], 9, [b"1.000000:0:a", b"1.000000:1:b"]),
        ([[0, 1], [1, 0]], 1, [[b"1.000000:1:b"], [b"1.000000:0:a"]]),
        ([np.nan, 1], 2, [b"1.000000:1:b", b"nan:0:a"]),
        (np.array([0, 255], np.uint8), 2, [b"255.000000:1:b", b"0.000000:0:a"]),
        ([], 3, []),
    ],
)
def test_classes_come_by_value_with_index_and_label(scores: Any, classes: int, expected: list[Any]) -> None:
    """Equal values by index, NaN last, no label where there is none."""
    assert classify(Tensor("y", FP32, np.asarray(scores)), classes, ("a", "b")).array.tolist() == expected


@pytest.mark.parametrize("array", [np.array(1.0), np.array([b"x"], object)])
def test_what_has_no_scores_is_not_classified(array: Any) -> None:
    """A scalar, text."""
    with pytest.raises(InvalidInput, match="cannot be classified"):
        classify(Tensor("y", BYTES if array.dtype == object else FP32, array), 1, ())


class Everything:
    """core.ports.Models that answer a question with its name and what was asked."""

    def __getattr__(self, name: str) -> Any:
        """Any method of the port but index."""
        return lambda *asked, **named: (name, *asked, *named.items())

    def index(self) -> list[ops.IndexEntry]:
        """One version of each state."""
        return [ops.IndexEntry("m", str(number), state) for number, state in enumerate(ops.State)]


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (ops.ServerLive(), ops.Readiness(ready=True)),
        (ops.ServerReady(), ("ready",)),
        (ops.ServerMetadata(), ("server",)),
        (ops.ServerOverview(), (("server",), Everything().index())),
        (ops.ListModels(), ("names",)),
        (ops.ModelReady(REF), ("readiness", REF)),
        (ops.ModelMetadata(REF), ("describe", REF)),
        (ops.ModelStatus(REF), ("status", REF)),
        (ops.ModelStatistics(REF), ("statistics", REF)),
        (ops.ModelStatistics(None), ("statistics", None)),
    ],
)
def test_a_question_about_models_is_put_to_them(operation: ops.Operation, answer: Any) -> None:
    """That the process lives needs no asking."""
    assert execute(operation, Everything()) == answer  # type: ignore[arg-type] # stands for the port


def test_the_index_has_every_version_or_those_that_are_ready() -> None:
    """As it is asked."""
    entries = Everything().index()
    assert execute(ops.RepositoryIndex(), Everything()) == entries  # type: ignore[arg-type] # stands for the port
    ready = execute(ops.RepositoryIndex(ready_only=True), Everything())  # type: ignore[arg-type] # stands for the port
    assert ready == [entry for entry in entries if entry.state is ops.State.READY]
    assert len(ready) == 1


def test_loading_and_unloading_have_no_result() -> None:
    """That they did not fail is the answer."""
    for operation in (ops.Load("m"), ops.Unload("m"), ops.SetOnline(online=False)):
        assert execute(operation, Everything()) is None  # type: ignore[arg-type] # stands for the port


class Explaining(Echo):
    """Explains each example by its place, and keeps what it was asked."""

    def explain(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A member for each."""
        self.explained = inputs, parameters
        return [{"place": place} for place in range(len(inputs["a"].array))]


def test_an_explanation_is_of_the_same_inputs_as_its_inference() -> None:
    """Checked alike; the parameters reach both."""
    model = Explaining((spec("a"),), (spec("y"), spec("z")))
    infer = Infer(REF, (tensor("a", 2, 2),), (RequestedOutput("y"),), {"p": 1})
    result = execute(Explain(infer), Shelf(model))  # type: ignore[arg-type] # of the port, get alone
    assert result.explanations == [{"place": 0}, {"place": 1}]
    assert [t.name for t in result.inferred.outputs] == ["y"]
    assert (result.inferred.model_name, result.inferred.model_version) == ("m", "1")
    assert list(model.explained[0]) == ["a"]
    assert model.explained[1] == {"p": 1}
    with pytest.raises(InvalidInput, match="input 'a' has shape"):
        execute(Explain(Infer(REF, (tensor("a", 2),))), Shelf(model))  # type: ignore[arg-type] # of the port, get alone


def test_what_no_model_explains_and_no_setting_is_not_supported() -> None:
    """Before the model is asked for anything."""
    model = Echo((spec("a"),), (spec("y"),))
    with pytest.raises(NotSupported):
        execute(Explain(Infer(REF, (tensor("a", 1, 2),))), Shelf(model))  # type: ignore[arg-type] # of the port, get alone
    assert model.asked == ()


def test_a_question_that_needs_the_models_spec_is_answered_in_its_own_words() -> None:
    """Decoded once the model is there, then executed, then phrased."""
    model, asked = Echo((spec("a"),), (spec("y"),)), []

    def decode(told: ModelSpec) -> tuple[Infer, Any]:
        asked.append(told)
        assert told.inputs is not None
        return Infer(REF, (tensor(told.inputs[0].name, 1, 2),)), lambda result: result.outputs[0].name

    assert execute(Deferred(REF, decode), Shelf(model)) == "y"  # type: ignore[arg-type] # of the port, get alone
    assert asked == [model.spec]


def optional(*signatures: Any) -> Echo:
    """A model of inputs a and b, of which b may be missing, and outputs y and z."""
    model = Echo((spec("a"), spec("b")._replace(optional=True)), (spec("y"), spec("z")))
    model.spec = model.spec._replace(signatures={str(n): s for n, s in enumerate(signatures)})
    return model


def test_an_input_that_a_signature_does_without_may_be_missing() -> None:
    """Where that signature's outputs are wanted, and no others."""
    model = optional(signature({"a": "a"}, {"y": "y"}), signature({"a": "a", "b": "b"}, {"z": "z"}))
    only = (tensor("a", 1, 2),)
    assert [t.name for t in run(Infer(REF, only, (RequestedOutput("y"),)), model).outputs] == ["y"]
    both = run(Infer(REF, (*only, tensor("b", 1, 2)), (RequestedOutput("z"),)), model)
    assert [t.name for t in both.outputs] == ["z"]
    for outputs in ((RequestedOutput("z"),), (RequestedOutput("y"), RequestedOutput("z")), ()):
        with pytest.raises(InvalidInput, match="needs input 'b', which is missing"):
            run(Infer(REF, only, outputs), model)
    with pytest.raises(InvalidInput, match="needs input 'a', which is missing"):
        run(Infer(REF, (tensor("b", 1, 2),), (RequestedOutput("y"),)), model)
    with pytest.raises(InvalidInput, match="has no input 'q'"):
        run(Infer(REF, (*only, tensor("q", 1)), (RequestedOutput("y"),)), model)


def test_a_signature_that_takes_anything_needs_nothing() -> None:
    """Without signatures every input is needed."""
    only = Infer(REF, (tensor("a", 1, 2),), (RequestedOutput("y"),))
    assert len(run(only, optional(signature(None, {"y": "y"}))).outputs) == 1
    with pytest.raises(InvalidInput, match="needs input 'b'"):
        run(only, optional())
