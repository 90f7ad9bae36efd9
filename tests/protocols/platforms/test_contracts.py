"""A server that each platform's environment starts keeps that platform's contract: its port, its folder, its routes."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.protocols.test_waiting import until
from tests.support.ports import free_port
from tests.support.s3_stand_in import StandIn
from tests.support.server import HOST, Server, running
from tests.support.wire import Answer

ROOT = Path(__file__).parents[3]
JSON, CSV = "application/json", "text/csv"
ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
TENSOR = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [each for row in ROWS for each in row]}
LINES = "".join(",".join(map(str, row)) + "\n" for row in ROWS)
BODIES: Mapping[str, tuple[str, Any]] = {
    "instances": (JSON, {"instances": ROWS}),
    "inputs": (JSON, {"inputs": ROWS, "params": {}}),
    "split": (JSON, {"dataframe_split": {"columns": NAMES, "index": [0, 1], "data": ROWS}}),
    "records": (JSON, {"dataframe_records": [dict(zip(NAMES, row, strict=True)) for row in ROWS]}),
    "csv": (CSV, LINES),
    "lines": ("application/jsonlines", "".join(f"{json.dumps(row)}\n" for row in ROWS)),
}


@contextmanager
def started(log: Path, environ: Mapping[str, str], flags: Sequence[str] = ()) -> Iterator[Server]:
    """Runs `dragoman serve` as a platform does; "PORT" in a value or a flag stands for the port that it chooses."""

    def arguments(port: int) -> list[str]:
        return ["-m", "dragoman", "serve", *(flag.replace("PORT", str(port)) for flag in flags)]

    def variables(port: int) -> dict[str, str]:
        return {name: text.replace("PORT", str(port)) for name, text in environ.items()}

    with running(arguments, 1, log, {}, variables) as (process, (port,)):
        yield Server(port, process, log)


def asked(server: Server, method: str, path: str, kind: str = JSON, body: Any = None, **headers: str) -> Answer:
    """Returns an answer; `body` is text, or what JSON carries."""
    sent = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    with server.wire() as wire:
        return wire.call(method, path, sent, {"content-type": kind, **headers})


class Contract(NamedTuple):
    """`folder`: where the model is, below the test's own. `health`, `infer`: the paths that the platform calls."""

    environ: Mapping[str, str]
    folder: str
    health: str
    infer: str
    flags: Sequence[str] = ()
    why: str = ""


DEPLOYED = "/v1/endpoints/1/deployedModels/2"
CONTRACTS = {
    # https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
    "sagemaker": Contract({"SAGEMAKER_BIND_TO_PORT": "PORT", "SAGEMAKER_BASE_DIR": "HERE"}, "model", "/ping",
        "/invocations", why="SageMaker because SAGEMAKER_BIND_TO_PORT is set"),
    # https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
    "vertex": Contract({"AIP_HTTP_PORT": "PORT", "AIP_HEALTH_ROUTE": DEPLOYED,
        "AIP_PREDICT_ROUTE": DEPLOYED + ":predict", "AIP_STORAGE_URI": "HERE/m"}, "m", DEPLOYED, DEPLOYED + ":predict",
        why="Vertex AI because AIP_HTTP_PORT and AIP_PREDICT_ROUTE are set"),
    # https://learn.microsoft.com/en-us/azure/machine-learning/how-to-deploy-custom-container
    "azure": Contract({"AZUREML_MODEL_DIR": "HERE/iris/3"}, "iris/3/saved", "/v2/health/ready", "/score",
        ("--port", "PORT"), why="Azure ML because AZUREML_MODEL_DIR is set"),
    # https://mlflow.org/docs/latest/ml/deployment/deploy-model-locally/
    "mlflow": Contract({"DRAGOMAN_PLATFORM": "mlflow"}, "m", "/ping", "/invocations",
        ("--port", "PORT", "--repository", "HERE/m"), why="MLflow because DRAGOMAN_PLATFORM is mlflow"),
}  # fmt: skip


@pytest.fixture(scope="module", params=CONTRACTS)
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Contract]]:
    """A server as each platform starts it, with a model's files and nothing else in its folder."""
    here, contract = tmp_path_factory.mktemp(request.param), CONTRACTS[request.param]
    copytree(ROOT / "models" / "iris" / "1", here / contract.folder)
    environ = {name: text.replace("HERE", str(here)) for name, text in contract.environ.items()}
    with started(here / "log", environ, [flag.replace("HERE", str(here)) for flag in contract.flags]) as server:
        yield server, contract
        assert server.runs()


