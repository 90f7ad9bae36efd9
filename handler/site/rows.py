"""The types of one model's requests and answers under /v1: rows and columns, named as in each of its signatures."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from core.dtype import BYTES, DataType
from core.operations import ModelSpec
from core.signature import DEFAULT, Binding, Method, Signature
from core.tensor import is_column
from handler.site.components import Schema, any_of, element, nested, other, record, rule, typed, written
from handler.site.examples import MOST_ELEMENTS, MOST_SIGNATURES, has_rows

NAMED: Final = "absent or empty: serving_default"
EITHER: Final = {"oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}]}
COLUMNS: Final = {"required": ["inputs"], "not": {"required": ["instances"]}}
ANY: Final = any_of("a value, however nested", other("V1Value"))
ANY_RESULT: Final = any_of("a value, however nested", other("V1Result"))
LONGEST_NAME: Final = 64
"""Characters of a signature's name in those of its types."""

Bindings = Mapping[str, Binding]
Types = list[type[BaseModel]]


def named(signatures: Mapping[str, Signature], model: str) -> dict[str, str]:
    """Returns a prefix for the types of each signature: the model's own if there is one signature.

    `model`: its name as an identifier, which never has two underscores beside each other.
    """
    if len(signatures) == 1:
        return dict.fromkeys(signatures, model)
    found: dict[str, str] = {}
    for name in signatures:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name[:LONGEST_NAME]).strip("_") or "signature"
        prefix = first = f"{model}__{plain}"
        number = 2
        while prefix in found.values():
            prefix, number = f"{first}__{number}", number + 1
        found[name] = prefix
    return found


def of(spec: ModelSpec, *methods: Method) -> dict[str, Signature]:
    """Returns the signatures of these methods that describe inputs and outputs; none if there are very many."""
    found = {
        name: each
        for name, each in spec.signatures.items()
        if name and each.inputs and each.outputs and each.method in methods
    }
    return found if len(found) <= MOST_SIGNATURES else {}


def chosen(names: Sequence[str]) -> tuple[Any, bool]:
    """Returns the type of `signature_name`, and whether it can be left out."""
    optional = DEFAULT in names
    about = NAMED if optional else "the name of a signature"
    return typed({"type": "string", "enum": [*([""] if optional else []), *names], "description": about}), optional


def request(spec: ModelSpec, name: str) -> Types:
    """Returns the type of a request to predict or explain, and those it needs; none if the inputs are not described.

    `name`: the model's, as an identifier. A request of several signatures is that of one of them.
    """
    signatures = of(spec, *Method)
    prefixes = named(signatures, name)
    each_of = [_request(prefixes[key], key, each) for key, each in signatures.items()]
    if len(each_of) <= 1:
        return each_of[0] if each_of else []
    name_of, optional = chosen(list(signatures))
    members = {"signature_name": name_of, "instances": list[Any], "inputs": typed({})}
    absent = members if optional else ["instances", "inputs"]
    whole = record(f"{name}_PredictRequest", members, absent, **alternatives(each_of, "oneOf"))
    return [whole, *(each for types in each_of for each in types)]


def alternatives(types: Sequence[Types], word: str) -> Schema:
    """Returns the rule that a value has one of the types, the first of each group. `word`: oneOf or anyOf."""
    return rule({word: [other(each[0].__name__) for each in types]})


def _request(name: str, signature: str, bound: Signature) -> Types:
    """Returns the type of a request of one signature, and those it needs."""
    name_of, unnamed = chosen([signature])
    inputs = bound.inputs or {}
    optional = [alias for alias, each in inputs.items() if not each.required]
    row = record(f"{name}_Row", _each(inputs, _row), optional, additionalProperties=False)
    columns = record(f"{name}_Columns", _each(inputs, _column), optional)
    only = _only(inputs)
    bare = [] if only is None else [_column(only)]
    objects = {"type": "array", "minItems": 1, "items": other(row.__name__)}
    rows = objects if only is None else _rows(objects, only)
    whole = any_of("columns; a list of objects is rows", other(columns.__name__), *bare, objects)
    members = {"signature_name": name_of, "instances": typed(rows), "inputs": typed(whole)}
    form: Schema = EITHER
    if not has_rows(each.spec for each in (*inputs.values(), *bound.outputs.values())):
        del members["instances"]
        form = COLUMNS
    absent = [each for each in members if unnamed or each != "signature_name"]
    return [record(f"{name}_PredictRequest", members, absent, **rule(form)), row, columns]


def answer(spec: ModelSpec, name: str, *, explained: Schema | None = None) -> Types:
    """Returns the type of an answer, and those it needs; none if the outputs are not described.

    `explained`: the schema of the explanations, for an answer with them. No sizes are stated: exporters declare many
    that are not those of the outputs. An answer does not say its signature: with several, it is that of any.
    """
    signatures = of(spec, *Method)
    prefixes = named(signatures, name)
    each_of = [_answer(prefixes[key], each.outputs, explained) for key, each in signatures.items()]
    if len(each_of) <= 1:
        return each_of[0] if each_of else []
    if explained is not None:
        members = {"predictions": list[Any], "explanations": typed(explained)}
        whole = record(f"{name}_ExplainResponse", members, **alternatives(each_of, "anyOf"))
        return [whole, *(types[0] for types in each_of)]
    members = {"predictions": list[Any], "outputs": typed({})}
    whole = record(f"{name}_PredictResponse", members, members, minProperties=1, **alternatives(each_of, "anyOf"))
    return [whole, *(each for types in each_of for each in types)]


def _answer(name: str, outputs: Bindings, explained: Schema | None) -> Types:
    """Returns the type of an answer of one signature, and those it needs."""
    more: Types = []
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


def _each(bindings: Bindings, schema: Callable[[Binding], Schema]) -> dict[str, Any]:
    return {alias: typed(schema(each)) for alias, each in bindings.items()}


def _only(inputs: Bindings) -> Binding | None:
    """Returns the input that a request need not name, if there is one."""
    required = [each for each in inputs.values() if each.required] or list(inputs.values())
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
        return ANY
    return _scalars(binding, nested(element(datatype), shape), nested(element(datatype), shape[:1]))


def _row(binding: Binding) -> Schema:
    """Returns the schema of an input's value in one row."""
    datatype, shape = _values(binding)
    if shape is None:
        return ANY
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
        return ANY_RESULT
    if binding.encoded:
        return nested(written(BYTES), [-1] * len(shape[axis:-1]))
    return nested(written(binding.spec.datatype), [-1] * len(shape[axis:]))
