"""core.engine, core.checks and core.classification, on models that answer what they are asked."""

from __future__ import annotations

import contextlib
import typing
from typing import Any

import numpy as np
import pytest

from core import engine
from core import operations as ops
from core.classification import classify
from core.deadline import NEVER
from core.dtype import DATATYPES
from core.errors import InvalidInput, ModelFailed, NotSupported
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
        """Returns the only array."""
        self.asked = outputs
        return [Tensor(name, FP32, next(iter(inputs.values())).array) for name in outputs or ["free"]]


class Use:
    """A use of a model, which counts how many have not ended."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.uses = 0

    def __enter__(self) -> Any:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.uses -= 1

    def again(self) -> Use:
        """Counts one more."""
        self.uses += 1
        return self


class Shelf:
    """core.ports.Models of one model. `asked`: the reference and the context of each use."""

    def __init__(self, model: Any) -> None:
        self.held = Use(model)
        self.asked: list[tuple[ModelRef, Any]] = []

    def use(self, ref: ModelRef, context: Any) -> Use:
        """Returns a use of the model, whatever its name."""
        self.asked.append((ref, context))
        return self.held.again()


class Request:
    """core.ports.Context that keeps the names of its counts, and whether a stream succeeded."""

    deadline = NEVER

    def __init__(self) -> None:
        self.counts: list[Any] = []
        self.used: list[Use] = []

    def found(self, use: Use) -> None:
        """Keeps the use."""
        assert use.uses
        self.used.append(use)

    def answered(self, use: Use, decoded: int, inferred: int) -> None:
        """Keeps the name."""
        assert (decoded <= inferred, use.uses) == (True, 1)
        self.counts.append("answered")

    def streamed(self, use: Use, decoded: int, infer: int, *, success: bool) -> None:
        """Keeps the name and the success."""
        assert min(decoded, infer) >= 0
        self.counts.append(("streamed", success))

    def failed(self, use: Use) -> None:
        """Keeps the name."""
        self.counts.append("failed")


def tensor(name: str, *shape: int, datatype: Any = FP32) -> Tensor:
    """Zeros."""
    return Tensor(name, datatype, np.zeros(shape, datatype.numpy))


def same(result: Any) -> Any:
    """A reply that changes nothing."""
    return result


def sent(reply: Any, operation: Any, use: Any, *, lazy: bool) -> Any:
    """A finish that changes nothing, and keeps a lazy answer's model in use."""
    return engine.kept(use, reply) if lazy and not isinstance(operation, ops.Custom) else reply


def put(operation: Any, models: Any, context: Any = None) -> Any:
    """Returns the operation's result."""
    return engine.answer(operation, same, sent, models, context or Request())


def run(operation: Any, model: Any = None) -> Any:
    """Returns what a model answers, by default one of inputs a, b and outputs y, z."""
    return put(operation, Shelf(model or Echo((spec("a"), spec("b")), (spec("y"), spec("z")))))


def test_every_operation_is_answered_by_the_server_or_by_a_model() -> None:
    """Each operation stands in exactly one of the two tables, except Deferred, which becomes another one."""
    assert {*engine.MEANINGS, *engine.ANSWERS, ops.Deferred} == set(typing.get_args(ops.Operation))
    assert not engine.MEANINGS.keys() & engine.ANSWERS.keys()
    assert engine.COUNTED.keys() <= engine.ANSWERS.keys()


def test_outputs_come_in_the_order_asked_else_in_the_models_own() -> None:
    """The result has the outputs that the request names, or all of them."""
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
    """The refusal names the input that is missing, unknown, given twice or of another datatype or shape."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, inputs))


@pytest.mark.parametrize(
    ("asked", "message"),
    [(["q"], "has no output 'q'; it has .'y', 'z'."), (["y", "y"], "output 'y' is asked for twice")],
)
def test_outputs_that_the_model_does_not_have_are_refused_by_name(asked: list[str], message: str) -> None:
    """The refusal names the output that is unknown or asked for twice."""
    outputs = tuple(RequestedOutput(name) for name in asked)
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (tensor("a", 1, 2), tensor("b", 1, 2)), outputs))


def test_a_model_that_says_nothing_of_its_tensors_takes_and_gives_anything() -> None:
    """A model without a spec refuses a name given twice and a raw request, and nothing else."""
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
    """The one variable dimension follows from the size."""
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
    """Several inputs, several variable dimensions and several texts are refused."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (), raw=raw), Echo(inputs, (spec("y"),)))


