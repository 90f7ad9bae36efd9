"""handler.edge.batch.runner: which records run together, and what a failure takes with it."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from core.dtype import DATATYPES
from core.errors import InvalidInput, ModelFailed, ModelUnavailable
from core.operations import Batching, ModelSpec
from core.signature import plain
from core.tensor import Tensor, TensorSpec
from handler.edge.batch import runner as runners
from handler.edge.batch.json_lines import JsonBlock
from handler.edge.batch.runner import ROWS, BatchRunner, batch_rows
from handler.edge.batch.terms import BatchTerms, BlockLimits

FP32 = DATATYPES["FP32"]
INPUTS = (TensorSpec("x", FP32, (-1, -1)),)
OUTPUTS = (TensorSpec("y", FP32, (-1, -1)),)
SPEC = ModelSpec("m", "1", "test", INPUTS, OUTPUTS, signatures=plain(INPUTS, OUTPUTS))


class Double:
    """Doubles its input, and remembers its shapes. A row of 13 fails, and one of 99 ends the batch."""

    spec = SPEC

    def __init__(self, *, rows: bool = True) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.model = self
        self._rows = rows

    def predict(self, inputs: Mapping[str, Tensor], _names: Sequence[str], _parameters: Any) -> list[Tensor]:
        array = inputs["x"].array
        self.shapes.append(array.shape)
        if (array == 99).any():
            raise ModelUnavailable("gone")
        if (array == 13).any():
            raise InvalidInput("thirteen") if len(array) == 1 else ModelFailed("one of them")
        return [Tensor("y", FP32, array * 2 if self._rows else array[:1] * 2)]


def answers(model: Double, *blocks: list[Any], rows: int = 4, threads: int = 1) -> list[Any]:
    lines = [JsonBlock([json.dumps(each).encode() for each in block]) for block in blocks]
    runner = BatchRunner(model, BatchTerms(model.spec), rows, BlockLimits(rows, 1000), threads)
    return [json.loads(b"{%b}" % text) for found in runner.answers(lines) for text in found.texts]


def test_records_of_one_shape_run_together() -> None:
    """In their own order, whatever the others are; a block of one shape is one inference."""
    model = Double()
    found = answers(model, [[1], [2], [3]], [[1, 2], [3], [4, 5], [6]], [[7]])
    expected = [[2], [4], [6], [2, 4], [6], [8, 10], [12], [14]]
    assert found == [{"prediction": each} for each in expected]
    assert sorted(model.shapes) == [(1, 1), (2, 1), (2, 2), (3, 1)]


def test_requests_run_together_up_to_the_most_rows() -> None:
    """A request with as many rows runs alone; so does one that asks for something else."""
    model = Double()
    one = {"name": "x", "datatype": "FP32"}
    asked = [{"inputs": [one | {"shape": [n, 1], "data": [float(n)] * n}], "id": str(n)} for n in (1, 2, 2, 1, 4, 5)]
    asked.append(asked[0] | {"parameters": {"k": 1}})
    found = answers(model, asked)
    assert [each["id"] for each in found] == ["1", "2", "2", "1", "4", "5", "1"]
    assert [each["outputs"][0]["data"] for each in found] == [[n * 2.0] * n for n in (1, 2, 2, 1, 4, 5, 1)]
    assert sorted(model.shapes) == [(1, 1), (3, 1), (3, 1), (4, 1), (5, 1)]


class Meeting(Double):
    """Each inference waits until as many as there are threads run at the same time."""

    def __init__(self, threads: int, *, rows: bool = True) -> None:
        super().__init__(rows=rows)
        self._met = threading.Barrier(threads, timeout=10)

    def predict(self, *asked: Any) -> list[Tensor]:
        self._met.wait()
        return super().predict(*asked)


@pytest.mark.parametrize("blocks", [[range(20, 36)], [range(20, 24), range(24, 28), range(28, 32), range(32, 36)]])
def test_threads_share_the_inferences_of_a_block_or_have_a_block_each(blocks: list[range]) -> None:
    """All of them run at the same time, each with its own rows, and the answers keep their order."""
    model = Meeting(2)
    found = answers(model, *([[n] for n in block] for block in blocks), threads=2)
    assert found == [{"prediction": [2 * n]} for n in range(20, 36)]
    assert model.shapes == [(4, 1)] * 4


def test_a_model_that_runs_alone_has_one_thread() -> None:
    """Its `max_concurrency` says so."""
    model = Meeting(1)
    model.spec = SPEC._replace(max_concurrency=1)
    assert answers(model, [[1], [2], [3]], [[4]], rows=1, threads=2) == [{"prediction": [n]} for n in (2, 4, 6, 8)]


@pytest.mark.parametrize(("most", "largest"), [(16 * 1024 * 1024, 64), (8 * 4 * 4, 8), (1, 4)])
def test_blocks_grow_while_the_model_is_quick(most: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have bounds of records and of tensors' bytes. Images would take gigabytes."""
    monkeypatch.setattr(runners, "QUICK_SECONDS", float("inf"))
    monkeypatch.setattr(runners, "MOST_RECORDS", 64)
    monkeypatch.setattr(runners, "MOST_BYTES", most)
    limits, sizes = BlockLimits(4, 1000), list[int]()

    def blocks() -> Iterator[JsonBlock]:
        for _ in range(16):
            sizes.append(limits.records)
            yield JsonBlock([b"[1, 2, 3, 4]"] * limits.records)

    runner = BatchRunner(Double(), BatchTerms(SPEC), 4, limits)
    assert sum(len(found.texts) for found in runner.answers(blocks())) == sum(sizes)
    assert (sizes[0], max(sizes)) == (4, largest)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_failures_among_threads_are_their_records_alone(threads: int) -> None:
    """Whatever fails in one thread, records of the other ones have their answers."""
    found = answers(Double(), [[n] for n in range(10, 32)], [[13]], [[1], ["a"], [2]], threads=threads)
    expected = [[2 * n] if n != 13 else None for n in range(10, 32)] + [None, [2], None, [4]]
    assert [each.get("prediction") for each in found] == expected
    with pytest.raises(ModelUnavailable):
        answers(Double(), [[n] for n in range(90, 110)], [[1]], threads=threads)


