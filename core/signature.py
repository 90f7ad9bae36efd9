"""What TensorFlow Serving's clients call a model's inputs and outputs, and how: its signatures, over any model."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from core.tensor import Tensor, TensorSpec

DEFAULT: Final = "serving_default"


class Method(StrEnum):
    """What a signature is for; its clients' word for it, in paths and as tensorflow/serving/<method>."""

    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"


class Binding(NamedTuple):
    """The tensor behind one alias of a signature.

    `shape`: of one example's feature (classify, regress); None as the tensor says. `default`: what a request that lacks
    the input is taken to say: a whole tensor (predict), one example's elements (classify, regress). `encoded`: the
    tensor is UINT8, and its last axis the content of one string.
    """

    spec: TensorSpec
    shape: tuple[int, ...] | None = None
    default: Tensor | None = None
    encoded: bool = False

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Of one example: as the settings say, else the tensor's without its batch, else [1]."""
        if self.shape is not None:
            return self.shape
        return (1,) if self.spec.shape is None else self.spec.shape[1:]


class Signature(NamedTuple):
    """Aliases to tensors, in the settings' order or the model's. `class_labels`: of a classify signature's scores.

    `inputs` None: the model does not say what it takes, and anything goes (predict only).
    """

    method: Method
    inputs: Mapping[str, Binding] | None
    outputs: Mapping[str, Binding]
    class_labels: tuple[str, ...] = ()


Signatures = Mapping[str, Signature]
NONE: Final[Signatures] = MappingProxyType({})


def plain(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Signatures:
    """What a model has whose settings name no signature: every tensor under its own name."""
    return {
        DEFAULT: Signature(
            Method.PREDICT,
            {spec.name: Binding(spec) for spec in inputs},
            {spec.name: Binding(spec) for spec in outputs},
        )
    }
