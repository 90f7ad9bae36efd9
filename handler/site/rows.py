"""The types of one model's requests and answers under /v1: rows and columns, named as in its default signature."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from core.dtype import BYTES, DataType
from core.operations import ModelSpec
from core.signature import DEFAULT, Binding
from core.tensor import is_column
from handler.site.components import Schema, any_of, element, nested, other, record, rule, typed, written
from handler.site.examples import MOST_ELEMENTS

NAMED: Final = "absent or empty: serving_default, whose types these are"
EITHER: Final = rule({"oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}]})
COLUMNS: Final = rule({"required": ["inputs"], "not": {"required": ["instances"]}})
ANY: Final = other("V1Value")

Bindings = Mapping[str, Binding]
Types = list[type[BaseModel]]


def request(spec: ModelSpec, name: str) -> Types:
    """Returns the type of a request to predict or explain, and those it needs; none if the inputs are not described.

    `name`: the model's, as an identifier.
    """
    inputs = _default(spec)[0]
    if not inputs:
        return []
    optional = [alias for alias, each in inputs.items() if each.default is not None]
    row = record(f"{name}_Row", _each(inputs, _row), optional, additionalProperties=False)
    columns = record(f"{name}_Columns", _each(inputs, _column), optional)
    only = _only(inputs)
    bare = [] if only is None else [_column(only)]
    named = {"type": "array", "minItems": 1, "items": other(row.__name__)}
    rows = named if only is None else _rows(named, only)
    whole = any_of("columns; a list of objects is rows", other(columns.__name__), *bare, named)
    members = {
        "signature_name": typed({"type": "string", "enum": ["", DEFAULT], "description": NAMED}),
        "instances": typed(rows),
        "inputs": typed(whole),
    }
    rule_of_forms = EITHER
    if any(each.spec.shape == () for each in inputs.values()):
        del members["instances"]  # a scalar has no rows
        rule_of_forms = COLUMNS
    return [record(f"{name}_PredictRequest", members, members, **rule_of_forms), row, columns]


def answer(spec: ModelSpec, name: str, *, explained: Schema | None = None) -> Types:
    """Returns the type of an answer, and those it needs; none if the outputs are not described.

    `explained`: the schema of the explanations, for an answer with them. No sizes are stated: exporters declare many
    that are not those of the outputs.
    """
    outputs, more = _default(spec)[1], []
    if not outputs:
        return []
    kinds = {"Prediction": partial(_result, axis=1), "Outputs": partial(_result, axis=0)}
    if len(outputs) == 1:
        one, whole = (_result(next(iter(outputs.values())), axis) for axis in (1, 0))
    else:
        more = [record(f"{name}_{each}", _each(outputs, of), additionalProperties=False) for each, of in kinds.items()]
        one, whole = (other(each.__name__) for each in more)
    predictions = typed({"type": "array", "items": one})
    if explained is not None:
        members = {"predictions": predictions, "explanations": typed(explained)}
        return [record(f"{name}_ExplainResponse", members), *more]
    members = {"predictions": predictions, "outputs": typed(whole)}
    made = record(f"{name}_PredictResponse", members, members, additionalProperties=False, minProperties=1)
    return [made, *more]


def _default(spec: ModelSpec) -> tuple[Bindings, Bindings]:
    """Returns inputs and outputs of the signature that requests have without a name."""
    signature = spec.signatures.get(DEFAULT)
    return ({}, {}) if signature is None else (signature.inputs or {}, signature.outputs)


def _each(bindings: Bindings, schema: Callable[[Binding], Schema]) -> dict[str, Any]:
    return {alias: typed(schema(each)) for alias, each in bindings.items()}


def _only(inputs: Bindings) -> Binding | None:
    """Returns the input that a request need not name, if there is one."""
    required = [each for each in inputs.values() if each.default is None] or list(inputs.values())
    return required[0] if len(required) == 1 else None


def _rows(named: Schema, only: Binding) -> Schema:
    """Returns the schema of rows that are objects, or values of the only input."""
    bare = {"type": "array", "minItems": 1, "items": _row(only)}
    return {"type": "array", "minItems": 1, "items": {}, **any_of("a value for each row, or an object", bare, named)}


def _values(binding: Binding) -> tuple[DataType, Sequence[int] | None]:
    """Returns the datatype and the shape of an input's values. An encoded one has a text for its last axis."""
    datatype, shape = binding.spec.datatype, binding.spec.shape
    if binding.encoded:
        datatype, shape = BYTES, None if shape is None else shape[:-1]
    if shape is not None and math.prod(map(abs, shape)) > MOST_ELEMENTS:
        return datatype, [-1] * len(shape)
    return datatype, shape


def _column(binding: Binding) -> Schema:
    """Returns the schema of an input's whole tensor."""
    datatype, shape = _values(binding)
    if shape is None:
        return _any("a value, however nested")
    return _scalars(binding, nested(element(datatype), shape), nested(element(datatype), shape[:1]))


def _row(binding: Binding) -> Schema:
    """Returns the schema of an input's value in one row."""
    datatype, shape = _values(binding)
    if shape is None:
        return _any("a value, however nested")
    return _scalars(binding, nested(element(datatype), shape[1:]), element(datatype))


def _scalars(binding: Binding, whole: Schema, plain: Schema) -> Schema:
    """Returns the schema of a column's values, which may be scalars; of other values as they are."""
    if binding.encoded or not is_column(binding.spec.shape):
        return whole
    return any_of("a plain value stands for a list of one", plain, whole)


def _result(binding: Binding, axis: int) -> Schema:
    """Returns the schema of an output from an axis on. `axis`: 0 for the whole, 1 for one row."""
    shape = binding.spec.shape
    if shape is None or len(shape) < axis:
        return _any("a value, however nested")
    if binding.encoded:
        return nested(written(BYTES), [-1] * len(shape[axis:-1]))
    return nested(written(binding.spec.datatype), [-1] * len(shape[axis:]))


def _any(about: str) -> Schema:
    return any_of(about, ANY)
