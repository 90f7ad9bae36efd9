"""The OpenAPI description: the routes of the protocols, and typed operations for each model in memory.

`openapi.json` has the former. The latter come from the models' own descriptions through pydantic: names, datatypes,
ranks and fixed sizes, with examples that work.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import BaseModel, Field, RootModel, create_model

from core.dtype import BYTES
from core.operations import ModelSpec
from core.signature import Method
from core.tensor import MAX_DIMENSION, MAX_RANK, TensorSpec
from handler.site import examples, features, rows
from handler.site.components import COMPONENT, Schema, one_of, other, record, rule, schemas, tensor_data, typed
from handler.site.model import shape

DESCRIPTION: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
INFER: Final = DESCRIPTION["paths"]["/v2/models/{model}/infer"]["post"]
PREDICT: Final = DESCRIPTION["paths"]["/v1/models/{model}:predict"]["post"]
EXPLAIN: Final = DESCRIPTION["paths"]["/v1/models/{model}:explain"]["post"]
BY_EXAMPLES: Final = {
    method: DESCRIPTION["paths"][f"/v1/models/{{model}}:{method}"]["post"]
    for method in (Method.CLASSIFY, Method.REGRESS)
}
RESULT: Final = {Method.CLASSIFY: "V1Classes", Method.REGRESS: "V1Numbers"}
EXPLANATIONS: Final = DESCRIPTION["components"]["schemas"]["V1Explanations"]["properties"]["explanations"]
RESULTS: Final = DESCRIPTION["components"]["schemas"]["ResponseOutput"]["properties"]["data"]
JSON: Final = "application/json"
MOST_MODELS: Final = 1024
"""Models whose types are kept for the next description."""
MOST_TENSORS: Final = 1024
"""Inputs and outputs of a model with types, counted again in each signature. Each takes about a millisecond."""


def document(specs: Iterable[ModelSpec], made: dict[str, "TypedModel"]) -> dict[str, Any]:
    """Returns the description with typed operations for these models. One without inputs, or with very many, has none.

    `made`: the models that were described before, by their identifiers. New ones are added; each takes 7 ms.
    """
    models = [_typed(spec, name, made) for name, spec in _named(specs).items() if 0 < _tensors(spec) <= MOST_TENSORS]
    if not models:
        return DESCRIPTION
    components = DESCRIPTION["components"]
    paths, types = DESCRIPTION["paths"].copy(), components["schemas"].copy()
    for each in models:
        paths |= each.paths
        types |= each.schemas
    tags = [{"name": each.tag, "description": each.about()} for each in models]
    return {
        **DESCRIPTION,
        "tags": [*tags, *DESCRIPTION["tags"]],
        "paths": paths,
        "components": {**components, "schemas": types},
    }


def _tensors(spec: ModelSpec) -> int:
    """Returns how many tensors the types of a model describe; 0 for one that describes no inputs."""
    if not spec.inputs:
        return 0
    bound = sum(len(each.inputs or ()) + len(each.outputs) for each in spec.signatures.values())
    return len(spec.inputs) + len(spec.outputs or ()) + bound


def _typed(spec: ModelSpec, name: str, made: dict[str, "TypedModel"]) -> "TypedModel":
    known = made.get(name)
    if known is not None and known.spec is spec:
        return known
    if len(made) >= MOST_MODELS:
        made.clear()
    made[name] = TypedModel(spec, name)
    return made[name]


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


class TypedModel:
    """One model's operations by path, and the components that they refer to. `name`: an identifier."""

    def __init__(self, spec: ModelSpec, name: str) -> None:
        self.name = name
        self.tag = f"model {spec.name}"
        self.spec = spec
        self._types: list[type[BaseModel]] = []
        self.paths = self._paths()
        self.schemas = schemas(self._types)

    def about(self) -> str:
        inputs = ", ".join(f"`{each.name}` {each.datatype.name} {_shape(each)}" for each in self.spec.inputs or ())
        outputs = ", ".join(f"`{each.name}` {each.datatype.name} {_shape(each)}" for each in self.spec.outputs or ())
        return f"{inputs} to {outputs or 'outputs that it does not describe'}; in memory now"

    def _paths(self) -> dict[str, Any]:
        """Returns the typed operations by path, and adds their types."""
        spec, name, place = self.spec, self.name, quote(self.spec.name, safe="")
        body = examples.v2(spec)
        tensors = {} if body is None else {"tensors": body}
        under_v1 = examples.v1_all(spec)
        asked = self._first(rows.request(spec, name), "V1PredictRequest")
        answered = self._first(rows.answer(spec, name), "V1PredictResponse")
        infer = self._first([self._request(spec.inputs or (), spec.outputs or ())], "")
        inferred = self._first([self._answer(spec.outputs)] if spec.outputs else [], "InferResponse")
        found = {
            f"/v2/models/{place}/infer": self._operation(INFER, "infer", infer, inferred, tensors),
            f"/v1/models/{place}:predict": self._operation(PREDICT, "predict", asked, answered, under_v1),
        }
        if spec.explainer is not None:
            explained = self._first(rows.answer(spec, name, explained=EXPLANATIONS), "V1Explanations")
            found[f"/v1/models/{place}:explain"] = self._operation(EXPLAIN, "explain", asked, explained, under_v1)
        for method, base in BY_EXAMPLES.items():
            if types := features.request(spec, name, method):
                bodies = examples.v1_examples(spec, method)
                operation = self._operation(base, method, self._first(types, ""), RESULT[method], bodies)
                found[f"/v1/models/{place}:{method}"] = operation
        return {path: {"post": operation} for path, operation in found.items()}

    def _first(self, types: list[type[BaseModel]], general: str) -> str:
        """Adds types, and returns the first's name; without any, that of the general type."""
        self._types += types
        return types[0].__name__ if types else general

    def _operation(
        self, base: Mapping[str, Any], verb: str, schema: str, answer: str, bodies: Mapping[str, Any]
    ) -> dict[str, Any]:
        shown = {"examples": {name: {"summary": name.capitalize(), "value": body} for name, body in bodies.items()}}
        answers = dict(base["responses"])
        kinds = {
            kind: {key: value for key, value in content.items() if key not in ("example", "examples")}
            for kind, content in answers["200"]["content"].items()
        }
        kinds[JSON] = {"schema": {"$ref": COMPONENT + answer}}
        answers["200"] = {**answers["200"], "content": kinds}
        return {
            "tags": [self.tag],
            "operationId": f"{verb}_{self.name}",
            "summary": f"{base['summary']}: {self.spec.name}",
            "description": self.about() + ".",
            "requestBody": {
                "required": True,
                "content": {JSON: {"schema": {"$ref": COMPONENT + schema}} | (shown if bodies else {})},
            },
            "responses": answers,
        }

    def _request(self, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> type[BaseModel]:
        tensors = [self._tensor(each, index) for index, each in enumerate(inputs)]
        either: Any = reduce(or_, tensors)
        if len(tensors) > 1:
            # It has a name of its own: generators would call that of each model "InputsInner".
            named: Any = RootModel[Annotated[either, Field(discriminator="name")]]
            either = create_model(f"{self.name}_AnyInput", __base__=named)
        wanted: Any = create_model(f"{self.name}_RequestedOutput", name=(one_of(*(each.name for each in outputs)), ...))
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
            name=(one_of(spec.name), ...),
            shape=(
                list[size],
                Field(description=_shape(spec), min_length=least, max_length=most, json_schema_extra=_sizes(spec)),
            ),
            datatype=(one_of(spec.datatype.name, *spec.datatype.accepts), ...),
            data=(typed(tensor_data(spec)), ...),
        )

    def _answer(self, outputs: Iterable[TensorSpec]) -> type[BaseModel]:
        """Returns the type of an answer of V2, whose outputs have one type. Best classes of any output are BYTES."""
        known = list(outputs)
        kinds = dict.fromkeys([*(each.datatype.name for each in known), BYTES.name])
        members = {
            "name": one_of(*(each.name for each in known)),
            "shape": typed(other("Shape")),
            "datatype": one_of(*kinds),
            "parameters": typed(other("Parameters")),
            "data": typed(RESULTS),
        }
        output: Any = record(f"{self.name}_Output", members, ("parameters", "data"))
        whole = {
            "model_name": one_of(self.spec.name),
            "model_version": str,
            "id": str,
            "parameters": typed(other("Parameters")),
            "outputs": list[output],
        }
        return record(f"{self.name}_InferResponse", whole, ("id", "parameters"))


def _sizes(spec: TensorSpec) -> Schema:
    """Returns the rule that binds the fixed sizes of a shape."""
    fixed = [{} if each < 0 else {"const": each} for each in spec.shape or ()]
    return rule({"prefixItems": fixed}) if any(fixed) else {}


def _shape(spec: TensorSpec) -> str:
    return "of any shape" if spec.shape is None else shape(spec.shape)
