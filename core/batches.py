"""Inferences that run as one: which of them may, their inputs joined along the first axis, and their outputs split."""

import time
from collections.abc import Generator, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np

from core import checks, engine
from core import operations as ops
from core.bounds import levels
from core.engine import Finish, Reply
from core.errors import ServingError
from core.ports import Context, Models, Use
from core.records import NamedTuple
from core.tensor import Tensor

MOST_COMPARED: Final = 65_536
"""The most values and characters in the parameters of a request that runs together with others."""


class BatchContext(Context, Protocol):
    """The context of a request that runs together with others."""

    def batched(self, use: Any, decoded: int, resumed: int, waited: int, rows: int = 1) -> None:
        """Counts an inference that ran together with others. `decoded`: when it had been read.

        `resumed`: when its own outputs were there. `waited`: the nanoseconds between that were spent on others.
        """
        ...


class Prepared(NamedTuple):
    """An inference before its model runs: what `ports.Model.predict` takes. Everything in it has been checked.

    `use`: of the version, as core.ports.Use.
    """

    use: Any
    inputs: Mapping[str, Tensor]
    names: Sequence[str]
    parameters: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """The length that the first axes of all inputs have; 0 if they differ, if one is a scalar, or without rows."""
        lengths = {tensor.array.shape[:1] for tensor in self.inputs.values()}
        only = lengths.pop() if len(lengths) == 1 else ()
        return only[0] if only else 0

    @property
    def kind(self) -> Hashable:
        """Equal for inferences that may run as one: the same version, outputs, parameters, datatypes, shapes of rows.

        Parameters are compared as text: 1, 1.0 and True are different things to a model. A request with long ones runs
        alone: no other thread runs while Python writes them.
        """
        if self.parameters and _length(self.parameters) > MOST_COMPARED:
            return object()
        tensors = tuple((name, each.datatype.name, each.array.shape[1:]) for name, each in self.inputs.items())
        parameters = repr(sorted(self.parameters.items())) if self.parameters else ""
        return id(self.use.model), tuple(self.names), parameters, tensors

    @property
    def size(self) -> int:
        """The bytes that its inputs take in memory."""
        return sum(tensor.datatype.memory(tensor.array) for tensor in self.inputs.values())


class Ran(NamedTuple):
    """What the model answered, and the nanoseconds that it took."""

    outputs: Sequence[Tensor]
    ns: int


def _length(parameters: Mapping[str, Any]) -> int:
    """Returns the number of values in a request's parameters, and of characters in their texts and names."""
    length = 0
    for each in chain.from_iterable(levels(parameters)):
        length += 1
        if isinstance(each, str):
            length += len(each)
        elif isinstance(each, dict):
            length += sum(map(len, each))
    return length


def steps(
    operation: ops.Operation, reply: Reply, finish: Finish, models: Models, context: BatchContext
) -> Generator[Prepared | None, Ran, Any]:
    """Returns what `engine.answer` does. Yields the inference before it is run, and takes its outputs.

    Yields None instead, and takes anything, before an answer that a model can only give alone. Closing it ends the use.
    """
    question: Any = operation  # a question, which names its model
    with (use := models.use(question.ref, context)) as model:
        context.using(use)
        if type(operation) is ops.Deferred:
            operation, reply = operation.decode(model.spec)
        if type(operation) is ops.Infer or (type(operation) is ops.Stream and model.stream is None):
            return (yield from _halted(operation, reply, finish, use, context))
        yield None
        return engine.COUNTED[type(operation)](operation, reply, finish, use, context)


def _halted(
    operation: ops.Infer | ops.Stream, reply: Reply, finish: Finish, use: Use, context: BatchContext
) -> Generator[Prepared, Ran, Any]:
    question = operation if isinstance(operation, ops.Infer) else operation.infer
    spec, decoded = use.model.spec, time.perf_counter_ns()
    try:
        inputs, names = checks.checked(question, spec)
        asked = time.perf_counter_ns()
        outputs, ns = yield Prepared(use, inputs, names, question.parameters)
        resumed = time.perf_counter_ns()
        result = engine.result_of(question, spec, outputs)
        sent = finish(reply(result if operation is question else (result,)), operation, use, lazy=False)
    except ServingError:
        context.failed(use)
        raise
    context.batched(use, decoded, resumed, resumed - asked - ns, engine.rows_of(question, spec))
    return sent


def join(several: Sequence[Prepared]) -> dict[str, Tensor]:
    """Returns the inputs of all of them, of one kind, as those of one inference."""
    return {
        name: Tensor(name, tensor.datatype, np.concatenate([each.inputs[name].array for each in several]))
        for name, tensor in several[0].inputs.items()
    }


def split(outputs: Sequence[Tensor], rows: Sequence[int]) -> list[list[Tensor]] | None:
    """Returns the outputs of each inference. `rows`: of each. None if an output does not have one row for each row.

    They are copies: one client that reads slowly would keep the outputs of all others in memory.
    """
    total = (sum(rows),)
    if any(tensor.array.shape[:1] != total for tensor in outputs):
        return None
    parts: list[list[Tensor]] = []
    start = 0
    for count in rows:
        end = start + count
        parts.append([Tensor(each.name, each.datatype, each.array[start:end].copy()) for each in outputs])
        start = end
    return parts