def test_a_raw_request_may_be_one_text() -> None:
    """The whole body is the element."""
    result = run(Infer(REF, (), raw=b"ab"), Echo((spec("a", (1,), BYTES),), (spec("y"),)))
    assert result.outputs[0].array.tolist() == [b"ab"]


class Counts(Echo):
    """Answers as often as its input has elements. `left`: how often its stream ended."""

    def __init__(self) -> None:
        super().__init__((spec("a", (-1,)),), (spec("y", (-1,)),))
        self.left = 0

    def stream(  # type: ignore[override] # Echo has none
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Mapping[str, Any]
    ) -> Iterator[list[Tensor]]:
        """Yields the elements one by one."""
        self.asked = outputs
        try:
            for element in inputs["a"].array:
                yield [Tensor("y", FP32, np.array([element]))]
        finally:
            self.left += 1


def stream(model: Any, *inputs: Tensor, outputs: Sequence[str] = ()) -> Any:
    """Returns the answers of a stream."""
    return run(ops.Stream(Infer(REF, inputs, tuple(map(RequestedOutput, outputs)))), model)


def test_a_whole_request_is_answered_by_the_models_own_function() -> None:
    """A model without the function http(request) raises NotSupported."""
    model = Echo(None, None)
    asked = ops.Custom(REF, "request")
    with pytest.raises(NotSupported, match=r"model 'm' has no function http\(request\)"):
        run(asked, model)
    model.http = str.upper
    assert run(asked, model) == "REQUEST"


def test_a_stream_has_as_many_answers_as_the_model_gives() -> None:
    """Each answer has the model's name and version."""
    model = Counts()
    answers = list(stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)), outputs=["y"]))
    assert [(a.model_name, a.model_version, a.outputs[0].array.tolist()) for a in answers] == [
        ("m", "1", [1.0]),
        ("m", "1", [2.0]),
    ]
    assert (model.asked, model.left) == (["y"], 1)


def test_a_stream_of_a_model_that_does_not_stream_is_one_answer_that_is_there() -> None:
    """The result is a tuple of one answer."""
    model = Echo((spec("a", (-1,)),), (spec("y", (-1,)),))
    answers = stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)))
    assert isinstance(answers, tuple)
    assert [answer.outputs[0].array.tolist() for answer in answers] == [[1.0, 2.0]]


def test_a_stream_that_is_left_ends_the_models_own() -> None:
    """Closing the answers closes the model's generator."""
    model = Counts()
    answers = stream(model, Tensor("a", FP32, np.array([1, 2], np.float32)))
    next(answers)
    assert model.left == 0
    answers.close()
    assert model.left == 1


def test_a_question_that_does_not_fit_is_refused_before_its_stream_begins() -> None:
    """The check raises before the first answer is asked for."""
    with pytest.raises(InvalidInput, match="no output 'q'"):
        stream(Counts(), Tensor("a", FP32, np.array([1], np.float32)), outputs=["q"])
    with pytest.raises(InvalidInput, match="the model expects FP32"):
        stream(Counts(), Tensor("a", INT32, np.array([1], np.int32)))


def test_only_the_outputs_that_ask_for_it_are_classified() -> None:
    """The classes have the labels of their output."""
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
    """Equal values come by index, NaN comes last, and a class may have no label."""
    assert classify(Tensor("y", FP32, np.asarray(scores)), classes, ("a", "b")).array.tolist() == expected


@pytest.mark.parametrize("array", [np.array(1.0), np.array([b"x"], object)])
def test_what_has_no_scores_is_not_classified(array: Any) -> None:
    """A scalar and a text raise InvalidInput."""
    with pytest.raises(InvalidInput, match="cannot be classified"):
        classify(Tensor("y", BYTES if array.dtype == object else FP32, array), 1, ())


class Everything:
    """core.ports.Models that answer a question with its name and what was asked."""

    def __getattr__(self, name: str) -> Any:
        """Returns any method of the port except index."""
        return lambda *asked, **named: (name, *asked, *named.items())

    def index(self, _: Any) -> list[ops.IndexEntry]:
        """Returns one version of each state."""
        return [ops.IndexEntry("m", str(number), state) for number, state in enumerate(ops.State)]


