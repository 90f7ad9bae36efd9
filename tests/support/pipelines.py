"""Models of arithmetic for pipelines, without a registry around them."""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from core import checks
from core.dtype import DATATYPES
from core.operations import Infer, ModelRef, ModelSpec, RequestedOutput
from core.tensor import Tensor, TensorSpec
from handler.backends import Source
from handler.backends.pipeline.model import PipelineModel, load
from handler.settings import Settings
from handler.settings.model import ModelSettings
from handler.settings.pipeline import parse


def tensor(name: str, datatype: str = "INT64", *shape: int | None) -> TensorSpec:
    """A declaration; without sizes a vector of any length, with None any rank."""
    sizes = None if shape == (None,) else tuple(size for size in shape if size is not None)
    return TensorSpec(name, DATATYPES[datatype], sizes if shape else (-1,))


def given(name: str, *values: Any, datatype: str = "INT64") -> Tensor:
    """A vector."""
    array = np.empty(len(values), DATATYPES[datatype].numpy)
    array[:] = values
    return Tensor(name, DATATYPES[datatype], array)


class Fake:
    """A model, and a part. Its outputs are what `function` returns for its inputs' arrays, in their order."""

    steady = True
    explain = stream = http = None

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec] | None,
        outputs: Sequence[TensorSpec] | None,
        function: Callable[..., Sequence[Any]],
    ) -> None:
        self.spec = ModelSpec(
            name, "1", "fake", None if inputs is None else tuple(inputs), None if outputs is None else tuple(outputs)
        )
        self.function = function
        self.counted: list[bool] = []

    @property
    def model(self) -> "Fake":
        """Itself."""
        return self

    def record(self, _: Sequence[int], __: int, *, success: bool) -> None:
        """Remembers an inference."""
        self.counted.append(success)

    def predict(self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Mapping[str, Any]) -> list[Tensor]:
        made = self.function(*(inputs[name].array for name in sorted(inputs)))
        names = [output.name for output in self.spec.outputs or ()] or list(outputs)
        types = {output.name: output.datatype for output in self.spec.outputs or ()}
        tensors = {
            name: Tensor(name, types.get(name, DATATYPES["INT64"]), array)
            for name, array in zip(names, made, strict=True)
        }
        return [tensors[name] for name in outputs]


def arithmetic(name: str, inputs: int, outputs: int) -> Fake:
    """Output k is the sum of the inputs, each times its place, plus k."""

    def function(*arrays: Any) -> list[Any]:
        total = reduce(operator.add, (array * (place + 1) for place, array in enumerate(arrays)))
        return [total + k for k in range(outputs)]

    return Fake(name, [tensor(f"i{k}") for k in range(inputs)], [tensor(f"o{k}") for k in range(outputs)], function)


class FakeParts:
    """Implements handler.backends.PipelineParts. `coming`: what the next request finds instead."""

    def __init__(self, held: Mapping[tuple[str, int | None], Fake]) -> None:
        self.held = held
        self.coming: FakeParts | None = None

    def renewed(self) -> "FakeParts | None":
        """Returns what is coming, once."""
        coming, self.coming = self.coming, None
        return coming


def parts(*models: Fake) -> FakeParts:
    return FakeParts({(model.spec.name, None): model for model in models})


def pipeline(said: Any, held: FakeParts, settings: ModelSettings | None = None) -> PipelineModel:
    """Loads a pipeline as a server does."""
    settings = (settings or ModelSettings())._replace(pipeline=parse(said, "pipeline"))
    source = Source("p", "1", Path("/nowhere"), settings, held)
    return load(source, Settings.from_env({"DRAGOMAN_REPOSITORY": "/nowhere", "DRAGOMAN_THREADS": "2"}))


def asked(model: PipelineModel, *inputs: Tensor, outputs: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Asks a pipeline as the engine does, and returns its outputs as lists."""
    question = Infer(ModelRef("p"), inputs, tuple(map(RequestedOutput, outputs)))
    feed, names = checks.checked(question, model.spec)
    return {made.name: made.array.tolist() for made in model.predict(feed, names, {})}
