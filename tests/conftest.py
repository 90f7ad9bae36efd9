"""Fixtures that every folder of tests may ask for."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.server import Server, serve, serve_rpc
from tests.support.zoo import models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

collect_ignore = ["support"]
LONGEST = (
    "test_fetch_faults",
    "test_store",
    "test_bucket_push",
    "test_pull",
    "test_streams",
    "test_fuzz",
    "test_numbers",
    "test_clients",
    "test_errors",
)
"""Modules that take 20 s and more."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: of modules that run side by side, none is then left over at the end."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every model of `tests.support.zoo.models`, made once per session: read it, do not write it."""
    return models.build(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a further server with settings of its own, which ends with the test; `rpc`: of gRPC as well."""
    with ExitStack() as stack:

        def start(*, rpc: bool = False, **settings: str) -> Server:
            return stack.enter_context((serve_rpc if rpc else serve)(tmp_path / "server.log", **settings))

        yield start
