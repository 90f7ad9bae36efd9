"""core.batches: which inferences may run as one, and what each gets of it."""

from typing import Any

import numpy as np
import pytest

from core import engine
from core import operations as ops
from core.batches import Prepared, Ran, join, split, steps
from core.dtype import OBJECT
from core.errors import InvalidInput, ModelFailed
from core.operations import Explain, Infer, RequestedOutput
from core.tensor import Tensor
from tests.core.test_engine import Counts
from tests.support.engine_samples import BYTES, FP32, INT32, REF, Echo, Request, Shelf, Use, same, sent, spec, tensor

MODEL = Echo((spec("a", (-1, 2)),), (spec("y"), spec("z")))


class Member(Request):
    """A request that may run with others, with what it was told of its time."""

    def batched(self, use: Use, decoded: int, resumed: int, waited: int, rows: int = 1) -> None:
        assert (decoded <= resumed, 0 <= waited <= resumed - decoded, use.uses, rows) == (True, True, 1, 1)
        self.counts.append("batched")


def asked(*inputs: Tensor, names: Any = ("y",), parameters: Any = None, model: Any = MODEL) -> Prepared:
    """An inference before its model runs."""
    return Prepared(Use(model), {each.name: each for each in inputs}, list(names), parameters or {})


ONE = asked(tensor("a", 1, 2))


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (asked(tensor("a", 5, 2)), True),
        (asked(tensor("a", 1, 3)), False),
        (asked(tensor("a", 1, 2, 1)), False),
        (asked(tensor("a", 1, 2, datatype=INT32)), False),
        (asked(tensor("b", 1, 2)), False),
        (asked(tensor("a", 1, 2), tensor("b", 1, 2)), False),
        (asked(tensor("a", 1, 2), names=("y", "z")), False),
        (asked(tensor("a", 1, 2), parameters={"k": 1}), False),
        (asked(tensor("a", 1, 2), model=Echo(None, None)), False),
    ],
)
def test_only_inferences_that_differ_in_their_rows_are_of_one_kind(other: Prepared, *, equal: bool) -> None:
    """The version, names, datatypes, shapes of a row, outputs and parameters are the same."""
    assert (other.kind == ONE.kind) == equal


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ({"a": 1, "b": [1]}, {"b": [1], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": [1] * 70_000}, {"a": [1] * 70_000}, False),
        ({"a": "e" * 70_000}, {"a": "e" * 70_000}, False),
        ({"a": {"e" * 70_000: 1}}, {"a": {"e" * 70_000: 1}}, False),
        ({"a": ["e"] * 100}, {"a": ["e"] * 100}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": {"b": []}}, {"a": {"b": {}}}, False),
    ],
)
def test_parameters_are_equal_if_a_model_could_not_tell_them_apart(first: Any, second: Any, *, equal: bool) -> None:
    """Values that Python calls equal may be different things."""
    kinds = [asked(tensor("a", 1, 2), parameters=each).kind for each in (first, second)]
    assert (kinds[0] == kinds[1]) == equal


@pytest.mark.parametrize(
    ("shapes", "rows"), [([(3, 2)], 3), ([(3, 2), (3,)], 3), ([(3, 2), (2, 2)], 0), ([()], 0), ([(0, 2)], 0), ([], 0)]
)
def test_a_request_has_rows_if_all_its_inputs_have_the_same_number(shapes: list[tuple[int, ...]], rows: int) -> None:
    """A scalar has none."""
    assert asked(*(tensor(f"x{place}", *shape) for place, shape in enumerate(shapes))).rows == rows


def test_a_requests_size_counts_its_texts() -> None:
    """Their array has pointers only."""
    texts = np.array([b"ab", b"cde"], object)
    assert asked(tensor("a", 3, 2), Tensor("b", BYTES, texts)).size == 24 + 5 + 2 * OBJECT


def test_what_is_joined_is_split_again() -> None:
    """Bit for bit, and nothing of the others stays in memory with a part."""
    arrays = [np.array([[np.nan, -0.0]], np.float32), np.ones((2, 2), np.float32), np.full((1, 2), 7, np.float32)]
    joined = join([asked(Tensor("a", FP32, array)) for array in arrays])["a"]
    parts = split([joined, Tensor("n", INT32, np.arange(4, dtype=np.int32))], [1, 2, 1])
    assert parts is not None
    assert [part[0].array.tobytes() for part in parts] == [array.tobytes() for array in arrays]
    assert [part[1].array.tolist() for part in parts] == [[0], [1, 2], [3]]
    assert all(each.array.base is None and (each.name, each.datatype) == ("a", FP32) for each, _ in parts)


@pytest.mark.parametrize("shape", [(), (1,), (4, 2), (2, 3)])
def test_outputs_without_a_row_for_each_row_cannot_be_split(shape: tuple[int, ...]) -> None:
    """One such output is enough."""
    assert split([tensor("y", 3, 2), tensor("z", *shape)], [1, 2]) is None


def begun(operation: Any, model: Any = MODEL) -> tuple[Any, Any, Shelf, Member]:
    """Returns an operation's steps, the first halt, and the stand-ins that it saw."""
    shelf, member = Shelf(model), Member()
    made = steps(operation, same, sent, shelf, member)
    return made, next(made), shelf, member


def ended(made: Any, ran: Any) -> Any:
    """Returns the answer at the end of the steps."""
    with pytest.raises(StopIteration) as end:
        made.send(ran)
    return end.value.value


INFER = Infer(REF, (tensor("a", 1, 2),), (RequestedOutput("z"), RequestedOutput("y", classes=1)))


def test_an_inference_halts_before_its_model() -> None:
    """It gets its own outputs, in the form that it asked for, and its use ends with its answer."""
    made, halt, shelf, member = begun(ops.Deferred(REF, lambda _: (INFER, same)))
    assert (list(halt.names), shelf.held.uses, member.counts) == (["z", "y"], 1, [])
    answer = ended(made, Ran([tensor("z", 1, 2), tensor("y", 1, 2)], 0))
    assert [(each.name, each.datatype.name) for each in answer.outputs] == [("z", "FP32"), ("y", "BYTES")]
    assert (shelf.held.uses, member.counts) == (0, ["batched"])
    alone = engine.answer(INFER, same, sent, Shelf(MODEL), Request())
    assert [each.array.tolist() for each in answer.outputs] == [each.array.tolist() for each in alone.outputs]


def test_a_stream_of_one_answer_halts_as_well() -> None:
    """The answer is a tuple, as without a halt."""
    made, halt, _, member = begun(ops.Stream(INFER))
    (answer,) = ended(made, Ran([tensor("z", 1, 2), tensor("y", 1, 2)], 0))
    assert (list(halt.names), answer.outputs[0].name, member.counts) == (["z", "y"], "z", ["batched"])


def test_what_is_no_inference_is_answered_after_the_halt() -> None:
    """So is a stream of a model with many answers."""
    counts, three = Counts(), Tensor("a", FP32, np.zeros(3, np.float32))
    made, halt, shelf, member = begun(ops.Stream(Infer(REF, (three,))), counts)
    answers = ended(made, None)
    assert (halt, len(list(answers)), shelf.held.uses, member.counts) == (None, 3, 0, [("streamed", True)])
    model = Echo(None, None)
    model.explain = lambda *_: [{}]
    made, halt, shelf, member = begun(Explain(Infer(REF, (tensor("a", 1, 2),))), model)
    assert (halt, list(ended(made, None).explanations), shelf.held.uses) == (None, [{}], 0)
    assert member.counts == ["explain", "asked"]


def test_a_failure_is_counted_once_and_ends_the_use() -> None:
    """Whether the request is refused, or its model fails; a request that is dropped counts nothing."""
    shelf, member = Shelf(MODEL), Member()
    with pytest.raises(InvalidInput, match="has no input 'b'"):
        next(steps(Infer(REF, (tensor("b", 1, 2),)), same, sent, shelf, member))
    assert (shelf.held.uses, member.counts) == (0, ["failed"])
    made, _, shelf, member = begun(INFER)
    with pytest.raises(ModelFailed):
        made.throw(ModelFailed("no"))
    assert (shelf.held.uses, member.counts) == (0, ["failed"])
    made, _, shelf, member = begun(INFER)
    made.close()
    assert (shelf.held.uses, member.counts) == (0, [])
