"""A request that works, for any model: from its explainer's background, else of ones.

Only the model's own description is read. Where it does not say enough (no inputs, or of any rank), a row of one element
is shown.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BF16
from core.operations import ModelSpec
from core.tensor import TensorSpec

MOST_ELEMENTS: Final = 4096
"""Elements of an example. A larger input, an image say, has none: it would be longer than the page."""
ROWS: Final = 1
WORD: Final = "1"
"""A text for any model: some read numbers from texts."""


def v2(spec: ModelSpec) -> dict[str, Any] | None:
    """Returns the body of an inference request of V2; None for a model without inputs or with very large ones."""
    if spec.inputs is None:
        return None
    inputs = [_input(each, spec) for each in _needed(spec, spec.inputs)]
    if None in inputs:
        return None
    return {"inputs": inputs}


def v1(spec: ModelSpec) -> dict[str, Any] | None:
    """Returns the body of a V1 predict request, in columns; None where `v2` has none."""
    found = v2(spec)
    if found is None:
        return None
    columns = {each["name"]: nested(each["data"], each["shape"]) for each in found["inputs"]}
    return {"inputs": columns if len(columns) != 1 else next(iter(columns.values()))}


def nested(flat: list[Any], shape: list[int]) -> Any:
    """Returns elements as lists in lists, as deep as the shape; a scalar as itself."""
    if not shape:
        return flat[0]
    return flat if len(shape) == 1 else np.array(flat, object).reshape(shape).tolist()


def _needed(spec: ModelSpec, inputs: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
    """Returns the inputs without the optional ones, if a signature makes all outputs of the others alone."""
    required = [each for each in inputs if not each.optional]
    names, outputs = {each.name for each in required}, {each.name for each in spec.outputs or ()}
    is_enough = any(
        outputs <= {each.spec.name for each in signature.outputs.values()}
        and {each.spec.name for each in (signature.inputs or {}).values()} <= names
        for signature in spec.signatures.values()
    )
    return required if is_enough else inputs


def _input(spec: TensorSpec, model: ModelSpec) -> dict[str, Any] | None:
    background = None if model.explainer is None else model.explainer.background.get(spec.name)
    if background is not None and len(background):
        row = background[:ROWS]
        return _of(spec, list(row.shape), [_plain(each) for each in row.reshape(-1).tolist()])
    shape = [ROWS if size < 0 else size for size in ((ROWS,) if spec.shape is None else spec.shape)]
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count > MOST_ELEMENTS or spec.datatype is BF16:  # JSON has no BF16
        return None
    return _of(spec, shape, [_element(spec)] * count)


def _of(spec: TensorSpec, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": spec.name, "shape": shape, "datatype": spec.datatype.name, "data": data}


def _element(spec: TensorSpec) -> Any:
    if spec.datatype.is_bytes:
        return WORD
    if spec.datatype.name == "BOOL":
        return True
    return 1.0 if spec.datatype.name.startswith("FP") else 1


def _plain(element: Any) -> Any:
    """Returns a number as short as its type allows, a text as text."""
    if isinstance(element, bytes):
        return element.decode("utf-8", "replace")
    return float(f"{element:.6g}") if isinstance(element, float) else element
