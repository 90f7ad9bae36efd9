"""The OpenAPI description of the routes that the platform calls which has started this server: `platforms.json`.

The routes themselves are the dialects', so that none is described that does not exist.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from core.dialects.platforms.contract import dialects
from core.wire import Route
from handler.settings.hosts import Contract

JSON: Final = "application/json"
SCHEMA: Final = {"$ref": "#/components/schemas/MlflowError"}


def added(document: Mapping[str, Any], contract: Contract, example: Any) -> Mapping[str, Any]:
    """Returns the description with the platform's routes; as it is where no platform calls any.

    `example`: a JSON body that its model answers, None if none is known.
    """
    if not contract.infer:
        return document
    found = json.loads(Path(__file__).with_name("platforms.json").read_bytes())
    if example is not None:
        found["operations"]["POST inference"]["requestBody"]["content"][JSON]["example"] = example
    paths = _paths(contract, found["operations"])
    components = {**document["components"]}
    for kind in ("responses", "schemas"):
        components[kind] = {**components[kind], **found[kind]}
    if contract.as_mlflow:
        _phrase_as_mlflow(paths, components["responses"])
    tags = [found["tag"], *document["tags"]]
    return {**document, "tags": tags, "paths": {**document["paths"], **paths}, "components": components}


def _paths(contract: Contract, operations: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    names: set[str] = set()
    own = dialects(contract.health, contract.infer, contract.hosted, as_mlflow=contract.as_mlflow)
    for route in (route for dialect in own for route in dialect.routes):
        operation = operations[_kind(route)]
        name = operation["operationId"]
        if name in names:  # MLflow's server has two paths for its health
            name = f"{name}{len(names)}"
        names.add(name)
        paths.setdefault(route.pattern, {})[route.method.lower()] = {**operation, "operationId": name}
    return paths


def _kind(route: Route) -> str:
    of_a_model = route.method == "POST" and "{model}" in route.pattern
    return f"{route.method} {route.about}{' of a model' if of_a_model else ''}"


def _phrase_as_mlflow(paths: Mapping[str, Any], responses: Mapping[str, Any]) -> None:
    """Gives the refusals of the platform's own routes MLflow's form."""
    for operation in (operation for methods in paths.values() for operation in methods.values()):
        for status, answer in operation["responses"].items():
            if "$ref" in answer:
                plain = responses[answer["$ref"].rpartition("/")[2]]
                operation["responses"][status] = {**plain, "content": {JSON: {"schema": SCHEMA}}}
