"""The routes of platforms in front of the application: which there are, who may call them, and what they answer."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from core.dialects import DIALECTS
from core.wire import Right
from handler.asgi import hooked
from handler.edge import snapshots
from handler.edge.app import App
from handler.edge.protocols import INTERNAL, dialects_of
from handler.settings import Settings
from tests.support.asgi import Local
from tests.support.wire import Answer

ROOT = Path(__file__).parents[3]
ROW = b'{"instances": [[5.1, 3.5, 1.4, 0.2]]}'
Start = Callable[..., Local]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes the application of an environment."""
    with ExitStack() as stack:

        def made(**environ: str) -> Local:
            return stack.enter_context(closing(Local(App(Settings.from_env(environ)))))

        yield made


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder as SageMaker mounts it: one model below model/, and several below models/."""
    shutil.copytree(ROOT / "models" / "iris" / "1", tmp_path / "model")
    for name in ("abc", "def"):
        shutil.copytree(ROOT / "models" / "iris" / "1", tmp_path / "models" / name / "model")
    return tmp_path


def hosted(start: Start, base: Path, **more: str) -> Local:
    """Returns an endpoint of several models."""
    return start(SAGEMAKER_BASE_DIR=str(base), SAGEMAKER_MULTI_MODEL="true", **more)


def load(local: Local, name: str, url: str | None = None, **body: Any) -> Answer:
    at = f"{local.app.settings.contract.hosted}/{name}/model" if url is None else url
    return local.call("POST", "/models", json.dumps({"model_name": name, "url": at, **body}).encode())


def test_a_multi_model_endpoint_loads_lists_invokes_and_unloads(start: Start, base: Path) -> None:
    """Its statuses are those that SageMaker acts on.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html.
    """
    local = hosted(start, base)
    entry = {name: {"modelName": name, "modelUrl": f"{base}/models/{name}/model"} for name in ("abc", "def")}
    assert local.call("GET", "/models").json() == {"models": []}
    assert (local.call("GET", "/models/abc").status, local.call("DELETE", "/models/abc").status) == (404, 404)
    first = load(local, "abc")
    assert (first.status, first.json()) == (200, entry["abc"])
    again = load(local, "abc")
    assert (again.status, again.json()) == (409, {"error": "model 'abc' is already loaded"})
    refusals = {("platform", "NOT_FOUND"): 2, ("platform", "INVALID_ARGUMENT"): 1}
    assert local.app.observer.counts.refusals == refusals
    assert load(local, "def").status == 200
    assert local.call("GET", "/models?next_page_token=x").json() == {"models": [entry["abc"], entry["def"]]}
    assert local.call("GET", "/models/def").json() == entry["def"]
    answer = local.call("POST", "/models/abc/invoke", ROW, {"X-Amzn-SageMaker-Target-Model": "a.tar.gz"})
    assert (answer.status, list(answer.json())) == (200, ["predictions"])
    assert (local.call("DELETE", "/models/abc").status, local.call("DELETE", "/models/abc").status) == (200, 404)
    assert local.call("GET", "/models").json() == {"models": [entry["def"]]}
    assert local.call("GET", "/ping").status == 200


def test_a_model_that_comes_while_the_endpoint_runs_can_be_loaded(start: Start, base: Path) -> None:
    """SageMaker unpacks a model just before it asks for it, and removes it after it was unloaded."""
    local = hosted(start, base)
    assert load(local, "new").status == 404
    shutil.move(base / "models" / "abc", base / "models" / "new")
    assert load(local, "new").status == 200
    assert local.call("DELETE", "/models/new").status == 200
    shutil.rmtree(base / "models" / "new")
    assert (local.call("POST", "/models/new/invoke", ROW).status, load(local, "new").status) == (404, 404)


def test_an_endpoint_of_several_models_begins_without_their_folder(start: Start, tmp_path: Path) -> None:
    """It is healthy before SageMaker unpacks the first model, and loads it then. Browsers get the console's pages."""
    local = hosted(start, tmp_path)
    first = [local.call("GET", path) for path in ("/ping", "/models", "/models/abc")]
    assert [answer.status for answer in first] == [200, 200, 404]
    assert (load(local, "abc").status, first[1].json()) == (404, {"models": []})
    shutil.copytree(ROOT / "models" / "iris" / "1", tmp_path / "models" / "abc" / "model")
    assert load(local, "abc").status == 200
    kinds = [local.call(method, "/models/abc", b"", {"accept": "text/html,*/*"}) for method in ("GET", "DELETE")]
    assert [answer.headers["content-type"].partition(";")[0] for answer in kinds] == ["text/html", "application/json"]


@pytest.mark.parametrize("body", [{"url": 1}, {"model_name": None}, {"url": "/etc/passwd"}, {"model_name": "../x"}])
def test_what_is_not_a_load_is_refused(start: Start, base: Path, body: Mapping[str, Any]) -> None:
    """No request makes the server look outside the folder of models."""
    local = hosted(start, base)
    assert load(local, "abc", **body).status == 400
    assert local.call("POST", "/models", b"[]").status == 400
    assert load(local, "../x").status == 404


