"""Pydantic types that become components of the OpenAPI description, and the schemas of their members.

Generators of clients make a class of each type. What they cannot read (recursion, alternatives) is the "then" of an
empty "if": validators apply it, and generators skip it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from core.dtype import BF16, BOOL, DataType
from core.tensor import TensorSpec
from handler.site.examples import MOST_ELEMENTS

COMPONENT: Final = "#/components/schemas/"
OTHER: Final = "x-component"
"""Stands for a reference that pydantic does not know, until the schemas are part of the description."""
LEAF: Final = {"type": ["number", "string", "boolean", "null"]}
B64: Final = {"type": "object", "required": ["b64"], "properties": {"b64": {"type": "string"}}, "maxProperties": 1}

Schema = dict[str, Any]


def other(component: str) -> Schema:
    """Returns a reference to a component, also to one that pydantic does not make."""
    return {OTHER: component}


def rule(then: Mapping[str, Any]) -> Schema:
    """Returns a schema that binds validators, and that generators skip."""
    return {"if": {}, "then": dict(then)}


def any_of(about: str, *schemas: Schema) -> Schema:
    """Returns the schema of a value that obeys one of these."""
    return {"description": about, **rule({"anyOf": list(schemas)})}


def typed(schema: Mapping[str, Any]) -> Any:
    """Returns the type of a member with this schema."""
    return Annotated[Any, WithJsonSchema(dict(schema))]


def one_of(*names: str) -> Any:
    """Returns the type of a member that has to be one of the names; of any text if there are none."""
    return Literal[names] if names else str


def record(name: str, members: Mapping[str, Any], optional: Iterable[str] = (), **more: Any) -> type[BaseModel]:
    """Returns the type of an object. `members`: types by name. `optional`: which can be absent. `more`: its schema.

    Members have any names, also those that Python and pydantic do not permit: `x:0`, `model_name`.
    """
    absent = set(optional)
    fields: Any = {
        f"member_{index}": (
            type_,
            Field(default_factory=dict, alias=alias, title=alias)
            if alias in absent
            else Field(alias=alias, title=alias),
        )
        for index, (alias, type_) in enumerate(members.items())
    }
    return create_model(name, __config__=ConfigDict(json_schema_extra=more), **fields)


def tensor_data(spec: TensorSpec) -> Schema:
    """Returns the schema of an input's elements in V2: flat, or nested as its shape is, with its fixed sizes."""
    if not spec.shape or max(spec.shape) < 0 or math.prod(map(abs, spec.shape)) > MOST_ELEMENTS:
        return other("TensorData")
    flat: Schema = {"type": "array", "items": LEAF}
    if min(spec.shape) >= 0:
        count = math.prod(spec.shape)
        flat |= {"minItems": count, "maxItems": count}
    forms = [flat, nested(LEAF, spec.shape)] if len(spec.shape) > 1 else [nested(LEAF, spec.shape)]
    about = "row-major, flat or nested as deep as the shape"
    return {"type": "array", "items": {}, **any_of(about, *forms)}


def nested(element: Schema, sizes: Sequence[int]) -> Schema:
    """Returns the schema of lists in lists, as deep as there are sizes; -1 is any size."""
    for size in reversed(sizes):
        element = {"type": "array", "items": element} | ({} if size < 0 else {"minItems": size, "maxItems": size})
    return element


def element(datatype: DataType) -> Schema:
    """Returns the schema of one element under /v1."""
    if datatype.is_bytes:
        return any_of("text, or bytes as an object with `b64`", {"type": "string"}, B64)
    if datatype is BOOL:
        return {"type": "boolean"}
    if datatype.is_float or datatype is BF16:
        return {"type": "number"}
    limits = np.iinfo(datatype.numpy.str)
    return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}


def written(datatype: DataType) -> Schema:
    """Returns the schema of one element of an answer under /v1. NaN and infinities may be null, or no JSON at all."""
    found = element(datatype)
    return {"type": ["number", "null"]} if found.get("type") == "number" else found


def schemas(types: Iterable[type[BaseModel]]) -> Schema:
    """Returns types, and those of their members, as components of the description.

    Each is made alone: pydantic's `models_json_schema` compares the names of all of them, which takes twice the time.
    """
    found: Schema = {}
    for each in types:
        made = each.model_json_schema(ref_template=COMPONENT + "{model}")
        found |= made.pop("$defs", {})
        found[each.__name__] = made
    referred: Schema = _referred(found)
    return referred


def _referred(node: Any) -> Any:
    """Replaces each schema that is a component with a reference to it."""
    if isinstance(node, list):
        return [_referred(each) for each in node]
    if not isinstance(node, dict):
        return node
    if OTHER in node:
        return {"$ref": COMPONENT + node[OTHER]}
    return {name: _referred(each) for name, each in node.items()}