@pytest.mark.parametrize("name", BODIES)
def test_predictions(at: tuple[Server, Contract], name: str) -> None:
    """Each kind of body has the same predictions: MLflow's, Vertex AI's, and the CSV of SageMaker's algorithms."""
    server, contract = at
    kind, body = BODIES[name]
    answer = asked(server, "POST", contract.infer, kind, body, accept=JSON)
    assert answer.status == 200, answer.body
    found = answer.json()["predictions"]
    expected = asked(server, "POST", f"/v2/models/{model_of(server)}/infer", JSON, {"inputs": [TENSOR]}).tensors()
    probabilities = [row["probabilities"] for row in found] if isinstance(found, list) else found["probabilities"]
    np.testing.assert_allclose(probabilities, expected["probabilities"], rtol=1e-6)


def model_of(server: Server) -> str:
    (name,) = asked(server, "GET", "/v2/models").json()["models"]
    return str(name)


def test_the_open_inference_protocol_on_the_platforms_route(at: tuple[Server, Contract]) -> None:
    """A body with datatypes gets V2's answer."""
    server, contract = at
    answer = asked(server, "POST", contract.infer, JSON, {"id": "7", "inputs": [TENSOR]})
    assert answer.json()["id"] == "7"
    assert set(answer.tensors()) == {"label", "probabilities"}


def test_health_refusals_and_the_reason_of_the_start(at: tuple[Server, Contract]) -> None:
    """Health is 200 once the model is loaded; a refusal is JSON; the log says which platform was recognised."""
    server, contract = at
    until(lambda: asked(server, "GET", contract.health).status == 200)
    if "repository" not in " ".join(contract.flags):
        assert asked(server, "GET", f"/v2/models/{model_of(server)}/ready").status == 200
    refused = asked(server, "POST", contract.infer, JSON, {"nothing": 1})
    assert refused.status == 400
    members = (
        {"error_code", "message"} if contract.infer == "/invocations" and contract.folder != "model" else {"error"}
    )
    assert refused.json().keys() == members
    assert asked(server, "POST", contract.infer, "image/png", "x").status == 415
    assert asked(server, "POST", contract.infer, CSV, LINES, accept="text/html").status == 406
    assert f"started as on {contract.why}" in server.log.read_text()


def test_csv_in_csv_out(at: tuple[Server, Contract]) -> None:
    """A client that accepts anything gets CSV for CSV, except from MLflow's server, which always answers in JSON.

    Sources: https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-inference.html; MLflow's scoring_server.
    """
    server, contract = at
    answer = asked(server, "POST", contract.infer, CSV, LINES, accept="*/*")
    is_mlflow = "DRAGOMAN_PLATFORM" in contract.environ
    assert answer.headers["content-type"].partition(";")[0] == (JSON if is_mlflow else CSV)
    if not is_mlflow:
        first = asked(server, "POST", contract.infer, JSON, {"instances": ROWS}).json()["predictions"][0]
        cells = [float(cell) for cell in answer.body.decode().splitlines()[0].split(",")]
        np.testing.assert_allclose(cells, [first["label"], *first["probabilities"]], rtol=1e-6)


def test_sagemaker_hosts_several_models(tmp_path: Path) -> None:
    """It unpacks each below models/NAME/model, asks to load it, invokes it, and unloads it.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html.
    """
    environ = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BASE_DIR": str(tmp_path), "SAGEMAKER_BIND_TO_PORT": "PORT"}
    with started(tmp_path / "log", environ) as server:
        assert asked(server, "GET", "/ping").status == 200  # the folder of the models is not there
        assert "does not exist" not in server.log.read_text()
        for name in ("abc", "def"):
            copytree(ROOT / "models" / "iris" / "1", tmp_path / "models" / name / "model")
        urls = {name: f"{tmp_path}/models/{name}/model" for name in ("abc", "def")}
        loads = [asked(server, "POST", "/models", JSON, {"model_name": name, "url": url}) for name, url in urls.items()]
        assert [answer.status for answer in loads] == [200, 200]
        listed = asked(server, "GET", "/models").json()
        assert listed == {"models": [{"modelName": name, "modelUrl": url} for name, url in urls.items()]}
        again = asked(server, "POST", "/models", JSON, {"model_name": "abc", "url": urls["abc"]})
        invoked = asked(
            server, "POST", "/models/abc/invoke", CSV, LINES, **{"x-amzn-sagemaker-target-model": "a.tar.gz"}
        )
        assert (again.status, invoked.status, len(invoked.body.splitlines())) == (409, 200, 2)
        gone = [asked(server, "DELETE", "/models/abc").status, asked(server, "GET", "/models/abc").status]
        assert gone == [200, 404]


