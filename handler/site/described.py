"""The OpenAPI description: the routes of the protocols, and typed operations for each model in memory.

`openapi.json` has the former. The latter come from the models' own descriptions through pydantic: names, datatypes,
ranks and fixed sizes, with an example that works. Generators of clients make a class of each; what they cannot read,
the sizes, is a "then" of an empty "if": validators apply it, and generators skip it.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field, RootModel, WithJsonSchema, create_model
from pydantic.json_schema import models_json_schema

from core.operations import ModelSpec
from core.tensor import MAX_DIMENSION, MAX_RANK, TensorSpec
from handler.site import examples
from handler.site.model import shape

DESCRIPTION: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
INFER: Final = DESCRIPTION["paths"]["/v2/models/{model}/infer"]["post"]
PREDICT: Final = DESCRIPTION["paths"]["/v1/models/{model}:predict"]["post"]
EXPLAIN: Final = DESCRIPTION["paths"]["/v1/models/{model}:explain"]["post"]
JSON: Final = "application/json"
COMPONENT: Final = "#/components/schemas/"
DATA: Final = "x-tensor-data"
"""Stands for a reference that pydantic does not know, until the schemas are part of the description."""
LEAF: Final = {"type": ["number", "string", "boolean", "null"]}
NESTED: Final = "row-major, flat or nested as deep as the shape"


def document(specs: Iterable[ModelSpec]) -> dict[str, Any]:
    """Returns the description with typed operations for these models. One that describes no inputs has none."""
    typed = [_Typed(spec, name) for name, spec in _named(specs).items() if spec.inputs]
    if not typed:
        return DESCRIPTION
    components = DESCRIPTION["components"]
    paths: dict[str, Any] = {}
    for each in typed:
        paths |= each.paths()
    tags = [{"name": each.tag, "description": each.about()} for each in typed]
    return {
        **DESCRIPTION,
        "tags": [*tags, *DESCRIPTION["tags"]],
        "paths": {**DESCRIPTION["paths"], **paths},
        "components": {**components, "schemas": {**components["schemas"], **_schemas(typed)}},
    }


def _named(specs: Iterable[ModelSpec]) -> dict[str, ModelSpec]:
    """Returns the models by names that are identifiers, each once."""
    found: dict[str, ModelSpec] = {}
    for spec in specs:
        plain = name = re.sub(r"[^A-Za-z0-9]+", "_", spec.name).strip("_") or "model"
        number = 2
        while name in found:
            name, number = f"{plain}_{number}", number + 1
        found[name] = spec
    return found


class _Typed:
    """One model's operations and types. `name`: an identifier."""

    def __init__(self, spec: ModelSpec, name: str) -> None:
        self.name = name
        self.tag = f"model {spec.name}"
        self._spec = spec
        self.request = self._request(spec.inputs or (), spec.outputs or ())

    def about(self) -> str:
        inputs = ", ".join(f"`{each.name}` {each.datatype.name} {_shape(each)}" for each in self._spec.inputs or ())
        outputs = ", ".join(f"`{each.name}` {each.datatype.name} {_shape(each)}" for each in self._spec.outputs or ())
        return f"{inputs} to {outputs or 'outputs that it does not describe'}; in memory now"

    def paths(self) -> dict[str, Any]:
        """Returns the typed operations by path."""
        name = quote(self._spec.name, safe="")
        found = {
            f"/v2/models/{name}/infer": self._operation(INFER, "infer", self.request.__name__, examples.v2(self._spec)),
            f"/v1/models/{name}:predict": self._operation(
                PREDICT, "predict", "V1PredictRequest", examples.v1(self._spec)
            ),
        }
        if self._spec.explainer is not None:
            body = examples.v1(self._spec)
            found[f"/v1/models/{name}:explain"] = self._operation(EXPLAIN, "explain", "V1PredictRequest", body)
        return {path: {"post": operation} for path, operation in found.items()}

    def _operation(self, base: Mapping[str, Any], verb: str, schema: str, example: Any) -> dict[str, Any]:
        media = {"schema": {"$ref": COMPONENT + schema}} | ({} if example is None else {"example": example})
        answers = dict(base["responses"])
        answers["200"] = {
            **answers["200"],
            "content": {
                kind: {key: value for key, value in content.items() if key not in ("example", "examples")}
                for kind, content in answers["200"]["content"].items()
            },
        }
        return {
            "tags": [self.tag],
            "operationId": f"{verb}_{self.name}",
            "summary": f"{base['summary']}: {self._spec.name}",
            "description": self.about() + ".",
            "requestBody": {"required": True, "content": {JSON: media}},
            "responses": answers,
        }

    def _request(self, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> type[BaseModel]:
        tensors = [self._tensor(each, index) for index, each in enumerate(inputs)]
        either: Any = reduce(or_, tensors)
        if len(tensors) > 1:
            # It has a name of its own: generators would call that of each model "InputsInner".
            named: Any = RootModel[Annotated[either, Field(discriminator="name")]]
            either = create_model(f"{self.name}_AnyInput", __base__=named)
        wanted: Any = create_model(f"{self.name}_RequestedOutput", name=_one_of(*(each.name for each in outputs)))
        return create_model(
            f"{self.name}_InferRequest",
            id=(str | None, Field(None, description="comes back in the answer")),
            inputs=(list[either], Field(min_length=1)),
            outputs=(list[wanted] | None, Field(None, description="absent or empty: all outputs")),
        )

    def _tensor(self, spec: TensorSpec, index: int) -> type[BaseModel]:
        """Returns the type of one input."""
        least, most = (0, MAX_RANK) if spec.shape is None else (len(spec.shape), len(spec.shape))
        size = Annotated[int, Field(ge=0, le=MAX_DIMENSION)]
        return create_model(
            f"{self.name}_Input{index or ''}",
            name=_one_of(spec.name),
            shape=(
                list[size],
                Field(description=_shape(spec), min_length=least, max_length=most, json_schema_extra=_sizes(spec)),
            ),
            datatype=_one_of(spec.datatype.name, *spec.datatype.accepts),
            data=(Annotated[list[Any], WithJsonSchema(_data(spec))], ...),
        )


def _one_of(*names: str) -> Any:
    """Returns a member that has to be one of the names; any text if there are none."""
    return (Literal[names] if names else str, ...)


def _sizes(spec: TensorSpec) -> dict[str, Any]:
    """Returns the rule that binds the fixed sizes of a shape."""
    fixed = [{} if each < 0 else {"const": each} for each in spec.shape or ()]
    return {"if": {}, "then": {"prefixItems": fixed}} if any(fixed) else {}


def _data(spec: TensorSpec) -> dict[str, Any]:
    """Returns the schema of an input's elements: flat, or nested as its shape is, with its fixed sizes."""
    if not spec.shape or max(spec.shape) < 0 or math.prod(map(abs, spec.shape)) > examples.MOST_ELEMENTS:
        return {DATA: True}
    nested: dict[str, Any] = LEAF
    for size in reversed(spec.shape):
        nested = {"type": "array", "items": nested} | ({} if size < 0 else {"minItems": size, "maxItems": size})
    flat: dict[str, Any] = {"type": "array", "items": LEAF}
    if min(spec.shape) >= 0:
        count = math.prod(spec.shape)
        flat |= {"minItems": count, "maxItems": count}
    forms = [flat, nested] if len(spec.shape) > 1 else [nested]
    return {"type": "array", "items": {}, "description": NESTED, "if": {}, "then": {"anyOf": forms}}


def _shape(spec: TensorSpec) -> str:
    return "of any shape" if spec.shape is None else shape(spec.shape)


def _schemas(typed: Iterable[_Typed]) -> dict[str, Any]:
    """Returns the types as components of the description."""
    wanted: Any = [(each.request, "validation") for each in typed]
    _, made = models_json_schema(wanted, ref_template=COMPONENT + "{model}")
    found: dict[str, Any] = made["$defs"]
    for schema in found.values():
        for name, member in schema.get("properties", {}).items():
            if DATA in member:
                schema["properties"][name] = {"$ref": COMPONENT + "TensorData"}
    return found
