"""The repository changes under a running server, is empty, or does not exist."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.checks import refusal
from tests.support.server import Server
from tests.support.wire import Wire, json_input
from tests.support.zoo import models

X = json_input("x", "INT64", np.array([0]))


def publish(root: Path, name: str, version: int, content: bytes | None = None) -> None:
    """Put a version of a model that adds its version into the repository, as one move."""
    staged = root.with_name("staged")
    staged.mkdir()
    (staged / "model.onnx").write_bytes(models.adds(version).SerializeToString() if content is None else content)
    (root / name).mkdir(parents=True, exist_ok=True)
    staged.rename(root / name / str(version))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of one model."""
    made = tmp_path / "repository"
    publish(made, "first", 1)
    return made


@pytest.fixture
def own(root: Path, launch: Callable[..., Server]) -> Wire:
    """A connection to a new server of that repository."""
    return launch(REPOSITORY=str(root)).wire()


def test_a_model_that_appears_is_served(root: Path, own: Wire) -> None:
    """It is 404 before, and correct after."""
    with own as wire:
        refusal(wire.infer("second", X), 404)
        publish(root, "second", 2)
        assert wire.infer("second", X).tensor().tolist() == [2]
        assert wire.get("/v2/models").json()["models"] == ["first", "second"]


def test_a_version_that_appears_is_served_after_load(root: Path, own: Wire) -> None:
    """The new version is the newest."""
    with own as wire:
        assert wire.infer("first", X).tensor().tolist() == [1]
        publish(root, "first", 2)
        assert wire.post("/v2/repository/models/first/load").status == 200
        assert wire.infer("first", X).tensor().tolist() == [2]
        assert wire.get("/v2/models/first").json()["versions"] == ["2"]


def test_a_broken_model_that_is_repaired_is_served_after_load(root: Path, own: Wire) -> None:
    """A failure is not kept for ever."""
    with own as wire:
        publish(root, "second", 2, b"nonsense")
        answer = wire.infer("second", X)
        refusal(answer, 503)
        assert "retry-after" in answer.headers
        shutil.rmtree(root / "second")
        publish(root, "second", 2)
        assert wire.post("/v2/repository/models/second/load").status == 200
        assert wire.infer("second", X).tensor().tolist() == [2]
        assert wire.get("/v2/models/second/ready").status == 200


def test_a_broken_model_that_is_repaired_is_served_in_the_end(root: Path, own: Wire) -> None:
    """No call except inference is needed."""
    with own as wire:
        publish(root, "second", 2, b"")
        refusal(wire.infer("second", X), 503)
        shutil.rmtree(root / "second")
        publish(root, "second", 2)
        while (answer := wire.infer("second", X)).status == 503:
            assert "retry-after" in answer.headers
        assert answer.tensor().tolist() == [2]


def test_a_new_version_that_is_broken_leaves_the_old_one_serving(root: Path, own: Wire) -> None:
    """A load asks for the new one, and says why it failed."""
    with own as wire:
        assert wire.infer("first", X).tensor().tolist() == [1]
        publish(root, "first", 2, b"nonsense")
        refusal(wire.post("/v2/repository/models/first/load"), 503)
        assert wire.get("/v2/health/live").status == 200


def test_a_model_deleted_while_it_serves_goes_on_serving(root: Path, own: Wire) -> None:
    """A loaded model does not need files."""
    with own as wire:
        assert wire.infer("first", X).tensor().tolist() == [1]
        shutil.rmtree(root / "first")
        assert wire.infer("first", X).tensor().tolist() == [1]
        assert wire.get("/v2/models/first").status == 200
        assert wire.get("/v2/models/first/ready").status == 200
        assert wire.post("/v2/repository/models/first/unload").status == 200
        refusal(wire.infer("first", X), 404, 503)


def test_a_repository_without_models_is_ready(tmp_path: Path, launch: Callable[..., Server]) -> None:
    """No configured model is missing."""
    (tmp_path / "empty").mkdir()
    with launch(REPOSITORY=str(tmp_path / "empty")).wire() as wire:
        assert wire.get("/v2/health/ready").status == 200
        assert wire.get("/v2/models").json() == {"models": []}
        assert wire.post("/v2/repository/index").json() == []
        assert wire.get("/v2/models/stats").json() == {"model_stats": []}
        refusal(wire.infer("first", X), 404)


def test_a_repository_that_goes_away_makes_the_server_unready(root: Path, own: Wire) -> None:
    """The answer is 503 without details of the machine. The server stays live, and is ready when it is back."""
    with own as wire:
        root.rename(root.with_name("away"))
        answer = wire.get("/v2/health/ready")
        assert answer.status == 503
        assert str(root) not in answer.json()["error"]
        refusal(wire.infer("first", X), 503)
        refusal(wire.post("/v2/repository/index"), 503)
        assert wire.get("/v2/health/live").status == 200
        root.with_name("away").rename(root)
        assert wire.get("/v2/health/ready").status == 200
        assert wire.infer("first", X).tensor().tolist() == [1]


def test_loads_and_unloads_while_serving_lose_no_request(root: Path, launch: Callable[..., Server]) -> None:
    """Every inference is answered correctly, however often the model is unloaded: it is loaded again."""
    server = launch(REPOSITORY=str(root))
    over = threading.Event()
    wrong: list[object] = []

    def ask() -> None:
        with server.wire() as wire:
            while not over.is_set():
                answer = wire.infer("first", X)
                if answer.status != 200 or answer.tensor().tolist() != [1]:
                    wrong.append((answer.status, answer.content))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    with server.wire() as wire:
        for turn in range(60):
            assert wire.post(f"/v2/repository/models/first/{'unload' if turn % 2 else 'load'}").status == 200
    over.set()
    for asker in askers:
        asker.join()
    assert wrong == []
