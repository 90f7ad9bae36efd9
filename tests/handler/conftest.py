"""Fixtures for tests that access stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from handler.stores.transfer import answers, retries
from handler.stores.transfer import download as fetching
from handler.stores.transfer import ranges as regions


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
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts a fetch of some hundred kB like one of a GB, and shortens pauses between tries."""
    monkeypatch.setattr(regions, "PIECE", 64 * 1024)
    monkeypatch.setattr(regions, "LEAST", 16 * 1024)
    monkeypatch.setattr(fetching, "SAVE", 32 * 1024)
    monkeypatch.setattr(fetching, "LOOK", 0.0)
    monkeypatch.setattr(fetching, "FAST", float("inf"))
    monkeypatch.setattr(answers, "CHUNK", 16 * 1024)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
