"""handler.edge.snapshots: the work before and after a snapshot; tests/e2e has the runtime's own client call it."""

import json
import logging
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from core.dtype import BF16, BYTES, DATATYPES
from core.errors import ModelUnavailable
from core.operations import ModelRef, ModelSpec, State
from core.tensor import TensorSpec
from handler.aws import Function
from handler.edge import snapshots
from handler.edge.observe import record
from handler.lifecycle.single_flight import Background
from tests.handler.calling import http, infer

ROOT = Path(__file__).parents[3]
MODEL = "half_plus_three"


class Runtime(ModuleType):
    """Stands in for Lambda's module snapshot_restore_py: keeps what is registered, and calls it as the runtime does."""

    def __init__(self) -> None:
        super().__init__("snapshot_restore_py")
        self.hooks: dict[str, tuple[Callable[..., None], Any]] = {}

    def register_before_snapshot(self, function: Callable[..., None], *given: Any) -> None:
        """Registers a hook, with the module's own signature."""
        self.hooks["before"] = function, given

    def register_after_restore(self, function: Callable[..., None], *given: Any) -> None:
        """Registers a hook, with the module's own signature."""
        self.hooks["after"] = function, given

    def call(self, name: str) -> None:
        function, given = self.hooks[name]
        function(*given)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in version 123, and the variables that Lambda sets."""
    shutil.copytree(ROOT / "models" / MODEL, tmp_path / MODEL)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")
    monkeypatch.setenv("DRAGOMAN_PRELOAD", MODEL)
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path))
    return tmp_path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """Puts the stand-in in the real module's place."""
    made = Runtime()
    monkeypatch.setitem(sys.modules, "snapshot_restore_py", made)
    return made


@pytest.fixture
def function(repository: Path, runtime: Runtime) -> Iterator[Function]:
    """A function that has been initialised, and whose snapshot is about to be taken."""
    made = Function()
    yield made
    made.close()


def publish(repository: Path, version: str) -> None:
    shutil.copytree(repository / MODEL / "123", repository / MODEL / version)


def served(function: Function) -> str:
    """Returns the version that answers."""
    answer = function(infer(), None)
    assert answer["statusCode"] == 200
    version: str = json.loads(answer["body"])["model_version"]
    return version


def test_what_is_loaded_at_the_snapshot_answers_after_the_restore(function: Function, runtime: Runtime) -> None:
    """The first answer after the restore says "restored", and the second says "warm"."""
    runtime.call("before")
    runtime.call("after")
    said = [function(infer(), None)["headers"]["server-timing"].partition(", start;desc=")[2] for _ in range(2)]
    assert said == ["restored", "warm"]


def test_a_warm_up_is_counted_nowhere(function: Function, runtime: Runtime) -> None:
    """The statistics are still 0 after the warm-up."""
    runtime.call("before")
    assert function.app is not None
    assert [version.statistics().inference_count for version in function.app.registry.known()] == [0]


