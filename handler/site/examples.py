"""A request that works, for any model: from its explainer's background, else of ones.

Only the model's own description is read. Where it does not say enough (no inputs, or of any rank), a row of one element
is shown.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BF16, NDArray
from core.operations import ModelSpec
from core.signature import DEFAULT, Binding, Method
from core.tensor import TensorSpec, is_column

MOST_ELEMENTS: Final = 4096
"""Elements of an example. A larger input, an image say, has none: it would be longer than the page."""
ROWS: Final = 1
MOST_SIGNATURES: Final = 64
"""The most signatures of a model that have types and examples. Each takes some milliseconds."""
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
    return v1_forms(spec).get("columns")


def v1_all(spec: ModelSpec) -> dict[str, dict[str, Any]]:
    """Returns the bodies of V1 predict requests of every signature by their form: "rows", "rows of NAME"."""
    found = v1_forms(spec)
    for name in [name for name in spec.signatures if name != DEFAULT][:MOST_SIGNATURES]:
        forms = v1_forms(spec, name).items()
        found |= {f"{form} of {name}": {"signature_name": name, **body} for form, body in forms}
    return found


def v1_examples(spec: ModelSpec, method: Method) -> dict[str, dict[str, Any]]:
    """Returns the bodies of V1 requests to classify or regress by signature: one example, of flat features."""
    found, shown = v2(spec), {}
    tensors = {} if found is None else {each["name"]: each for each in found["inputs"]}
    for name in [name for name, each in spec.signatures.items() if each.method is method][:MOST_SIGNATURES]:
        bound = spec.signatures[name].inputs or {}
        features = {
            alias: _feature(each, tensors[each.spec.name]["data"])
            for alias, each in bound.items()
            if each.spec.name in tensors and math.prod(map(abs, each.feature_shape)) <= MOST_ELEMENTS
        }
        if features.keys() == bound.keys():
            named = {} if name == DEFAULT else {"signature_name": name}
            shown[f"example of {name}"] = {**named, "examples": [features]}
    return shown


def _feature(binding: Binding, data: list[Any]) -> list[Any]:
    """Returns one example's values of a feature: as many of the first ones as its shape needs."""
    shape = binding.feature_shape
    if binding.encoded:
        return [WORD * abs(shape[-1])] * math.prod(map(abs, shape[:-1]))
    count = math.prod(map(abs, shape))
    return (data * count)[:count] if data else []


def v1_forms(spec: ModelSpec, name: str = DEFAULT) -> dict[str, dict[str, Any]]:
    """Returns the bodies of V1 predict requests by their form: "rows", if inputs and outputs have any, and "columns".

    Inputs have the aliases of the signature.
    """
    found = v2(spec)
    signature = spec.signatures.get(name)
    if found is None or (spec.signatures and signature is None):
        return {}
    tensors = {each["name"]: each for each in found["inputs"]}
    bound: Mapping[str, Binding] = {} if signature is None else signature.inputs or {}
    named = {
        alias: _values(each, tensors[each.spec.name]) for alias, each in bound.items() if each.spec.name in tensors
    }
    columns = named or {name: nested(each["data"], each["shape"]) for name, each in tensors.items()}
    forms = {"columns": {"inputs": columns if len(columns) != 1 else next(iter(columns.values()))}}
    counts = {len(value) if isinstance(value, list) else 0 for value in columns.values()}
    outputs = (spec.outputs or ()) if signature is None else [each.spec for each in signature.outputs.values()]
    if len(counts) != 1 or counts == {0} or not has_rows(outputs):
        return forms
    split = {alias: _rows(value, bound.get(alias)) for alias, value in columns.items()}
    rows = [dict(zip(split, row, strict=True)) for row in zip(*split.values(), strict=True)]
    return {"rows": {"instances": rows if len(split) != 1 else next(iter(split.values()))}, **forms}


def has_rows(tensors: Iterable[TensorSpec]) -> bool:
    """Decides whether none is a scalar, which has no rows."""
    return all(each.shape != () for each in tensors)


def _values(binding: Binding, tensor: Mapping[str, Any]) -> Any:
    """Returns an input's values, nested. An encoded input has a text for each list of bytes."""
    if not binding.encoded:
        return nested(tensor["data"], tensor["shape"])
    *shape, length = tensor["shape"]
    return nested([WORD * length] * math.prod(shape), shape)


def _rows(column: list[Any], binding: Binding | None) -> list[Any]:
    """Returns the values of each row; those of a table's column are scalars."""
    if binding is None or binding.encoded or not is_column(binding.spec.shape):
        return column
    return np.array(column, object).reshape(-1).tolist()


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
        and {each.spec.name for each in (signature.inputs or {}).values() if not each.optional} <= names
        for signature in spec.signatures.values()
    )
    return required if is_enough else inputs


def _input(spec: TensorSpec, model: ModelSpec) -> dict[str, Any] | None:
    background = None if model.explainer is None else model.explainer.background.get(spec.name)
    row = None if background is None else _finite(background)[:ROWS]
    if row is not None and len(row):
        return _of(spec, list(row.shape), [_plain(each) for each in row.reshape(-1).tolist()])
    shape = [ROWS if size < 0 else size for size in ((ROWS,) if spec.shape is None else spec.shape)]
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count > MOST_ELEMENTS or spec.datatype is BF16:  # JSON has no BF16
        return None
    return _of(spec, shape, [_element(spec)] * count)


def _finite(background: NDArray[Any]) -> NDArray[Any]:
    """Returns the rows without NaN and infinities, which JSON cannot have."""
    if background.dtype.kind != "f":
        return background
    rows: NDArray[Any] = background[np.isfinite(background).all(axis=tuple(range(1, background.ndim)))]
    return rows


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
