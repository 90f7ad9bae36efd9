"""Fixtures for every folder of tests."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from handler.cli import main
from tests.support import s3_stand_in, server
from tests.support.server import Server, serve, serve_rpc
from tests.support.zoo import models

collect_ignore = ["support"]
gc.disable()  # until all tests are collected: none of the objects goes before
# No test asserts a time, so examples have no deadline. Each run makes fifty new examples.
settings.register_profile(
    "ours", deadline=None, database=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ours")
LONGEST = (
    "openapi/test_answers", "doctor/test_faults", "s3/test_fetch_faults", "publish/test_bucket_push",
    "h2/test_connection", "server/test_protocol", "openapi/test_typed", "protocols/test_errors", "tests/test_documents",
    "publish/test_pull", "protocols/test_fuzz", "publish/test_replacing", "s3/test_store", "tests/test_patterns",
    "lifecycle/test_workers", "tests/test_walks", "runtime/test_loop", "protocols/test_clients", "encoding/test_jsonio",
    "commands/test_batch", "abuse/test_connections", "v1/test_numbers", "abuse/test_slow_models",
    "lifecycle/test_memory", "publish/test_optimize", "abuse/test_gate_clients", "server/test_body",
    "protocols/test_http2", "v1/test_answer", "server/test_whole", "platforms/test_contracts", "v1/test_values",
    "abuse/test_store", "doctor/test_parts", "handler/test_cli", "call/test_infer", "batch/test_events",
    "h2/test_whole_streams", "s3/test_addresses",
)  # fmt: skip
"""Modules that take longest, in this order: with four of them side by side on two cores 10 s and more."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs slow tests first: then none of the modules that run side by side is left over at the end."""
    ranks = {place: rank for rank, place in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get("/".join(item.path.with_suffix("").parts[-2:]), len(ranks)))


def pytest_collection_finish() -> None:
    """Excludes the collected tests, about 16,000 objects and what they hold, from every garbage collection."""
    gc.freeze()
    gc.enable()


def pytest_exception_interact(call: pytest.CallInfo[object], report: pytest.TestReport) -> None:
    """Adds to a test that has waited in vain where the threads of its servers stand. That ends the servers."""
    if call.excinfo is not None and call.excinfo.errisinstance(TimeoutError):
        report.sections += [("a server that runs", text) for text in server.stacks()]


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every model of `tests.support.zoo.models`, made once per session. Tests only read it."""
    return models.build(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts another server with its own settings, which ends with the test. `rpc`: it also serves gRPC."""
    with ExitStack() as stack:

        def start(*, rpc: bool = False, **settings: str) -> Server:
            return stack.enter_context((serve_rpc if rpc else serve)(tmp_path / "server.log", **settings))

        yield start


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`dragoman`, as a user types it: takes its arguments, returns its exit code, its output and its errors."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the machine's own AWS configuration, and prevents requests to a metadata service."""
    for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "S3_ENDPOINT", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))


@pytest.fixture
def stand_in() -> Iterator[s3_stand_in.StandIn]:
    """An empty bucket, for answers that no real server here can be made to send."""
    with s3_stand_in.running() as store:
        yield store
