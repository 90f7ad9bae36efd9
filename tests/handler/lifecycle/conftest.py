"""Fixtures for tests of the lifecycle."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handler import backends
from handler.lifecycle.registry import Registry
from handler.stores import File, Forbidden
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.samples import Clock, add, registry


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stands in for time.monotonic."""
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were loaded so far, in order."""
    seen: list[str] = []
    choose = backends.choose

    def counted(name: str, *rest: Any) -> Any:
        seen.append(name)
        return choose(name, *rest)

    monkeypatch.setattr(backends, "choose", counted)
    return seen


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with version 1 of model `m`."""
    add(tmp_path, "m", "1")
    return tmp_path


class Unlisted(DirectoryStore):
    """A stand-in for a bucket that permits reading but not listing. The tests of the S3 store have a real one."""

    def files(self, model: str, _: Any = None) -> list[File]:
        """Denies the listing."""
        raise Forbidden


@pytest.fixture
def unlisted(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Registry]:
    """Makes a registry of a store that does not permit listing."""
    monkeypatch.setattr("handler.stores.directory.DirectoryStore", Unlisted)
    return lambda: registry(root)
