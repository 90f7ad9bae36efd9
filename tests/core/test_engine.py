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
from core.errors import InvalidInput
from core.operations import Infer, ModelRef, ModelSpec, RequestedOutput
from core.tensor import Tensor, TensorSpec

if typing.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
