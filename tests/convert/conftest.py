"""The commands run in this process, so that a library, which can take 10 s, is imported once.

A few tests start the child as users do.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from handler.commands.convert import child, process
from tests.support.server import Server, serve_rpc


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converts without a child."""

    def each(jobs: Sequence[process.Job], _: process.ChildLimits, say: Callable[[str], None]) -> Iterator[Any]:
        for job in jobs:
            yield import_module(child.KINDS[type(job).__name__]).convert(job, say)

    monkeypatch.setattr(process, "each", each)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of all models, which come while it runs."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serve_rpc(log, REPOSITORY=str(repository), REPOSITORY_POLL="0.1") as running:
        yield running
