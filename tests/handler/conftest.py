"""Fixtures for what talks to stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from handler.stores.s3 import answers as s3_answers
from handler.stores.s3 import download as fetching
from handler.stores.s3 import ranges as regions
from handler.stores.s3 import retries
from tests.support import s3_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own configuration, and no question to a metadata service."""
    for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "S3_ENDPOINT", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))


@pytest.fixture
def stand_in() -> Iterator[s3_stand_in.StandIn]:
    """An empty bucket, for answers that no real server here can be made to give."""
    with s3_stand_in.running() as store:
        yield store


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of some hundred kB is cut as one of a GB would be, and pauses between tries are short."""
    monkeypatch.setattr(regions, "PIECE", 64 * 1024)
    monkeypatch.setattr(regions, "LEAST", 16 * 1024)
    monkeypatch.setattr(fetching, "SAVE", 32 * 1024)
    monkeypatch.setattr(fetching, "LOOK", 0.0)
    monkeypatch.setattr(fetching, "FAST", float("inf"))
    monkeypatch.setattr(s3_answers, "CHUNK", 16 * 1024)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
