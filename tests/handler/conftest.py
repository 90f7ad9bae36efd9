"""Fixtures for tests that access stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from handler.stores.directory import DirectoryStore
from handler.stores.transfer import answers, retries
from handler.stores.transfer import download as fetching
from handler.stores.transfer import ranges as regions

ROOT = Path(__file__).parents[2]
MB = 10**6


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> Iterator[None]:
    """Has botocore read each of its files once: that is two thirds of making a client, and tests make hundreds."""
    read, found = JSONFileLoader.load_file, {}

    def once(loader: JSONFileLoader, path: str) -> Any:
        if path not in found:
            found[path] = read(loader, path)
        return found[path]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JSONFileLoader, "load_file", once)
        yield


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A function whose model has 300 MB of files, of which each invocation gets 120: the fetches' progresses.

    No time passes: a fetch with a deadline ends when it has as many bytes.
    """
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    asked: list[Any] = []
    fetch = DirectoryStore.fetch

    def slowly(self: Any, model: str, version: str, files: Any, progress: Any) -> Any:
        done = asked[-1].done if asked else 0
        asked.append(progress)
        progress.total, progress.done = 300 * MB, done
        if progress.deadline.is_never:
            progress.done = progress.total
        progress.add(min(120 * MB, progress.total - progress.done))
        if progress.done < progress.total:
            raise progress.out_of_time(model)
        return fetch(self, model, version, files, progress)

    monkeypatch.setattr(DirectoryStore, "fetch", slowly)
    return asked


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts a fetch of some hundred kB like one of a GB, and shortens pauses between tries."""
    monkeypatch.setattr(regions, "PIECE", 64 * 1024)
    monkeypatch.setattr(regions, "LEAST", 16 * 1024)
    monkeypatch.setattr(fetching, "SAVE", 32 * 1024)
    monkeypatch.setattr(fetching, "LOOK", 0.0)
    monkeypatch.setattr(fetching, "FAST", float("inf"))
    monkeypatch.setattr(answers, "CHUNK", 16 * 1024)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