CONTEXT = Request()


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (ops.ServerLive(), ops.Readiness(ready=True)),
        (ops.ServerReady(), ("ready", CONTEXT)),
        (ops.ServerMetadata(), ("server",)),
        (ops.ServerOverview(), (("server",), Everything().index(CONTEXT))),
        (ops.ListModels(), ("names", CONTEXT)),
        (ops.RepositoryIndex(), Everything().index(CONTEXT)),
        (ops.RepositoryIndex(ready_only=True), [ops.IndexEntry("m", "2", ops.State.READY)]),
        (ops.ModelReady(REF), ("readiness", REF, CONTEXT)),
        (ops.ModelMetadata(REF), ("describe", REF, CONTEXT)),
        (ops.ModelStatus(REF), ("status", REF, CONTEXT)),
        (ops.ModelStatistics(REF), ("statistics", REF, CONTEXT)),
        (ops.ModelStatistics(None), ("statistics", None, CONTEXT)),
        (ops.Load("m"), ("load", "m", CONTEXT)),
        (ops.Unload("m"), ("unload", "m", CONTEXT)),
        (ops.SetOnline(online=False), ("set_online", ("online", False))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_server_answers_what_is_not_a_question_to_one_model(operation: ops.Operation, answer: Any) -> None:
    """The method of the port gets the request's context, and its result is finished without a use."""
    finished: list[Any] = []

    def finish(reply: Any, asked: Any, use: Any, *, lazy: bool) -> Any:
        finished.append((asked, use, lazy))
        return reply

    models: Any = Everything()
    assert engine.answer(operation, lambda result: ["phrased", result], finish, models, CONTEXT) == ["phrased", answer]
    assert finished == [(operation, None, False)]


class Explaining(Echo):
    """Explains each example by its place, and keeps what it was asked."""

    def explain(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns a member for each example."""
        self.explained = inputs, parameters
        return [{"place": place} for place in range(len(inputs["a"].array))]


def test_an_explanation_is_of_the_same_inputs_as_its_inference() -> None:
    """The inputs are checked alike, and the parameters reach the explanation."""
    model = Explaining((spec("a"),), (spec("y"), spec("z")))
    infer = Infer(REF, (tensor("a", 2, 2),), (RequestedOutput("y"),), {"p": 1})
    result = run(Explain(infer), model)
    assert result.explanations == [{"place": 0}, {"place": 1}]
    assert [t.name for t in result.inferred.outputs] == ["y"]
    assert (result.inferred.model_name, result.inferred.model_version) == ("m", "1")
    assert list(model.explained[0]) == ["a"]
    assert model.explained[1] == {"p": 1}
    with pytest.raises(InvalidInput, match="input 'a' has shape"):
        run(Explain(Infer(REF, (tensor("a", 2),))), model)


def test_what_no_model_explains_and_no_setting_is_not_supported() -> None:
    """The model makes no prediction before the refusal."""
    model = Echo((spec("a"),), (spec("y"),))
    with pytest.raises(NotSupported):
        run(Explain(Infer(REF, (tensor("a", 1, 2),))), model)
    assert model.asked == ()


def test_a_question_that_needs_the_models_spec_is_answered_in_its_own_words() -> None:
    """The operation is decoded with the spec of the model in use, and its own reply phrases the result."""
    model, asked = Echo((spec("a"),), (spec("y"),)), []

    def decode(told: ModelSpec) -> tuple[Infer, Any]:
        asked.append(told)
        assert told.inputs is not None
        return Infer(REF, (tensor(told.inputs[0].name, 1, 2),)), lambda result: result.outputs[0].name

    assert run(Deferred(REF, decode), model) == "y"
    assert asked == [model.spec]


def optional(*signatures: Any) -> Echo:
    """A model of inputs a and b, of which b may be missing, and outputs y and z."""
    model = Echo((spec("a"), spec("b")._replace(optional=True)), (spec("y"), spec("z")))
    model.spec = model.spec._replace(signatures={str(n): s for n, s in enumerate(signatures)})
    return model


def test_an_input_that_a_signature_does_without_may_be_missing() -> None:
    """Only that signature's outputs may be asked for without the input."""
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
    """A model without signatures needs every input."""
    only = Infer(REF, (tensor("a", 1, 2),), (RequestedOutput("y"),))
    assert len(run(only, optional(signature(None, {"y": "y"}))).outputs) == 1
    with pytest.raises(InvalidInput, match="needs input 'b'"):
        run(only, optional())


class Fails(Counts):
    """Fails at a negative element, in one answer as in a stream."""

    def predict(self, inputs: Mapping[str, Tensor], *asked: Any) -> list[Tensor]:
        """Raises ModelFailed, or returns the elements."""
        list(self.stream(inputs, *asked))
        return super().predict(inputs, *asked)

    def stream(self, inputs: Mapping[str, Tensor], *asked: Any) -> Iterator[list[Tensor]]:  # type: ignore[override] # as above
        """Yields the elements up to the first negative one."""
        for answer in super().stream(inputs, *asked):
            if answer[0].array[0] < 0:
                raise ModelFailed("negative")
            yield answer


def elements(*values: float) -> Infer:
    """Asks for the elements back."""
    return Infer(REF, (Tensor("a", FP32, np.array(values, np.float32)),))


def test_a_question_uses_its_model_until_it_is_answered() -> None:
    """The request's context gets the use before the answer, and the model is not in use after it."""
    shelf, request = Shelf(Counts()), Request()
    put(elements(1), shelf, request)
    assert shelf.asked == [(REF, request)]
    assert request.used == [shelf.held]
    assert shelf.held.uses == 0


@pytest.mark.parametrize(
    ("operation", "counts"),
    [
        (elements(1), ["answered"]),
        (elements(-1), ["failed"]),
        (Infer(REF, ()), ["failed"]),
        (Deferred(REF, lambda _: (elements(1), same)), ["answered"]),
        (Deferred(REF, lambda _: (elements(-1), same)), ["failed"]),
        (ops.Stream(elements(1, 2)), [("streamed", True)]),
        (ops.Stream(elements(1, -2)), [("streamed", False)]),
        (ops.Stream(Infer(REF, ())), [("streamed", False)]),
        (Deferred(REF, lambda _: (ops.Stream(elements(1)), same)), [("streamed", True)]),
        (ops.Custom(REF, "request"), []),
        (Explain(elements(1)), []),
    ],
)
def test_only_inferences_and_streams_are_counted(operation: Any, counts: list[Any]) -> None:
    """A stream counts once, at its end; a question that does not fit its model counts as a failure."""
    shelf, request = Shelf(Fails()), Request()
    with contextlib.suppress(InvalidInput, ModelFailed, NotSupported):
        list(put(operation, shelf, request))
    assert request.counts == counts
    assert shelf.held.uses == 0


def test_a_failure_to_phrase_an_answer_counts_as_a_failed_inference() -> None:
    """The reply is part of the inference."""

    def reply(_: Any) -> Any:
        raise InvalidInput("no number")

    request = Request()
    with pytest.raises(InvalidInput, match="no number"):
        engine.answer(elements(1), reply, sent, Shelf(Counts()), request)  # type: ignore[arg-type] # stand for ports
    assert request.counts == ["failed"]


def test_a_stream_of_a_model_that_does_not_stream_is_counted_before_it_is_sent() -> None:
    """Its finish is not lazy."""
    request, laziness = Request(), []

    def finish(reply: Any, operation: Any, use: Any, *, lazy: bool) -> Any:
        laziness.append((lazy, list(request.counts)))
        return reply

    shelf: Any = Shelf(Echo((spec("a", (-1,)),), (spec("y", (-1,)),)))
    engine.answer(ops.Stream(elements(1)), same, finish, shelf, request)  # type: ignore[arg-type] # stands for the port
    assert laziness == [(False, [("streamed", True)])]


@pytest.mark.parametrize(
    ("model", "operation", "lazy"),
    [
        (Counts(), elements(1), False),
        (Counts(), ops.Stream(elements(1)), True),
        (None, ops.Custom(REF, "request"), True),
    ],
)
def test_only_what_a_model_may_make_bit_by_bit_is_finished_lazily(model: Any, operation: Any, *, lazy: bool) -> None:
    """The finish gets the operation that was answered, and the use."""
    model = model or Echo(None, None)
    model.http = str.upper
    shelf: Any = Shelf(model)
    finished = []

    def finish(reply: Any, asked: Any, use: Any, *, lazy: bool) -> None:
        finished.append((asked, use, lazy))

    deferred: Any = Deferred(REF, lambda _: (operation, same))
    engine.answer(deferred, lambda _: pytest.fail("replaced"), finish, shelf, Request())  # type: ignore[arg-type] # stands for the port
    assert finished == [(operation, shelf.held, lazy)]


def test_a_stream_that_is_left_early_is_not_counted() -> None:
    """Its model is not in use afterwards."""
    shelf, request = Shelf(Counts()), Request()
    answers = put(ops.Stream(elements(1, 2)), shelf, request)
    next(answers)
    assert shelf.held.uses == 1
    answers.close()
    assert (request.counts, shelf.held.uses, shelf.held.model.left) == ([], 0, 1)


@pytest.mark.parametrize("leave", [list, next, lambda items: items.close(), lambda _: None])
def test_kept_items_keep_their_model_in_use_until_they_end_or_are_dropped(leave: Any) -> None:
    """A client may leave before the first item is made, and the items need not have an end of their own."""
    use: Any = Use(None)
    for items in (iter([1, 2]), (number for number in (1, 2))):
        kept = engine.kept(use, items)
        assert use.uses == 1
        leave(kept)
        del kept
        assert use.uses == 0
