"""core.engine is tested on models that answer what they are asked."""

import contextlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from core import engine
from core import operations as ops
from core.errors import InvalidInput, ModelFailed, NotSupported
from core.operations import Deferred, Explain, Infer, ModelSpec, RequestedOutput
from core.tensor import Tensor
from tests.support.engine_samples import FP32, INT32, REF, Echo, Request, Shelf, Use, put, run, same, sent, spec, tensor


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


@pytest.mark.parametrize(("inputs", "outputs", "batch", "shape"), [
    ((spec("a"),), (spec("y"),), 0, (2, 1)),
    ((spec("a", None),), (spec("y"),), 0, (1,)),
    ((spec("a", None),), (spec("y"),), 8, (2, 1)),
    (None, None, 0, (1,)),
    ((spec("a", (2, 2)),), (spec("y"),), 0, (1,)),
])  # fmt: skip
def test_classes_are_those_of_each_row_of_a_model_that_has_batches(
    inputs: Any, outputs: Any, batch: int, shape: tuple[int, ...]
) -> None:
    """It has a batch size, or the first axis of all its tensors varies; any other model's scores are one list."""
    model = Echo(inputs, outputs)
    model.spec = model.spec._replace(max_batch_size=batch)
    given = Tensor("a", FP32, np.array([[0.25, 0.75], [1, 0]], np.float32))
    (found,) = run(Infer(REF, (given,), (RequestedOutput("y", 1),)), model).outputs
    assert found.array.shape == shape


def test_only_the_outputs_that_ask_for_it_are_classified() -> None:
    """The classes have the labels of their output."""
    model = Echo((spec("a"),), (spec("y", labels=["no", "yes"]), spec("z")))
    given = Tensor("a", FP32, np.array([[0.25, 0.75]], np.float32))
    outputs = run(Infer(REF, (given,), (RequestedOutput("y", 1), RequestedOutput("z"))), model).outputs
    assert outputs[0].array.tolist() == [[b"0.750000:1:yes"]]
    assert outputs[1].array.tolist() == [[0.25, 0.75]]


class Everything:
    """core.ports.Models whose methods return their name and their arguments."""

    def __getattr__(self, name: str) -> Any:
        """Returns any method of the port except index."""
        return lambda *asked, **named: (name, *asked, *named.items())

    def index(self, _: Any) -> list[ops.IndexEntry]:
        """Returns one version of each state."""
        return [ops.IndexEntry("m", str(number), state) for number, state in enumerate(ops.State)]


CONTEXT = Request()


@pytest.mark.parametrize(("operation", "answer"), [
    (ops.ServerLive(), ops.Readiness(ready=True)),
    (ops.ServerReady(), ("ready", CONTEXT)),
    (ops.ServerMetadata(), ("server",)),
    (ops.ServerOverview(), (("server",), Everything().index(CONTEXT))),
    (ops.ServerSeries(), ("series",)),
    (ops.ListModels(), ("names", CONTEXT)),
    (ops.RepositoryIndex(), Everything().index(CONTEXT)),
    (ops.RepositoryIndex(ready_only=True), [ops.IndexEntry("m", "2", ops.State.READY)]),
    (ops.ModelReady(REF), ("readiness", REF, CONTEXT)),
    (ops.ModelMetadata(REF), ("describe", REF, CONTEXT)),
    (ops.ModelStatus(REF), ("status", REF, CONTEXT)),
    (ops.ModelStatistics(REF), ("statistics", REF, CONTEXT)),
    (ops.ModelStatistics(None), ("statistics", None, CONTEXT)),
    (ops.Load("m"), ("load", "m", CONTEXT, ("anew", True))),
    (ops.Load("m", anew=False), ("load", "m", CONTEXT, ("anew", False))),
    (ops.Unload("m"), ("unload", "m", CONTEXT)),
    (ops.SetOnline(online=False), ("set_online", ("online", False))),
], ids=lambda value: type(value).__name__)  # fmt: skip
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

    def decode(found: ModelSpec) -> tuple[Infer, Any]:
        asked.append(found)
        assert found.inputs is not None
        return Infer(REF, (tensor(found.inputs[0].name, 1, 2),)), lambda result: result.outputs[0].name

    assert run(Deferred(REF, decode), model) == "y"
    assert asked == [model.spec]


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
    """Returns an operation that asks for the elements back."""
    return Infer(REF, (Tensor("a", FP32, np.array(values, np.float32)),))


def test_a_question_uses_its_model_until_it_is_answered() -> None:
    """The model is asked for with the request's context, and is not in use after the answer."""
    shelf, request = Shelf(Counts()), Request()
    put(elements(1), shelf, request)
    assert shelf.asked == [(REF, request)]
    assert shelf.held.uses == 0


@pytest.mark.parametrize(("operation", "counts"), [
    (elements(1), ["answered"]),
    (elements(-1), ["failed"]),
    (Infer(REF, ()), ["failed"]),
    (Deferred(REF, lambda _: (elements(1), same)), ["answered"]),
    (Deferred(REF, lambda _: (elements(-1), same)), ["failed"]),
    (ops.Stream(elements(1, 2)), [("streamed", True)]),
    (ops.Stream(elements(1, -2)), [("streamed", False)]),
    (ops.Stream(Infer(REF, ())), [("streamed", False)]),
    (Deferred(REF, lambda _: (ops.Stream(elements(1)), same)), [("streamed", True)]),
    (ops.Custom(REF, "request"), ["custom", "failed"]),
    (Explain(elements(1)), ["explain", "failed"]),
])  # fmt: skip
def test_every_question_is_counted(operation: Any, counts: list[Any]) -> None:
    """A stream counts once, at its end; a question that does not fit its model counts as a failure, others by kind."""
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
        laziness.append(lazy)
        return reply

    shelf: Any = Shelf(Echo((spec("a", (-1,)),), (spec("y", (-1,)),)))
    engine.answer(ops.Stream(elements(1)), same, finish, shelf, request)  # type: ignore[arg-type] # stands for the port
    assert (laziness, request.counts) == ([False], [("streamed", True)])


@pytest.mark.parametrize(("model", "operation", "lazy"), [
    (Counts(), elements(1), False),
    (Counts(), ops.Stream(elements(1)), True),
    (None, ops.Custom(REF, "request"), True),
])  # fmt: skip
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
