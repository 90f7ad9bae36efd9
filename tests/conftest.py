"""Fixtures that every folder of tests may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import zoo as models

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every model of `tests.zoo`, made once per session: read it, do not write it."""
    return models.build(tmp_path_factory.mktemp("zoo"))
