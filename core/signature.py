"""What a model's tensors mean for clients that do not name them: TensorFlow Serving's signatures, and embeddings."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec

DEFAULT: Final = "serving_default"


class Method(StrEnum):
    """A signature's purpose, as clients write it in paths and as tensorflow/serving/<method>."""

    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"


class Binding(NamedTuple):
    """The tensor behind one alias of a signature.

    `shape`: the shape of one example's feature (classify, regress); None follows the tensor. `default`: the value for a
    request that lacks the input: a whole tensor (predict), one example's elements (classify, regress). `encoded`: the
    tensor is UINT8, and its last axis is the content of one string. `optional`: the model has a value of its own for a
    request that lacks the input (predict).
    """

    spec: TensorSpec
    shape: tuple[int, ...] | None = None
    default: Tensor | None = None
    encoded: bool = False
    optional: bool = False

    @property
    def required(self) -> bool:
        """Whether each request has to have the input."""
        return self.default is None and not self.optional

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one example: the settings', else the tensor's without its batch, else [1]."""
        if self.shape is not None:
            return self.shape
        return (1,) if self.spec.shape is None else self.spec.shape[1:]


class Signature(NamedTuple):
    """A mapping of aliases to tensors, in the settings' order or the model's.

    `class_labels`: the labels of a classify signature's scores. `inputs` None: the model does not declare its inputs,
    and any are accepted (predict only). `outputs` empty: it does not declare its outputs, and answers have all of them.
    `renames`: an input has another alias than its tensor's name.
    """

    method: Method
    inputs: Mapping[str, Binding] | None
    outputs: Mapping[str, Binding]
    class_labels: tuple[str, ...] = ()
    renames: bool = False


Signatures = Mapping[str, Signature]
NONE: Final[Signatures] = MappingProxyType({})


class EmbeddingTensors(NamedTuple):
    """The names of the input with the texts, of the output with a vector for each, and of that with its tokens.

    None: the only tensor that can be it (core.dialects.openai.embeddings). `may_shorten`: the first elements of a
    vector, at length 1, are an embedding, too, as in models that are trained for it (Matryoshka).
    """

    input: str | None = None
    output: str | None = None
    tokens: str | None = None
    may_shorten: bool = False


AS_DECLARED: Final = EmbeddingTensors()


def plain(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Signatures:
    """Returns the signature of a model whose settings name none: every tensor under its own name."""
    return {
        DEFAULT: Signature(
            Method.PREDICT,
            {spec.name: Binding(spec, optional=spec.optional) for spec in inputs},
            {spec.name: Binding(spec) for spec in outputs},
        )
    }
