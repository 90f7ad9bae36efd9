"""One step of a pipeline while a request is answered: which model it calls, with which tensors."""

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import random
from typing import Any, Final

from core.checks import fitting
from core.errors import InvalidInput, ServingError, located, shown
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec
from handler.backends import PipelinePart, SeveralAnswers

draw: Callable[[], float] = random
"""Draws a number, uniform in [0, 1). It decides which branch of a split answers."""
NO_TOKEN: Final = re.compile(r"[^A-Za-z0-9_.-]")
SMOOTH: Final = 4
"""The part that the latest run has in a step's usual time, as a divisor."""
Tensors = dict[str, Tensor]
Took = tuple[bytes, int]
"""A step as Server-Timing names it, and its nanoseconds."""


class TensorPort(NamedTuple):
    """An input or output of a model, and the pipeline's tensor there. `spec`: None if the model does not declare it."""

    name: str
    tensor: str
    spec: TensorSpec | None


class ModelCall(NamedTuple):
    """A model that a step may call. `label`: as Server-Timing names it."""

    part: PipelinePart
    inputs: tuple[TensorPort, ...]
    outputs: tuple[TensorPort, ...]
    label: bytes = b""

    def run(self, tensors: Tensors, parameters: Mapping[str, Any]) -> None:
        """Adds the tensors that the model makes. Raises ServingError."""
        feed = {}
        for name, source, spec in self.inputs:
            tensor = tensors[source]
            if tensor.name != name:
                tensor = tensor.renamed(name)
            feed[name] = tensor if spec is None else fitting(tensor, spec, self.part.model.spec)
        model = self.part.model
        try:
            made = model.predict(feed, [output.name for output in self.outputs], parameters)
        except SeveralAnswers:  # its text recommends a stream, which a pipeline does not have
            text = f"model {shown(model.spec.name)} returns more than one answer; a pipeline takes exactly one"
            raise SeveralAnswers(text) from None
        for tensor, output in zip(made, self.outputs, strict=True):
            name = output.tensor
            tensors[name] = tensor if tensor.name == name else tensor.renamed(name)


class Switch(NamedTuple):
    """Chooses a call by the value of a tensor of one element. `default`: the call for other values."""

    tensor: str
    cases: Mapping[Any, int]
    default: int | None

    def __call__(self, tensors: Tensors) -> int:
        """Raises InvalidInput."""
        tensor = tensors[self.tensor]
        if tensor.array.size != 1:
            raise InvalidInput(f"tensor {shown(self.tensor)} has {tensor.array.size} elements; a switch needs 1")
        value = tensor.array.item()
        found = self.cases.get(value, self.default)
        if found is None:
            expected = ", ".join(map(shown, self.cases))[:256]
            raise InvalidInput(f"tensor {shown(self.tensor)} is {shown(value)}; expected one of {expected}")
        return found


class Split:
    """Chooses a call at random, by weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = list(accumulate(weights))
        self._last = max(index for index, weight in enumerate(weights) if weight)

    def __call__(self, _: Tensors) -> int:
        return min(self._last, bisect_right(self._sums, draw() * self._sums[-1]))


class PipelineStep:
    """`takes`, `makes`: names of tensors. `ns`: its usual time so far, 0 before the first run."""

    __slots__ = ("calls", "choose", "makes", "name", "ns", "takes")

    def __init__(self, name: str, calls: Sequence[ModelCall], choose: Switch | Split | None) -> None:
        self.name = name
        label = _token(f"step-{name}")
        if choose is None:
            self.calls = tuple(call._replace(label=label) for call in calls)
        else:
            self.calls = tuple(
                call._replace(label=label + b";desc=" + _token(call.part.model.spec.name)) for call in calls
            )
        self.choose = choose
        self.takes = frozenset(port.tensor for call in calls for port in call.inputs) | (
            {choose.tensor} if isinstance(choose, Switch) else set()
        )
        self.makes = frozenset(port.tensor for port in calls[0].outputs)
        self.ns = 0

    @property
    def steady(self) -> bool:
        return all(call.part.model.steady for call in self.calls)

    def run(self, tensors: Tensors, parameters: Mapping[str, Any]) -> Took:
        """Adds the tensors of the step, and counts an inference of the model. Raises ServingError with its name."""
        begun = time.perf_counter_ns()
        part = None
        try:
            call = self.calls[0 if self.choose is None else self.choose(tensors)]
            part = call.part
            call.run(tensors, parameters)
        except ServingError as error:
            if part is not None:
                part.record((0, time.perf_counter_ns() - begun), 0, success=False)
            raise located(error, f"step {shown(self.name)}") from error
        ns = time.perf_counter_ns() - begun
        self.ns += (ns - self.ns) // SMOOTH if self.ns else ns
        part.record((0, 0, ns, 0), 0, success=True)
        return call.label, ns


def _token(text: str) -> bytes:
    """Returns the text as a token of an HTTP header."""
    return NO_TOKEN.sub("_", text).encode()