def test_short_memory_is_507(start: Start, base: Path) -> None:
    """SageMaker then unloads other models, and asks again."""
    answer = load(hosted(start, base, DRAGOMAN_MEMORY_LIMIT="1MB"), "abc")
    assert answer.status == 507
    assert "DRAGOMAN_MEMORY_LIMIT" in answer.json()["error"]


PLATFORMS = {
    "sagemaker": {"SAGEMAKER_BIND_TO_PORT": "1"},
    "several": {"SAGEMAKER_MULTI_MODEL": "true"},
    "vertex": {"AIP_HTTP_PORT": "1", "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
        "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict"},
    "vertex at the root": {"AIP_HTTP_PORT": "1", "AIP_HEALTH_ROUTE": "/", "AIP_PREDICT_ROUTE": "/predict/"},
    "azure": {"AZUREML_MODEL_DIR": "/a/b/1"},
    "mlflow": {"DRAGOMAN_PLATFORM": "mlflow"},
    "none": {"DRAGOMAN_PLATFORM": "none", "SAGEMAKER_BIND_TO_PORT": "1"},
}  # fmt: skip
ROUTES = {
    "sagemaker": "GET /ping OPEN, POST /invocations INFER",
    "several": "GET /ping OPEN, POST /invocations INFER, POST /models ADMIN, GET /models READ, "
    "GET /models/{model} READ, DELETE /models/{model} ADMIN, POST /models/{model}/invoke INFER",
    "vertex": "GET /v1/endpoints/1/deployedModels/2 OPEN, POST /v1/endpoints/1/deployedModels/2:predict INFER",
    "vertex at the root": "GET / OPEN, POST /predict INFER",
    "azure": "POST /score INFER",
    "mlflow": "GET /ping OPEN, POST /invocations INFER, GET /health OPEN, GET /version READ",
    "none": "",
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_platforms_routes_are_there_with_their_rights(start: Start, base: Path, platform: str) -> None:
    """Each has a right, which an unknown caller lacks; the protocols' routes stay; no other platform's are there."""
    environ = {**PLATFORMS[platform], "DRAGOMAN_REPOSITORY": str(base / "models")}
    settings = Settings.from_env(environ)
    routes = [route for each in dialects_of(settings.contract)[: -len(DIALECTS)] for route in each.routes]
    assert ", ".join(f"{each.method} {each.pattern} {each.right.name}" for each in routes) == ROUTES[platform]
    local = start(**environ, DRAGOMAN_AUTH="keys", DRAGOMAN_KEYS="a sha256:" + "0" * 64 + " infer")
    for route in routes:
        status = local.call(route.method, route.pattern.replace("{model}", "abc"), ROW).status
        assert status == (200 if route.right is Right.OPEN else 401)
    assert local.call("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize(("health", "infer"), [
    ("/", "/"), ("/v1", "/v2"), ("/v1/models/iris", "/v1/models/iris:predict"), ("/v2/models/iris/ready", "/v2/models"),
])  # fmt: skip
def test_vertex_ais_paths_may_be_any(start: Start, health: str, infer: str) -> None:
    """Both may be one path, and what lies below them stays the protocols' own."""
    routes = {"AIP_HTTP_PORT": "1", "AIP_HEALTH_ROUTE": health, "AIP_PREDICT_ROUTE": infer}
    local = start(**routes, DRAGOMAN_REPOSITORY=str(ROOT / "models"), DRAGOMAN_DEFAULT_MODEL="iris")
    assert (local.call("GET", health).status, local.call("POST", infer, ROW).status) == (200, 200)
    below = ("/v1/models/iris/metadata", "/v2/health/ready", "/v2/models/flowers", "/v1/models/flowers")
    assert [local.call("GET", path).status for path in below] == [200] * 4


@pytest.mark.parametrize("path", ["/v1/models/iris:predict", "/v2/models/iris/versions/1/infer"])
@pytest.mark.parametrize("folder", [".", "iris/1"], ids=["repository", "one model"])
def test_vertex_ais_path_names_the_model(start: Start, path: str, folder: str) -> None:
    """Of several models the path's answers. The only model gets its name."""
    routes = {"AIP_HTTP_PORT": "1", "AIP_HEALTH_ROUTE": "/ping", "AIP_PREDICT_ROUTE": path}
    local = start(**routes, DRAGOMAN_REPOSITORY=str(ROOT / "models" / folder))
    assert (local.call("POST", path, ROW).status, local.call("GET", "/v2/models/iris").status) == (200, 200)


