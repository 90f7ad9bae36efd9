"""Asks a model random inputs of its declared shapes, the same each time, and compares answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BOOL, BYTES
from core.errors import ServingError, shown
from core.float16 import bf16_from_float, bf16_to_float
from core.ports import Model
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec

SEED: Final = 0
CASES: Final = 3
RELATIVE: Final = 1e-3
ABSOLUTE: Final = 1e-4
HALF: Final = 10
"""Floats of 16 bits may differ by so many times as much."""
TOLERANCE: Final = f"{RELATIVE:g} of each number, plus {ABSOLUTE:g} of its output's largest or of 1, the smaller"
MOST: Final = 1 << 26
"""The most elements of one input, 256 MB of FP32."""


class Trial(NamedTuple):
    """`size`: of each open dimension. `bound`: whole numbers are below it, as those of words or classes have to be."""

    size: int
    bound: int


TRIALS: Final = (Trial(2, 100), Trial(2, 2), Trial(1, 100), Trial(1, 2), Trial(32, 100), Trial(32, 2), Trial(224, 2))
"""What is tried in turn, until the model answers."""


class Unanswered(Exception):
    pass


class AnsweredCase(NamedTuple):
    """Inputs of a model, and its answer."""

    inputs: Mapping[str, Tensor]
    outputs: Sequence[Tensor]


def asked(model: Model) -> list[AnsweredCase]:
    """Returns inputs that the model answers, with its answers. Raises Unanswered."""
    problem = "it does not declare its inputs"
    for trial in TRIALS:
        try:
            return [AnsweredCase(inputs, answer(model, inputs)) for inputs in _cases(model.spec.inputs or (), trial)]
        except ServingError as error:
            problem = error.message
    raise Unanswered(f"it answers no inputs that can be made from its description: {problem}")


def answer(model: Model, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
    return model.predict(inputs, [output.name for output in model.spec.outputs or ()], {})


def _cases(specs: Sequence[TensorSpec], trial: Trial) -> Iterator[dict[str, Tensor]]:
    rng = np.random.default_rng(SEED)
    for _ in range(CASES):
        yield {spec.name: _tensor(spec, trial, rng) for spec in specs if not spec.optional}


def _tensor(spec: TensorSpec, trial: Trial, rng: np.random.Generator) -> Tensor:
    shape = tuple(trial.size if size < 0 else size for size in ((-1,) if spec.shape is None else spec.shape))
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count > MOST:
        raise Unanswered(f"input {shown(spec.name)} would have {count} elements")
    return Tensor(spec.name, spec.datatype, _elements(spec, count, trial.bound, rng).reshape(shape))


def _elements(spec: TensorSpec, count: int, bound: int, rng: np.random.Generator) -> NDArray[Any]:
    if spec.datatype.is_float:
        return rng.standard_normal(count).astype(spec.datatype.numpy)
    if spec.datatype is BF16:
        return bf16_from_float(rng.standard_normal(count))
    numbers = rng.integers(0, 2 if spec.datatype is BOOL else bound, count)
    if spec.datatype is BYTES:
        return np.fromiter((b"%d" % number for number in numbers.tolist()), object, count)
    return numbers.astype(spec.datatype.numpy)


def difference(expected: Tensor, found: Tensor) -> str:
    """Returns in which way an answer differs beyond TOLERANCE, "" if it does not. All but floats have to be equal."""
    name = f"output {shown(expected.name)}"
    if expected.shape != found.shape:
        return f"{name} would have the shape {list(found.shape)} and not {list(expected.shape)}"
    if not expected.datatype.is_float and expected.datatype is not BF16:
        return "" if np.array_equal(expected.array, found.array) else f"{name} would have other values"
    one, other = _wide(expected), _wide(found)
    finite = np.abs(one[np.isfinite(one)])
    largest = min(1.0, float(finite.max(initial=0.0)))
    more = HALF if expected.datatype.numpy.itemsize == 2 else 1  # noqa: PLR2004 - bytes
    near = np.isclose(other, one, rtol=more * RELATIVE, atol=more * ABSOLUTE * largest, equal_nan=True)
    if near.all():
        return ""
    index = int(np.argmin(near))
    return f"{name} would have {other.flat[index]:.6g} and not {one.flat[index]:.6g}"


def _wide(tensor: Tensor) -> NDArray[np.float64]:
    array = bf16_to_float(tensor.array) if tensor.datatype is BF16 else tensor.array
    return array.astype(np.float64)
