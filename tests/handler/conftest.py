"""Fixtures for tests that access stores."""

from __future__ import annotations

import pytest

from handler.stores.transfer import answers, retries
from handler.stores.transfer import download as fetching
from handler.stores.transfer import ranges as regions


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