def test_kserves_flags_serve_its_clients(tmp_path: Path) -> None:
    """A ServingRuntime names model, folder and port; V1's and V2's routes have that name.

    Source: https://kserve.github.io/website/docs/model-serving/predictive-inference/frameworks/overview, and the files
    config/runtimes/*.yaml of https://github.com/kserve/kserve.
    """
    copytree(ROOT / "models" / "iris" / "1", tmp_path / "m" / "1")
    flags = ["--model_name=flowers", f"--model_dir={tmp_path}/m", "--http_port=PORT"]
    with started(tmp_path / "log", {"DRAGOMAN_PLATFORM": "kserve"}, flags) as server:
        assert asked(server, "GET", "/v1/models/flowers").json()["name"] == "flowers"
        predicted = asked(server, "POST", "/v1/models/flowers:predict", JSON, {"instances": ROWS})
        assert len(predicted.json()["predictions"]) == 2
        assert asked(server, "POST", "/v2/models/flowers/infer", JSON, {"inputs": [TENSOR]}).status == 200
        assert asked(server, "POST", "/invocations", JSON, {"instances": ROWS}).status == 404


WAITS = """
from pathlib import Path
import time

def predict(inputs, parameters):
    (Path(__file__).parent / "entered").touch()
    while not (Path(__file__).parent / "gate").exists():
        time.sleep(0.005)
    return {"y": inputs["x"]}
"""


@pytest.mark.parametrize("environ", [
    {"K_SERVICE": "s", "K_REVISION": "s-1", "PORT": "PORT"},
    {"FLY_APP_NAME": "app", "PORT": "PORT"},
    {"DRAGOMAN_PLATFORM": "port", "PORT": "PORT"},
    {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LWA_PORT": "PORT", "PORT": "1"},
], ids=["knative", "fly", "port", "web-adapter"])  # fmt: skip
def test_the_port_is_the_platforms_and_sigterm_lets_requests_end(environ: Mapping[str, str], tmp_path: Path) -> None:
    """A request that runs when the platform stops the container is answered, and the process ends with 0.

    Sources: https://cloud.google.com/run/docs/container-contract#instance-shutdown,
    https://knative.dev/docs/serving/services/, https://fly.io/docs/launch/autostop-autostart/,
    https://awslabs.github.io/aws-lambda-web-adapter/configuration/readiness-check.html: GET / is below 500.
    """
    model = tmp_path / "models" / "waits" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(WAITS)
    own = {"DRAGOMAN_REPOSITORY": str(tmp_path / "models"), "DRAGOMAN_ALLOW_CODE": "true"}
    answers: list[Answer] = []
    with started(tmp_path / "log", {**environ, **own}) as server:
        assert asked(server, "GET", "/").status == 200
        body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [7]}]}
        thread = threading.Thread(
            target=lambda: answers.append(asked(server, "POST", "/v2/models/waits/infer", JSON, body))
        )
        thread.start()
        until((model / "entered").exists)
        os.kill(server.process.pid, signal.SIGTERM)
        until(lambda: "Shutting down" in server.log.read_text())
        (model / "gate").touch()
        thread.join()
        assert server.process.wait(30) in (0, -signal.SIGTERM)
    assert answers[0].json()["outputs"][0]["data"] == [7]


@pytest.mark.parametrize("rpc", [False, True], ids=["http", "grpc"])
def test_the_web_adapters_hooks_answer_it_once_in_order(tmp_path: Path, rpc: Any) -> None:
    """A client's request, which the adapter passes on with headers of its own, finds nothing there.

    Source: https://github.com/aws/aws-lambda-web-adapter/releases/tag/v1.1.0.
    """
    copytree(ROOT / "models" / "iris", tmp_path / "models" / "iris")
    paths = {"AWS_LWA_SNAPSTART_BEFORE_CHECKPOINT_PATH": "/before", "AWS_LWA_SNAPSTART_AFTER_RESTORE_PATH": "/after"}
    function = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start", "AWS_LWA_PORT": "PORT"}
    own = {"DRAGOMAN_REPOSITORY": str(tmp_path / "models"), "DRAGOMAN_PRELOAD": "iris"}
    passed_on = {"x-amzn-request-context": "{}"}
    flags = ("--grpc-port", str(free_port())) if rpc else ()
    with started(tmp_path / "log", {**function, **paths, **own}, flags) as server:
        assert asked(server, "GET", "/").status == 200
        early = [
            asked(server, "POST", "/before", **passed_on),
            asked(server, "POST", "/after"),
            asked(server, "GET", "/before"),
        ]
        assert [answer.status for answer in early] == [404] * 3
        assert asked(server, "POST", "/before").status == 200
        assert asked(server, "GET", "/v2/models/iris/ready").status == 200
        assert [asked(server, "POST", path).status for path in ("/before", "/after", "/after")] == [404, 200, 404]
        assert asked(server, "POST", "/v2/models/iris/infer", JSON, {"inputs": [TENSOR]}).status == 200


