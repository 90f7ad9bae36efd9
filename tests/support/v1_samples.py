"""Requests, signatures and models' results that the tests of /v1 share."""

from typing import Any

import numpy as np

from core.dialects.v1.request import V1Question
from core.dtype import DATATYPES
from core.encoding.jsonio import NonFinite
from core.operations import InferResult, ModelSpec
from core.signature import Binding, Method, Signature
from core.tensor import Tensor, TensorSpec


def output(name: str, datatype: str, values: Any) -> Tensor:
    """Returns a tensor as a model returns it: BYTES are objects, BF16 its bits."""
    return Tensor(name, DATATYPES[datatype], np.array(values, DATATYPES[datatype].numpy))


def binding(name: str, datatype: str = "FP32", shape: Any = None, default: Any = None, **said: Any) -> Binding:
    """Returns what stands behind an alias. `said`: the binding's own shape, encoded."""
    own = said.pop("feature", None)
    default = None if default is None else output(name, datatype, default)
    return Binding(TensorSpec(name, DATATYPES[datatype], shape), own, default, **said)


def signature(inputs: Any, outputs: Any, method: Method = Method.PREDICT, labels: tuple[str, ...] = ()) -> Signature:
    """Returns a signature of bindings by alias; a text stands for an FP32 tensor of any rank."""
    bound = [
        None if side is None else {a: binding(b) if isinstance(b, str) else b for a, b in side.items()}
        for side in (inputs, outputs)
    ]
    return Signature(method, bound[0], bound[1] or {}, labels, renames=bound[0] is not None)


def model(**signatures: Signature) -> ModelSpec:
    """Returns model `m`, version 3, with every tensor that its signatures name; without signatures it declares none."""
    sides: list[dict[str, TensorSpec]] = [{}, {}]
    for each in signatures.values():
        for side, bindings in zip(sides, (each.inputs or {}, each.outputs), strict=True):
            side |= {bound.spec.name: bound.spec for bound in bindings.values()}
    inputs, outputs = (tuple(side.values()) if signatures else None for side in sides)
    return ModelSpec("m", "3", "test", inputs, outputs, signatures=signatures)


def question(
    document: Any, non_finite: NonFinite | None = NonFinite.BARE, v1_dialect: str = "auto", *, pinned: bool = False
) -> V1Question:
    """Returns a request's document under the default options."""
    return V1Question(document, non_finite, v1_dialect, pinned)


def result(*outputs: Tensor) -> InferResult:
    """Returns a result of model `m`, version 3."""
    return InferResult("m", "3", outputs)


def listed(tensors: tuple[Tensor, ...]) -> dict[str, Any]:
    """Returns what the model is asked, as lists by name."""
    return {tensor.name: tensor.array.tolist() for tensor in tensors}
