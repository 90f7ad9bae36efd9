"""The description has a platform's routes where that platform is active, and schemathesis finds them as described."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.dialects import DIALECTS
from handler.edge.app import App
from handler.edge.protocols import dialects_of
from handler.settings import Settings
from tests.protocols.openapi.test_answers import CONFIG
from tests.support import fuzzer
from tests.support.fuzzer import MODES, NEGATIVE, requests
from tests.support.openapi import DOCUMENT, ROOT, ask

VERTEX = "/v1/endpoints/1"
PLATFORMS: dict[str, dict[str, str]] = {
    "sagemaker": {"SAGEMAKER_BIND_TO_PORT": "8080"},
    "several": {"SAGEMAKER_MULTI_MODEL": "true"},
    "vertex": {"AIP_HTTP_PORT": "8080", "AIP_PREDICT_ROUTE": f"{VERTEX}:predict", "AIP_HEALTH_ROUTE": VERTEX},
    "azure": {"AZUREML_MODEL_DIR": "/var/azureml-app/azureml-models/iris/1"},
    "mlflow": {"DRAGOMAN_PLATFORM": "mlflow"},
}
UNSAID = {"enabled": False}
OWN = [
    # JSON Schema cannot say what this very model takes, or where a platform puts its models.
    {"include-path-regex": "^/invocations$|^/models", "checks": {"positive_data_acceptance": UNSAID}},
    {"include-path": "/models", "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "4xx", "503", "507"]}}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of one model, as each of the platforms has it."""
    models = tmp_path_factory.mktemp("opt") / "models"
    shutil.copytree(ROOT / "models" / "iris", models / "iris")
    return models


@pytest.fixture(scope="module")
def apps(folder: Path) -> Iterator[dict[str, App]]:
    """Offer an application on each platform, with its model in memory."""
    made = {}
    own = {"SAGEMAKER_BASE_DIR": str(folder.parent), "DRAGOMAN_REPOSITORY": str(folder), "DRAGOMAN_PRELOAD": ""}
    for name, environ in PLATFORMS.items():
        made[name] = App(Settings.from_env(environ | own), inline=True)
        ask(made[name], "/v2/models/iris", method="GET").raise_for_status()
    yield made
    for app in made.values():
        app.close()


@pytest.fixture(scope="module")
def apis(apps: dict[str, App]) -> dict[str, Any]:
    """Return what schemathesis reads of each platform's description."""
    config = {**CONFIG, "operations": [*CONFIG["operations"], *OWN]}
    return {name: fuzzer.described(app, config) for name, app in apps.items()}


def described(app: App) -> Any:
    return ask(app, "/openapi.json", method="GET").raise_for_status().json()


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_description_has_exactly_the_routes_of_the_platform(apps: dict[str, App], platform: str) -> None:
    """They stand beside those of the protocols and of the models in memory, and their ids are unique."""
    app = apps[platform]
    document = described(app)
    paths = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    own = {(route.method, route.pattern) for dialect in dialects_of(app.settings.contract) for route in dialect.routes}
    typed = {(method, path) for method, path in paths if "models/iris" in path}
    assert paths == own | typed
    assert paths > {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert "platform" not in {tag["name"] for tag in DOCUMENT["tags"]}
    page: httpx.Response = ask(app, "/docs", method="GET", headers={"accept": "text/html"})
    assert "<h2>Platform</h2>" in page.text


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_example_of_the_platforms_inference_is_answered(apps: dict[str, App], platform: str) -> None:
    """It is made for the only model."""
    app = apps[platform]
    operation = described(app)["paths"][app.settings.contract.infer]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    assert ask(app, app.settings.contract.infer, example).json()["predictions"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("platform", ["mlflow", "several"])
@given(data=st.data())
@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_on_a_platforms_routes_is_as_described(
    apis: dict[str, Any], platform: str, mode: str, data: st.DataObject
) -> None:
    """That holds for wrong bodies, types and names; MLflow's errors have a form of their own."""
    api = apis[platform]
    own = [
        path for path, methods in api.raw_schema["paths"].items() if "platform" in next(iter(methods.values()))["tags"]
    ]
    operation = api[data.draw(st.sampled_from(own))]
    method = data.draw(st.sampled_from(list(operation)))
    if mode == NEGATIVE and method == "GET":
        return  # nothing is left to be wrong
    data.draw(requests(operation[method], mode)).call_and_validate()
