"""Fixtures that every folder of tests may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import zoo as models

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = (
    "test_fetch_faults",
    "test_store",
    "test_bucket_push",
    "test_pull",
    "test_streams",
    "test_fuzz",
    "test_numbers",
)
"""Modules that take 20 s and more."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: of modules that run side by side, none is then left over at the end."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every model of `tests.zoo`, made once per session: read it, do not write it."""
    return models.build(tmp_path_factory.mktemp("zoo"))