def test_a_failure_is_its_records_alone() -> None:
    """What fails together runs again, each by itself."""
    found = answers(Double(), [[1], [13], [2]], [["a"], [3, 4], [13, 1], {"x": [5], "id": 8}, {"x": ["b"], "id": 9}])
    assert [each.get("prediction") for each in found] == [[2], None, [4], None, [6, 8], None, [10], None]
    assert [each["error"] for each in found if "error" in each][0::2] == ["thirteen", "thirteen"]
    assert [each.get("id") for each in found[-2:]] == [8, 9]


def test_an_id_is_repeated_exactly() -> None:
    """JSON's quick reader makes doubles of integers beyond 64 bits."""
    own = [10**29 + 1, -(10**20 + 1), 2**64 - 1, 0.5, 1e300]
    found = answers(Double(), [{"x": [1], "id": each} for each in own], [{"x": ["a"], "id": own[0]}])
    assert [each["id"] for each in found] == [*own, own[0]]


def test_a_failure_that_may_pass_ends_the_batch() -> None:
    """It can be resumed, and the records before it are there."""
    for block in ([[99], [1]], [[99], [1, 2]], [[99]]):
        with pytest.raises(ModelUnavailable, match="gone"):
            answers(Double(), [[1]], block)


def test_a_model_without_rows_is_asked_one_by_one() -> None:
    """Once it is known, nothing runs together any more."""
    model = Double(rows=False)
    assert answers(model, *([[n], [n]] for n in range(9))) == [{"prediction": [n // 2 * 2.0]} for n in range(18)]
    assert model.shapes.count((2, 1)) == 2  # the second block is on its way when the first one is written


@pytest.mark.parametrize(("changes", "rows"), [
    ({}, ROWS), ({"max_batch_size": 8}, 8), ({"max_batch_size": 8, "batching": Batching(4, 0.1)}, 4),
    ({"inputs": None}, 1), ({"inputs": (TensorSpec("x", FP32, (1, 4)),)}, 1),
])  # fmt: skip
def test_the_model_says_how_many_records_run_together(changes: Any, rows: int) -> None:
    """One without a batch axis gets one at a time."""
    assert batch_rows(SPEC._replace(**changes)) == rows


def test_an_input_of_the_name_id_is_an_input() -> None:
    """A record's own id has no place there."""
    inputs = (*INPUTS, TensorSpec("id", FP32, (-1, -1)))
    assert BatchTerms(SPEC).has_ids
    assert not BatchTerms(SPEC._replace(signatures=plain(inputs, OUTPUTS))).has_ids
