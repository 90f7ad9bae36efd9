"""Clients that generators make of /openapi.json call every route, and every model by its typed operations, with a key.

Each operation is called with the parameters and the first body that the description gives as examples. Generating takes
Java and Node, and tests/e2e/tools.py installs the rest.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.tools import HOME, environment, npm_install, require, run
from tests.support import texts
from tests.support.openapi import ROOT, resolved
from tests.support.server import Server, serve

HERE = Path(__file__).with_name("openapi")
MADE = HOME / "openapi-clients"
KEY = "dgm_openapi_clients"
FIRST, LAST = ("loadModel", "grpsOnline"), ("unloadModel", "grpsOffline", "grpsOfflinePost")
"""What others need, and what others must not find done: readiness follows what is loaded and set offline."""
MODELS = {path.name for path in (ROOT / "models").iterdir() if path.is_dir() and path.name[0] not in "._"}
MODELS |= {"encoder", "sentences", "tokens", "pairs", "matryoshka"}
"""The samples, and those of tests.support.texts."""
HALF_PLUS_THREE = [3.5, 4, 5.5]
CALCULATED = ("infer", "inferVersion", "v1Predict", "v1VersionPredict", "v1LabelPredict", "grpsPredict")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Offer the sample models to callers with a key; three of them have a label."""
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(ROOT / "models", models, ignore=shutil.ignore_patterns("*.py"), dirs_exist_ok=True)
    for name, version in {"half_plus_three": 123, "iris": 1, "strings": 1}.items():
        file = models / name / "model-settings.json"
        said = json.loads(file.read_text("utf-8")) if file.exists() else {}
        file.write_text(json.dumps({**said, "version_labels": {"stable": version}}), "utf-8")
    texts.build(models)
    keys = models.with_name("keys.txt")
    keys.write_text(f"test sha256:{hashlib.sha256(KEY.encode()).hexdigest()} infer,read,admin *\n", "utf-8")
    log = models.with_name("log")
    with serve(log, REPOSITORY=str(models), AUTH="keys", KEYS_FILE=str(keys), ALLOW_CODE="true") as running:
        yield running


@pytest.fixture(scope="module")
def description(server: Server) -> Path:
    """Return the file with the description as the server sends it once all models are in memory."""
    MADE.mkdir(parents=True, exist_ok=True)
    with httpx.Client(base_url=f"http://{server.netloc}", headers={"x-api-key": KEY}, timeout=60) as client:
        for entry in client.post("/v2/repository/index").raise_for_status().json():
            client.get(f"/v2/models/{entry['name']}").raise_for_status()
        answer = client.get("/openapi.json")
    file = MADE / "openapi.json"
    file.write_bytes(answer.raise_for_status().content)
    return file


def calls(description: Path) -> list[dict[str, Any]]:
    """Return every operation, with the arguments and the body of its first example; of a model's own, of each."""
    found = []
    for methods in json.loads(description.read_bytes())["paths"].values():
        for operation in methods.values():
            parameters = [resolved(parameter) for parameter in operation.get("parameters", ())]
            media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            first, *more = media.get("examples", {"": {"value": media.get("example")}}).values()
            names, tag = [parameter["name"] for parameter in parameters], operation["tags"][0]
            for shown in (first, *more) if tag.startswith("model ") else (first,):
                of_path = {p["name"]: p["example"] for p in parameters if p["required"]} | shown.get("x-path", {})
                found.append({
                    "operation": operation["operationId"], "tag": tag, "known": names,
                    "parameters": {name: of_path[name] for name in names if name in of_path} | shown.get("x-query", {}),
                    "schema": media.get("schema", {}).get("$ref", "").rpartition("/")[2], "body": shown["value"],
                })  # fmt: skip
    return sorted(found, key=lambda call: (call["operation"] in LAST) - (call["operation"] in FIRST))


def generated(kind: str, description: Path) -> Path:
    """Return the folder of the client that openapi-generator makes."""
    require("java")
    folder = MADE / kind
    shutil.rmtree(folder, ignore_errors=True)
    made = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    generator = environment("openapi") / "openapi-generator-cli"
    run(generator, "generate", "-i", description, "-g", kind, "-o", folder, f"--global-property={made}")
    return folder


def openapi_generator(description: Path) -> tuple[str | Path, ...]:
    """Return the command of the Python client of openapi-generator."""
    return environment("openapi") / "python", HERE / "openapi_generator.py", generated("python", description)


def openapi_python_client(description: Path) -> tuple[str | Path, ...]:
    """Return the command of openapi-python-client's client; it makes all of the description."""
    folder, tool = MADE / "described_client", environment("openapi") / "openapi-python-client"
    told = run(tool, "generate", "--path", description, "--output-path", folder, "--overwrite", "--meta", "none")
    assert "WARNING parsing" not in told
    return environment("openapi") / "python", HERE / "openapi_python_client.py", folder


def typescript_fetch(description: Path) -> tuple[str | Path, ...]:
    """Return the command of the TypeScript client, which the compiler accepts."""
    shutil.copy(HERE / "package.json", MADE)
    npm_install(MADE)
    folder = generated("typescript-fetch", description)
    shutil.copy(HERE / "tsconfig.json", folder)
    run(MADE / "node_modules" / ".bin" / "tsc", "--project", folder)
    return "node", HERE / "typescript_fetch.cjs", folder / "built" / "index.js"


COMMANDS: dict[str, Callable[[Path], tuple[str | Path, ...]]] = {
    "openapi-generator": openapi_generator,
    "openapi-python-client": openapi_python_client,
    "typescript-fetch": typescript_fetch,
}


def numbers(value: Any) -> list[Any]:
    """Return the first list of three numbers in an answer, however it is nested."""
    if isinstance(value, list) and len(value) == len(HALF_PLUS_THREE) and not isinstance(value[0], dict | list):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := numbers(each))), [])


@pytest.mark.parametrize("generator", COMMANDS)
def test_a_generated_client_calls_every_route(generator: str, description: Path, server: Server) -> None:
    """Every answer is a success that the client understands, and predictions are right."""
    asked = calls(description)
    assert {call["tag"] for call in asked if call["operation"].startswith("infer_")} == {
        f"model {name}" for name in MODELS
    }
    command = (*COMMANDS[generator](description), f"http://{server.netloc}", KEY)
    done = subprocess.run(
        list(map(str, command)), input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    called = list(zip([call["operation"] for call in asked], json.loads(done.stdout), strict=True))
    assert [(operation, status) for operation, (status, _) in called if status != 200] == []
    assert [operation for operation, (_, answer) in called if answer is None] == []
    answers = dict(called)
    for operation in CALCULATED:
        assert numbers(answers[operation][1]) == HALF_PLUS_THREE, answers[operation]
    assert "3.5" in json.dumps(answers["infer_half_plus_three"][1])
