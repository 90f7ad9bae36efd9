"""Models whose requests and answers have other shapes than the model itself, as Triton's `reshape` declares them.

Source: Triton's model_configuration.md, "Reshape". The elements and their order stay the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.checks import is_of_shape
from core.errors import ModelFailed, shown
from core.ports import Model
from core.tensor import Tensor, TensorSpec

Shape = tuple[int, ...]


class ReshapedModel:
    """Gives a model its inputs in their specs' `reshape`, and returns its outputs in their specs' `shape`."""

    steady = True
    explain = None
    steps = None
    stream = None
    http = None

    def __init__(self, model: Model) -> None:
        self.spec = model.spec
        self._model = model
        self._inputs = {each.name: _both(each) for each in self.spec.inputs or () if each.reshape is not None}
        self._outputs = {each.name: _both(each)[::-1] for each in self.spec.outputs or () if each.reshape is not None}

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> Sequence[Tensor]:
        given = {name: _changed(tensor, *self._inputs[name]) for name, tensor in inputs.items() if name in self._inputs}
        made = self._model.predict({**inputs, **given}, outputs, parameters)
        return [self._answered(tensor) for tensor in made]

    def _answered(self, tensor: Tensor) -> Tensor:
        """Returns an output as clients see it. Raises ModelFailed if it is not what its spec declares."""
        if tensor.name not in self._outputs:
            return tensor
        declared, told = self._outputs[tensor.name]
        if not is_of_shape(tensor.shape, declared):
            what = f"model {self.spec.name!r} returned output {shown(tensor.name)} with shape {list(tensor.shape)}"
            raise ModelFailed(f"{what}; its settings reshape {list(declared)}")
        return _changed(tensor, declared, told)


def _both(spec: TensorSpec) -> tuple[Shape, Shape]:
    """Returns the shape that clients see, and the model's own."""
    return spec.shape or (), spec.reshape or ()


def _changed(tensor: Tensor, now: Shape, then: Shape) -> Tensor:
    """Returns a tensor of the shape `now` in the shape `then`; their variable sizes follow each other."""
    sizes = iter([size for size, declared in zip(tensor.shape, now, strict=True) if declared == -1])
    return tensor.reshaped(tuple(next(sizes) if size == -1 else size for size in then))
