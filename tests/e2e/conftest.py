"""Fixtures that the tests share: the artifact as `sam build` makes it, and S3 servers that hold the sample models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def artifact() -> Path:
    return sam.build()


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
