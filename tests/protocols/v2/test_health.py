"""The tests cover health, server metadata, and rules for every path: methods, slashes, queries."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.checks import alive, refusal
from tests.support.server import Server
from tests.support.wire import Answer, Wire, json_input
from tests.support.zoo import models
from tests.support.zoo.python import LOADS_LATE

EXTENSIONS = [
    *("binary_tensor_data", "classification", "generate"),
    *("model_configuration", "model_repository", "statistics"),
]


@pytest.mark.parametrize("path", [row("R-001 R-003 R-005", "live"), row("R-002 R-004 R-005", "ready")])
def test_live_has_its_own_member_and_ready_has_both(wire: Wire, path: str) -> None:
    """The body suits the specification's text and kserve's client; models that are not configured may be broken."""
    answer = wire.get(f"/v2/health/{path}")
    expected = {"live": True, "ready": True} if path == "ready" else {"live": True}
    assert (answer.status, answer.json()) == (200, expected)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.row("R-002")
def test_a_configured_model_that_cannot_load_makes_the_server_unready(zoo: Path, launch: Callable[..., Server]) -> None:
    """503 names the model; live stays 200; other models answer."""
    with launch(REPOSITORY=str(zoo), PRELOAD="add_sub,broken_onnx").wire() as wire:
        while wire.get("/v2/models/add_sub/ready").status != 200:
            assert wire.get("/v2/health/ready").status == 503
            assert wire.get("/v2/health/live").json() == {"live": True}
        answer = wire.get("/v2/health/ready")
        assert answer.status == 503
        body = answer.json()
        assert "broken_onnx" in body.pop("error")
        assert body == {"live": True, "ready": False}
        assert wire.get("/v2/health/live").json()["live"] is True
        alive(wire)


@pytest.mark.row("R-002")
def test_a_configured_model_that_does_not_exist_makes_the_server_unready(
    zoo: Path, launch: Callable[..., Server]
) -> None:
    """503 names it until it exists."""
    with launch(REPOSITORY=str(zoo), PRELOAD="unheard_of").wire() as wire:
        for _ in range(2):
            answer = wire.get("/v2/health/ready")
            assert answer.status == 503
            assert "unheard_of" in answer.json()["error"]
        alive(wire)


@pytest.mark.row("N-02")
def test_a_model_is_unready_while_it_loads_and_ready_after(tmp_path: Path, launch: Callable[..., Server]) -> None:
    """Readiness never waits and never loads; simultaneous requests load once."""
    folder = tmp_path / "repository" / "late" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(LOADS_LATE, encoding="utf-8")
    server = launch(REPOSITORY=str(tmp_path / "repository"), ALLOW_CODE="true")
    answers: list[Answer] = []

    def ask() -> None:
        with server.wire() as own:
            answers.append(own.infer("late", json_input("x", "INT32", np.array([5], np.int32))))

    with server.wire() as wire:
        assert wire.get("/v2/models/late/ready").json()["state"] == "UNAVAILABLE"
        askers = [threading.Thread(target=ask) for _ in range(16)]
        for asker in askers:
            asker.start()
        while not (folder / "loads").exists():
            assert wire.get("/v2/health/live").status == 200
        loading = wire.get("/v2/models/late/ready")
        assert loading.status == 503
        assert loading.json()["state"] == "LOADING"
        (folder / "gate").touch()
        for asker in askers:
            asker.join()
        assert wire.get("/v2/models/late/ready").status == 200
    assert [answer.tensor().tolist() for answer in answers] == [[5]] * 16
    assert (folder / "loads").read_text(encoding="utf-8") == "x"


@pytest.mark.row("N-13")
def test_slow_models_do_not_block_health(zoo: Path, launch: Callable[..., Server], tmp_path: Path) -> None:
    """Probes are answered while the only thread is taken; a request beyond the queue is 503 with Retry-After."""
    server = launch(REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="1", QUEUE="1")
    gate = tmp_path / "gate"
    answers: list[Answer] = []

    def ask() -> None:
        with server.wire() as own:
            answers.append(own.infer("py_waits", json_input("gate", "BYTES", np.array([str(gate).encode()], object))))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    try:
        with server.wire() as wire:
            askers[0].start()
            while not gate.with_suffix(".entered").exists():
                assert wire.get("/v2/health/live").status == 200
            for asker in askers[1:]:
                asker.start()
            while len(answers) < 2:
                assert wire.get("/v2/health/live").status == 200
            assert wire.get("/v2/health/ready").status == 200
            assert wire.get("/v2/models/py_waits/ready").status == 200
            assert all("retry-after" in answer.headers and refusal(answer, 503) for answer in answers)
    finally:
        gate.touch()
        for asker in askers:
            asker.join()
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503]


@pytest.mark.row("R-006", "R-008")
def test_the_server_describes_itself(wire: Wire) -> None:
    """It has name, version, and the extensions that are there."""
    answer = wire.get("/v2")
    assert answer.status == 200
    body = answer.json()
    assert sorted(body) == ["extensions", "name", "version"]
    assert body["name"] == "dragoman"
    assert isinstance(body["version"], str)
    assert sorted(body["extensions"]) == EXTENSIONS


def test_the_name_of_the_server_is_a_setting(zoo: Path, launch: Callable[..., Server]) -> None:
    """DRAGOMAN_NAME stands in the metadata."""
    with launch(REPOSITORY=str(zoo), NAME="other").wire() as wire:
        assert wire.get("/v2").json()["name"] == "other"


@pytest.mark.row("R-007")
@pytest.mark.parametrize("path", ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/add_sub", "/v2/models"])
def test_a_trailing_slash_changes_nothing(wire: Wire, path: str) -> None:
    """There is no redirect: behind API Gateway it would lose the stage."""
    answer = wire.get(path + "/")
    assert answer.status == 200
    assert answer.json() == wire.get(path).json()


METHODS = [
    ("POST", "/v2/health/live", "GET"), ("DELETE", "/v2/health/ready", "GET"), ("POST", "/v2", "GET"),
    ("PUT", "/v2/models/add_sub", "GET"), ("POST", "/v2/models/add_sub/ready", "GET"),
    ("GET", "/v2/models/add_sub/infer", "POST"), ("DELETE", "/v2/models/versions/versions/2/infer", "POST"),
    ("GET", "/v2/repository/index", "POST"), ("GET", "/v2/repository/models/add_sub/load", "POST"),
    ("PATCH", "/v2/models/add_sub/stats", "GET"),
]  # fmt: skip


@pytest.mark.row("R-034", "R-035", "R-208")
@pytest.mark.parametrize(("method", "path", "allowed"), METHODS)
def test_a_wrong_method_is_told_the_right_one(wire: Wire, method: str, path: str, allowed: str) -> None:
    """The answer is 405 with the error object and Allow."""
    answer = wire.call(method, path)
    refusal(answer, 405)
    methods = [name.strip() for name in answer.headers["allow"].split(",")]
    assert allowed in methods
    assert method not in methods
    alive(wire)


@pytest.mark.row("R-036")
@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/add_sub/ready"])
def test_head_answers_probes_without_a_body(wire: Wire, path: str) -> None:
    """HEAD has GET's status and no body, also behind keep-alive."""
    alive(wire)
    answer = wire.call("HEAD", path)
    assert answer.status == 200
    assert answer.body == b""
    alive(wire)


def test_head_of_an_unready_model_has_its_status(wire: Wire) -> None:
    """A probe by HEAD gets the same status as one by GET."""
    assert wire.call("HEAD", "/v2/models/broken_onnx/ready").status == 503
    assert wire.call("HEAD", "/v2/models/unheard_of/ready").status == 404
    alive(wire)


@pytest.mark.row("R-037")
@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2", "/v2/models/add_sub"])
def test_a_query_changes_nothing(wire: Wire, path: str) -> None:
    """Any query string is ignored."""
    for query in ("?", "?a=b&a=%00", "?/v2/nothing", "?%zz"):
        assert wire.get(path + query).json() == wire.get(path).json()


@pytest.mark.row("R-038")
def test_the_names_of_all_models_are_listed(wire: Wire) -> None:
    """The path is GET /v2/models; loaded and other models are listed."""
    body = wire.get("/v2/models").json()
    assert list(body) == ["models"]
    assert set(models.SETTINGS) | {"add_sub", "mo-del.v1_beta.2"} <= set(body["models"])
    assert len(set(body["models"])) == len(body["models"])