def test_a_model_that_zeros_do_not_suit_is_left_as_it_is(
    repository: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it, and models without described inputs or without a load are not tried."""
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "true")
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "*")
    described = "metadata = {'inputs': [{'name': 'x', 'datatype': 'FP32', 'shape': [-1]}], 'outputs': []}\n"
    refuses = "def predict(inputs, parameters):\n    raise ValueError('zero')\n"
    for name, text in {"refuses": described + refuses, "silent": refuses, "broken": "1 / 0"}.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").write_text(text)
    with caplog.at_level(logging.INFO):
        made = Function()
        runtime.call("before")
    warned = [record.getMessage() for record in caplog.records if "not warmed up" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith("model refuses was not warmed up")
    made.close()


def test_an_inference_of_zeros_has_the_least_size_that_a_model_takes() -> None:
    """A variable dimension is 1, any rank is one element, and strings are empty."""
    inputs = (
        TensorSpec("a", DATATYPES["FP32"], (-1, 3)), TensorSpec("b", BYTES, None), TensorSpec("c", BF16, ()),
        TensorSpec("d", BYTES, (2,)),
    )  # fmt: skip
    headers, body = snapshots.request(ModelSpec("m", "1", "p", inputs, None))
    length = int(headers[b"inference-header-content-length"])
    told = [(each["name"], each["shape"], each["parameters"]) for each in json.loads(body[:length])["inputs"]]
    assert told == [
        ("a", [1, 3], {"binary_data_size": 12}),
        ("b", [1], {"binary_data_size": 4}),
        ("c", [], {"binary_data_size": 2}),
        ("d", [2], {"binary_data_size": 8}),
    ]
    assert body[length:] == bytes(26)


def test_instances_of_one_snapshot_draw_different_random_numbers(function: Function, runtime: Runtime) -> None:
    """Each restore seeds the generators of Python and of numpy anew."""
    drawn = set()
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - what model code may use
        runtime.call("after")
        drawn |= {random.random(), float(np.random.random())}  # noqa: S311, NPY002 - what is tested
    assert len(drawn) == 4


def test_instances_of_one_snapshot_have_different_request_ids(function: Function, runtime: Runtime) -> None:
    """Behind Lambda Web Adapter the server makes them itself, by a part of its own and a number."""
    begun = [record.drawn().partition(b"-")[0]]
    for _ in range(2):
        runtime.call("after")
        begun.append(record.drawn().partition(b"-")[0])
    assert len({*begun}) == 3


def test_a_version_published_since_the_snapshot_serves_after_the_restore(
    function: Function, runtime: Runtime, repository: Path
) -> None:
    """A version that has not changed is not loaded again."""
    assert function.app is not None
    runtime.call("before")
    (before,) = [version.loaded for version in function.app.registry.known()]
    runtime.call("after")
    assert [version.loaded for version in function.app.registry.known()] == [before]
    publish(repository, "124")
    runtime.call("after")
    assert served(function) == "124"


def test_a_newer_version_that_cannot_be_loaded_leaves_the_older_one_serving(
    function: Function, runtime: Runtime, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the failure once."""
    publish(repository, "124")
    (repository / MODEL / "124" / "model.onnx").write_bytes(b"no model")
    runtime.call("after")
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in warnings if "model 'half_plus_three' version 124 cannot be loaded" in each]) == 1
    assert warnings[-1] == "model half_plus_three serves what is loaded"
    assert served(function) == "123"


def test_what_failed_before_the_snapshot_is_tried_again_after_it(repository: Path, runtime: Runtime) -> None:
    """The restore ends the pauses after failures, whose clock may have changed."""
    model = repository / MODEL / "123" / "model.onnx"
    good = model.read_bytes()
    model.write_bytes(b"no model")
    made = Function()
    assert made.app is not None
    (version,) = made.app.registry.known()
    assert version._backoff is not None
    version._backoff._until = time.monotonic() + 3600
    model.write_bytes(good)
    assert made(infer(), None)["statusCode"] == 503
    runtime.call("before")
    runtime.call("after")
    assert served(made) == "123"
    (version,) = made.app.registry.known()
    assert version.state is State.READY
    made.close()


def test_connections_are_dropped_before_the_snapshot(
    runtime: Runtime, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request makes a new client with its own credentials."""
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", "s3://bucket/models")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "")
    function = Function()
    assert function.app is not None
    store: Any = function.app.registry._repository._store
    first = store._client.bucket
    assert store._client.bucket is first
    runtime.call("before")
    assert store._client._made is None
    assert store._client.bucket is not first
    function.close()


def test_without_the_runtimes_module_the_log_says_it(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The function answers without the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "snapshot_restore_py", None)
        function = Function()
    assert "this runtime takes no snapshots" in caplog.text
    assert function(http("GET", "/v2/health/live"), None)["statusCode"] == 200
    function.close()


def test_a_provisioned_instance_is_warm_before_its_first_request(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loaded model has had one inference when the instance is initialised."""
    warmed: list[str] = []
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "provisioned-concurrency")
    monkeypatch.setattr(snapshots, "_infer", lambda model: warmed.append(model.spec.name))
    function = Function()
    assert warmed == [MODEL]
    assert function.app is not None
    assert function.app.registry.readiness(ModelRef(MODEL), Background()).ready
    function.close()


def test_a_model_that_has_a_warm_up_of_its_own_needs_no_other(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with a warm-up in its settings gets no inference of zeros."""
    (repository / MODEL / "model-settings.json").write_text('{"warmup": [{"random": true, "shapes": {"x": [1]}}]}')
    warmed: list[str] = []
    monkeypatch.setattr(snapshots, "_infer", lambda model: warmed.append(model.spec.name))
    function = Function()
    assert function.app is not None
    snapshots.warm(function.app)
    assert function.app.registry.readiness(ModelRef(MODEL), Background()).ready
    assert not warmed
    function.close()


def test_a_store_that_does_not_answer_after_the_restore_changes_nothing(
    function: Function, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loaded version answers."""
    assert function.app is not None

    def gone(*_: Any) -> Any:
        raise ModelUnavailable("the store does not answer")

    monkeypatch.setattr(function.app.registry._catalog, "look", gone)
    runtime.call("after")
    assert served(function) == "123"