def test_mlflows_clients_read_its_errors(start: Start, base: Path) -> None:
    """Every fault has a code, and the platform's other pages are MLflow's: /health, /version.

    Source: https://github.com/mlflow/mlflow/blob/master/mlflow/pyfunc/scoring_server/__init__.py.
    """
    local = start(DRAGOMAN_PLATFORM="mlflow", DRAGOMAN_REPOSITORY=str(base / "model"))
    assert local.call("POST", "/invocations", ROW).status == 200
    wrong = local.call("POST", "/invocations", b"{}")
    assert (wrong.status, wrong.json()["error_code"]) == (400, "BAD_REQUEST")
    assert wrong.json()["message"].startswith("the body has the members []; expected exactly one of")
    assert local.call("GET", "/health").status == 200
    assert local.call("GET", "/version").body
    missing = start(DRAGOMAN_PLATFORM="mlflow", DRAGOMAN_REPOSITORY=str(base / "nothing"))
    unready = missing.call("GET", "/ping")
    assert (unready.status, unready.body) == (503, b"the repository is not a directory: check DRAGOMAN_REPOSITORY\n")
    assert unready.headers["retry-after"] == "1"


def test_a_snapshot_waits_for_the_models_that_are_preloaded(
    start: Start, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they do not load, the adapter reads a failure, and no version is published; it may ask again."""
    function = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
    paths = {"AWS_LWA_SNAPSTART_BEFORE_CHECKPOINT_PATH": "/before", "AWS_LWA_SNAPSTART_AFTER_RESTORE_PATH": ""}
    (base / "models" / "abc" / "model").rename(base / "models" / "abc" / "1")
    own = {"DRAGOMAN_REPOSITORY": str(base / "models"), "DRAGOMAN_PRELOAD": "abc"}
    local = start(**function, **paths, **own)
    app, hooked_app = local.app, hooked(local.app)
    assert hooked_app is not app
    local.app = hooked_app
    try:
        monkeypatch.setattr(snapshots, "LOAD_SECONDS", 0.0)
        assert local.call("POST", "/before").status == 503
        monkeypatch.undo()
        assert [local.call("POST", "/before").status for _ in range(2)] == [200, 404]
    finally:
        local.app = app
    assert app.registry.in_memory()[0] == 1


def test_messages_that_cannot_be_run_are_sent_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue deletes what a successful answer does not name; another event is a failure, which hides its cause."""
    function = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LWA_PASS_THROUGH_PATH": "/in/", "DRAGOMAN_MAX_BODY_BYTES": "500"}
    local = start(**function, DRAGOMAN_REPOSITORY=str(ROOT / "models"))
    app, local.app = local.app, hooked(local.app)
    headers = {"x-amzn-request-context": "null", "x-amzn-lambda-context": "[]"}
    queue = {"Records": [{"eventSource": "aws:sqs", "messageId": "m", "body": "{}"}]}
    try:
        answer = local.call("POST", "/in/", json.dumps(queue).encode(), headers)
        assert (answer.status, answer.json()) == (200, {"batchItemFailures": [{"itemIdentifier": "m"}]})
        answer = local.call("POST", "/in", b'{"batch": {}}', headers)
        assert (answer.status, "DRAGOMAN_BATCH_OUTPUT" in answer.json()["error"]) == (500, True)
        assert local.call("POST", "/in", b" " * 501, headers).status == 500
        monkeypatch.setattr(app.registry, "ready", None)
        answer = local.call("POST", "/in", b"{}", headers)
        assert (answer.status, answer.json()) == (500, {"error": INTERNAL})
        assert local.call("POST", "/events", b"{}", headers).status == 404
    finally:
        local.app = app


def test_a_request_of_v2_may_be_the_adapters_event(start: Start) -> None:
    """Its answer is the document that the function returns, which is JSON."""
    local = start(AWS_LAMBDA_FUNCTION_NAME="f", DRAGOMAN_REPOSITORY=str(ROOT / "models"))
    app, local.app = local.app, hooked(local.app)
    headers = {"x-amzn-request-context": "null", "x-amzn-lambda-context": '{"deadline": 9e15}'}
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    event = {"model_name": "half_plus_three", "model_version": "123", "inputs": [tensor]}
    try:

        def passed(more: Any) -> Answer:
            return local.call("POST", "/events", json.dumps(event | more).encode(), headers)

        assert passed({}).json()["outputs"][0]["data"] == [3.5]
        assert passed({"model_version": 7}).status == 404
        for more, told in (({"parameters": {"binary_data_output": True}}, "binary"), ({"model_name": "a/b"}, "a/b")):
            refused = passed(more)
            assert (refused.status, told in refused.json()["error"]) == (500, True)
        assert local.call("POST", "/events", b'{"rawPath": "/"}', headers).status == 500
        assert local.call("POST", "/events", b"{", headers).status == 500
        assert local.call("POST", "/events", b"{}", headers).json()["warm"] is True
    finally:
        local.app = app


def test_a_models_own_path_is_refused_in_v2s_words(start: Start, base: Path) -> None:
    """What no route has goes the way that it goes without a platform."""
    local = start(SAGEMAKER_BASE_DIR=str(base), SAGEMAKER_BIND_TO_PORT="1", DRAGOMAN_ALLOW_CODE="true")
    assert local.call("GET", "/nothing").status == 404
    assert local.call("GET", "/invocations").status == 405
