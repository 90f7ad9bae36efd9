"""The types of one model's requests to classify and regress under /v1: examples of the features in each signature."""

import math
from typing import Any

from core.dtype import BYTES
from core.operations import ModelSpec
from core.signature import Binding, Method, Signature
from handler.site.components import Schema, any_of, element, other, record, rule, typed
from handler.site.rows import Types, alternatives, chosen, named, of


def request(spec: ModelSpec, name: str, method: Method) -> Types:
    """Returns the type of a request to classify or regress, and those it needs; none without such a signature.

    `name`: the model's, as an identifier.
    """
    signatures, verb = of(spec, method), method.capitalize()
    prefixes = named(signatures, name)
    each_of = [_request(f"{prefixes[key]}_{verb}", key, each) for key, each in signatures.items()]
    if len(each_of) <= 1:
        return each_of[0] if each_of else []
    name_of, optional = chosen(list(signatures))
    members = {"signature_name": name_of, "context": dict[str, Any], "examples": list[Any]}
    absent = ["context", *(["signature_name"] if optional else [])]
    whole = record(f"{name}_{verb}Request", members, absent, **alternatives(each_of, "oneOf"))
    return [whole, *(each for types in each_of for each in types)]


def _request(name: str, signature: str, bound: Signature) -> Types:
    inputs = bound.inputs or {}
    name_of, optional = chosen([signature])
    features = {alias: typed(_feature(each)) for alias, each in inputs.items()}
    example = record(f"{name}_Features", features, features)
    members = {
        "signature_name": name_of,
        "context": typed(other(example.__name__)),
        "examples": typed({"type": "array", "minItems": 1, "items": other(example.__name__)}),
    }
    needed = [_given(alias) for alias, each in inputs.items() if each.default is None]
    absent = ["context", *(["signature_name"] if optional else [])]
    return [record(f"{name}Request", members, absent, **rule({"allOf": needed} if needed else {})), example]


def _given(feature: str) -> Schema:
    """Returns the rule that the context has a feature, or every example."""
    has = {"required": [feature]}
    shared = {"required": ["context"], "properties": {"context": has}}
    return {"anyOf": [shared, {"properties": {"examples": {"items": has}}}]}


def _feature(binding: Binding) -> Schema:
    """Returns the schema of one feature: its values as a flat list, or a single one as it is."""
    datatype, shape = binding.spec.datatype, binding.feature_shape
    if binding.encoded:
        datatype, shape = BYTES, shape[:-1]
    value = element(datatype)
    if value.get("type") in ("integer", "boolean"):
        value["type"] = ["integer", "boolean"]  # TensorFlow Serving's parser takes one for the other
    count = math.prod(size for size in shape if size != -1)
    flat = {"type": "array", "items": value, "minItems": count} | ({} if -1 in shape else {"maxItems": count})
    return any_of("a value, or a flat list", value, flat) if count == 1 else flat
