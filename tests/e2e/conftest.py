"""Fixtures that the tests share: the artifact as `sam build` makes it, and S3 servers that hold the sample models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.e2e import engine, rie, s3, sam, tools, v1

# Programs of other environments.
collect_ignore = [
    "browser",
    "expansion.py",
    "mlflow_client.py",
    "openapi",
    "sagemaker_client.py",
    "swift_server.py",
    "triton",
]
ENGINE = ("test_artifact", "test_images", "test_init", "test_newcomer", "test_rpc", "test_sam_local", "test_v1")
"""They take turns with the bridge of the container engine, and with the folders that building this project leaves."""


class InTurns(LoadScopeScheduling):
    """Gives the tests of a file to one process, and those of ENGINE to one, too."""

    def _split_scope(self, nodeid: str) -> str:
        stem = Path(nodeid.partition("::")[0]).stem
        return "engine" if stem in ENGINE else stem


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InTurns:
    return InTurns(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest part first."""
    items.sort(key=lambda item: item.path.stem not in ENGINE)


@pytest.fixture(scope="session")
def artifact(testrun_uid: str) -> Path:
    return sam.build(testrun_uid)


@pytest.fixture(scope="session")
def more_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Offer models with labels and binary values, which are not among the samples."""
    return v1.write(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def store(more_models: Path) -> Iterator[s3.Store]:
    with s3.running() as running:
        running.fill()
        running.add(more_models)
        yield running


@pytest.fixture
def cold(artifact: Path, store: s3.Store) -> Iterator[rie.Rie]:
    """Offer a separate instance that has not received an event."""
    with rie.running(artifact, store.variables()) as instance:
        yield instance


@pytest.fixture(scope="session")
def warm(artifact: Path, store: s3.Store) -> Iterator[rie.Rie]:
    """Offer an instance that all tests share."""
    with rie.running(artifact, store.variables()) as instance:
        yield instance


@pytest.fixture(scope="session")
def local(artifact: Path, more_models: Path) -> Iterator[sam.Local]:
    """Offer SAM's local Lambda, with a store that its containers can reach."""
    tools.require("curl")
    with engine.running() as containers:
        containers.load_runtime(artifact)
        with s3.running(engine.ADDRESS) as reachable:
            reachable.fill()
            yield sam.Local(containers, reachable, reachable.add(more_models))


@pytest.fixture(scope="session")
def api(local: sam.Local) -> Iterator[str]:
    """Offer host and port of `sam local start-api`."""
    with local.start_api() as address:
        yield address