SQS = {"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q", "attributes": {}}
DIRECT = {"model_name": "iris", "inputs": [TENSOR]}
BINARY = {**DIRECT, "parameters": {"binary_data_output": True}}


def test_the_web_adapters_other_events_answer_as_the_function_does(tmp_path: Path) -> None:
    """Messages, warm-up and direct inference; an event that fails has a status that the adapter can make a failure of.

    Sources: https://awslabs.github.io/aws-lambda-web-adapter/features/non-http-events.html, error-status-codes.html,
    request-context.html; fetch_response in src/lib.rs of the adapter.
    """
    function = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LWA_PORT": "PORT", "DRAGOMAN_REPOSITORY": str(ROOT / "models")}
    (tmp_path / "out").mkdir()
    environ = {**function, "DRAGOMAN_BATCH_OUTPUT": str(tmp_path / "out")}
    end = {"deadline": time.time_ns() // 10**6 + 10**6}
    own = {"x-amzn-request-context": "null", "x-amzn-lambda-context": json.dumps(end)}
    bodies = [{"model": "iris", "instances": ROWS}, {"model": "nobody", "instances": ROWS}]
    messages = {"Records": [SQS | {"messageId": f"m{n}", "body": json.dumps(each)} for n, each in enumerate(bodies)]}
    with started(tmp_path / "log", environ) as server:

        def passed(event: Any, path: str = "/events", **more: str) -> tuple[int, Any]:
            answer = asked(server, "POST", path, JSON, event, **own | more)
            return answer.status, answer.json()

        assert passed(messages) == (200, {"batchItemFailures": []})
        lines = (tmp_path / "out" / "m0.jsonl").read_text().splitlines()
        assert ([json.loads(line)["index"] for line in lines], "is not in" in (tmp_path / "out" / "m1.jsonl")
            .read_text()) == ([0, 1], True)  # fmt: skip
        status, warm = passed({}, **{"x-amzn-lambda-context": "{}"})
        assert (status, warm["warm"], warm["models"]["iris"]) == (200, True, "READY")
        status, answer = passed(DIRECT)
        assert (status, [each["name"] for each in answer["outputs"]]) == (200, ["label", "probabilities"])
        assert passed(DIRECT | {"model_name": "nobody"})[0] == 404
        failures = {"not understood": 5, "expected JSON": "{", "gateway's event": {"rawPath": "/"}, "binary": BINARY}
        for told, event in failures.items():
            status, answer = passed(event)
            assert (status, told in answer["error"]) == (500, True), answer
        for more in ({"x-amzn-request-context": "{}"}, {"x-forwarded-for": "10.0.0.1"}):
            assert passed(messages, **more)[0] == 404
        assert asked(server, "GET", "/events", **own).status == 404
        assert "AWS_LWA_ERROR_STATUS_CODES is not set" in server.log.read_text()


def test_without_a_platform_nothing_of_one_is_there(tmp_path: Path) -> None:
    """No route, no other address than the loopback, and nothing in the log."""
    flags = ("--port", "PORT", "--repository", str(ROOT / "models"))
    with ExitStack() as stack:
        server = stack.enter_context(started(tmp_path / "log", {"PORT": "1", "SAGEMAKER_REGION": "x"}, flags))
        calls = [("GET", "/ping"), ("POST", "/invocations"), ("POST", "/score"), ("GET", "/models"), ("GET", "/health")]
        assert [asked(server, method, path).status for method, path in calls] == [404] * 5
        assert "started as on" not in server.log.read_text()
        assert HOST in server.log.read_text()


def test_vertex_ais_folder_of_one_model_is_read_from_its_bucket(stand_in: StandIn, tmp_path: Path) -> None:
    """A folder in a bucket is what the same folder on a disk is: it has neither a name nor versions."""
    for file in (ROOT / "models" / "iris" / "1").iterdir():
        stand_in.put(f"artifacts/iris/{file.name}", file.read_bytes())
        stand_in.things[f"artifacts/iris/{file.name}"].meta["Last-Modified"] = "Sun, 22 Nov 2026 15:00:00 GMT"
    own = {"AIP_STORAGE_URI": "gs://bucket/artifacts/iris", "STORAGE_EMULATOR_HOST": stand_in.url}
    environ = {**CONTRACTS["vertex"].environ, **own, "DRAGOMAN_CACHE": str(tmp_path / "cache")}
    with started(tmp_path / "log", environ) as server:
        until(lambda: asked(server, "GET", DEPLOYED).status == 200)
        kind, body = BODIES["instances"]
        assert len(asked(server, "POST", f"{DEPLOYED}:predict", kind, body).json()["predictions"]) == 2
        assert model_of(server) == "iris"
