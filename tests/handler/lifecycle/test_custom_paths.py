"""handler.lifecycle.custom_paths: the paths that models' settings name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER
from core.errors import ModelUnavailable
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.custom_paths import CUSTOM_SECONDS, CustomPaths
from handler.lifecycle.inventory.looks import PAUSE
from handler.lifecycle.repository import Repository
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.samples import Clock


def add(folder: Path, name: str, **http: Any) -> None:
    """Adds a python model with these settings of its path."""
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1" / "model.py").touch()
    (folder / name / "model-settings.json").write_text(json.dumps({"http": http}))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Holds a model that answers at /chat."""
    add(tmp_path, "chat", path="/chat")
    return Repository(DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)})))


@pytest.fixture
def paths(repository: Repository, clock: Clock) -> CustomPaths:
    """The paths of that repository, on a clock that is moved by hand."""
    return CustomPaths(repository, Catalog(repository, ""))


def test_models_are_found_by_their_path_with_their_methods(paths: CustomPaths, tmp_path: Path) -> None:
    """Several models may share a path; an unknown path has none."""
    add(tmp_path, "other", path="/chat", methods=["GET", "POST"])
    assert paths.models("/chat", NEVER) == {"chat": ("POST",), "other": ("GET", "POST")}
    assert paths.models("/cha", NEVER) == {}


def test_paths_are_looked_up_again_after_a_while(paths: CustomPaths, tmp_path: Path, clock: Clock) -> None:
    """A model with wrong settings has none, and does not hide another model's path."""
    assert paths.models("/late", NEVER) == {}
    add(tmp_path, "late", path="/late")
    add(tmp_path, "wrong", path="")
    clock.now += CUSTOM_SECONDS
    assert paths.models("/late", NEVER) == {}
    clock.now += 0.1
    assert paths.models("/late", NEVER) == {"late": ("POST",)}


def test_paths_that_are_forgotten_are_looked_up_at_once(paths: CustomPaths, tmp_path: Path) -> None:
    """The clock may be a different one now."""
    assert paths.models("/late", NEVER) == {}
    add(tmp_path, "late", path="/late")
    paths.forget()
    assert paths.models("/late", NEVER) == {"late": ("POST",)}


def test_while_the_store_does_not_answer_paths_are_as_they_were(
    paths: CustomPaths, repository: Repository, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked at intervals, short ones before its first answer. Its last answer counts until the next."""
    asked: list[None] = []

    def down(_: Any) -> Any:
        asked.append(None)
        raise ModelUnavailable("the store does not answer")

    def found() -> Mapping[str, Any]:
        return paths.models("/chat", NEVER)

    with monkeypatch.context() as store:
        store.setattr(repository, "models", down)
        assert [found(), found()] == [{}, {}]
        assert len(asked) == 1
    clock.now += PAUSE + 0.1
    assert found() == {"chat": ("POST",)}
    monkeypatch.setattr(repository, "models", down)
    clock.now += CUSTOM_SECONDS + 1
    assert [found(), found()] == [{"chat": ("POST",)}] * 2
    assert len(asked) == 2


def test_a_model_that_the_store_did_not_send_has_its_path_soon(
    paths: CustomPaths, repository: Repository, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that could not read each model's settings is repeated after a pause."""

    def down(*_: Any, **__: Any) -> Any:
        raise ModelUnavailable("the store does not answer")

    with monkeypatch.context() as store:
        store.setattr(repository, "look", down)
        assert paths.models("/chat", NEVER) == {}
    assert paths.models("/chat", NEVER) == {}
    clock.now += PAUSE + 0.1
    assert paths.models("/chat", NEVER) == {"chat": ("POST",)}
