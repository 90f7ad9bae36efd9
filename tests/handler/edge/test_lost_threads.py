"""handler.edge: a model whose threads are lost is not ready, in whichever way a client asks for that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.support.asgi import Local, application

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CODE: Final = """
import pathlib, time
metadata = {"inputs": [{"name": "t", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    while inputs["t"].any() and not pathlib.Path("GATE").exists():
        time.sleep(0.01)
    return {"y": inputs["t"]}
"""
REASON: Final = "an inference exceeded the time limit and still occupies a thread of the model"
JSON: Final = {"content-type": "application/json"}
INFERENCE: Final = "/inference.GRPCInferenceService"
HEALTH: Final = "/grpc.health.v1.Health/Check"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Local]:
    """A server of `two`, whose versions have one thread each. Their inferences hang until the file GATE exists."""
    for version in "12":
        file = tmp_path / "root" / "two" / version / "model.py"
        file.parent.mkdir(parents=True)
        file.write_text(CODE.replace("GATE", str(tmp_path / "gate")))
    settings = {"timeout": 0.2, "max_concurrency": 1, "version_policy": {"all": {}}}
    (tmp_path / "root" / "two" / "model-settings.json").write_text(json.dumps(settings))
    local = Local(application(tmp_path / "root", ALLOW_CODE="true", THREADS="4"))
    yield local
    (tmp_path / "gate").touch()
    local.close()


def infer(client: Local, version: str, value: int) -> int:
    """Returns the status of an inference, which hangs if the value is not 0."""
    body = {"inputs": [{"name": "t", "datatype": "INT64", "shape": [1], "data": [value]}]}
    return client.call("POST", f"/v2/models/two/versions/{version}/infer", json.dumps(body).encode()).status


def lose(client: Local, version: str) -> None:
    """Has a version lose its thread."""
    assert infer(client, version, 1) == 504
    while client.call("GET", f"/v2/models/two/versions/{version}/ready").status == 200:
        pass


def asked(client: Local, path: str, body: Any = None) -> tuple[int, Any]:
    """Returns the status and the document of an answer."""
    answer = client.call("GET" if body is None else "POST", path, json.dumps(body or {}).encode(), JSON)
    return answer.status, json.loads(answer.body)


def of_index(client: Local) -> list[tuple[str, str]]:
    """Returns V2's index."""
    entries = asked(client, "/v2/repository/index", {})[1]
    return [(entry["state"], entry["reason"]) for entry in entries]


def of_grps(client: Local) -> list[str]:
    """Returns the states in GRPS's metadata of the server, which has no reasons."""
    models = yaml.safe_load(asked(client, "/grps/v1/metadata/server")[1]["str_data"])["models"]
    return [model["state"] for model in models]


def of_v1(client: Local) -> list[tuple[str, str]]:
    """Returns V1's states, whose newest version comes first."""
    found = asked(client, "/v1/models/two")[1]["model_version_status"]
    return [(entry["state"], entry["status"]["error_message"]) for entry in reversed(found)]


def of_connect(client: Local) -> list[Any]:
    """Returns ModelReady over Connect."""
    names = [{"name": "two", "version": version} for version in "12"]
    return [asked(client, f"{INFERENCE}/ModelReady", name)[1].get("ready", False) for name in names]


@pytest.mark.parametrize(
    ("question", "states"),
    [
        (of_index, [("UNAVAILABLE", REASON), ("READY", "")]),
        (of_grps, ["UNAVAILABLE", "READY"]),
        (of_v1, [("END", REASON), ("AVAILABLE", "")]),
        (of_connect, [False, True]),
    ],
)
def test_a_version_that_has_lost_its_threads_is_not_ready(
    client: Local, question: Callable[[Local], Any], states: list[Any]
) -> None:
    """The other one is, and an answer of it changes nothing."""
    assert infer(client, "2", 0) == 200
    lose(client, "1")
    assert infer(client, "2", 0) == 200
    assert question(client) == states
    assert infer(client, "1", 0) == 503


def test_a_model_is_not_ready_while_its_stable_version_has_lost_its_threads(client: Local) -> None:
    """V1's readiness, V2's and that of gRPC's health checks are the same."""
    lose(client, "2")
    assert client.call("GET", "/v1/models/two").status == 503
    assert asked(client, "/v1/models/two")[1]["ready"] is False
    assert client.call("GET", "/v2/models/two/ready").status == 503
    assert asked(client, HEALTH, {"service": "two"})[1]["status"] == "NOT_SERVING"
