"""Models, requests and uses that the tests of the engine share."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from core import engine
from core import operations as ops
from core.deadline import NEVER
from core.dtype import DATATYPES
from core.operations import ModelRef, ModelSpec
from core.tensor import Tensor, TensorSpec

FP32, INT32, BYTES = DATATYPES["FP32"], DATATYPES["INT32"], DATATYPES["BYTES"]
REF = ModelRef("m")


def spec(
    name: str, shape: tuple[int, ...] | None = (-1, 2), datatype: Any = FP32, labels: Sequence[str] = ()
) -> TensorSpec:
    """Returns the spec of an input or output."""
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

    def again(self) -> Self:
        self.uses += 1
        return self


class Shelf:
    """core.ports.Models with one model. `asked`: the reference and the context of each use."""

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

    def using(self, use: Use) -> None:
        """Ignores the use."""

    def waited(self, ns: int, load: Any) -> None:
        """Counts nothing: the models here are always there."""

    def answered(self, use: Use, decoded: int, inferred: int, rows: int = 1) -> None:
        assert (decoded <= inferred, use.uses) == (True, 1)
        self.counts.append("answered")

    def began(self, spent: int) -> None:
        """Counts nothing: the stream's end does."""

    def streamed(self, use: Use, decoded: int, infer: int, *, success: bool) -> None:
        """Keeps the name and the success."""
        assert min(decoded, infer) >= 0
        self.counts.append(("streamed", success))

    def asking(self, kind: str) -> None:
        self.counts.append(kind)

    def asked(self, use: Use) -> None:
        self.counts.append("asked")

    def failed(self, use: Use) -> None:
        self.counts.append("failed")


def tensor(name: str, *shape: int, datatype: Any = FP32) -> Tensor:
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
