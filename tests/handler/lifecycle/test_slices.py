"""handler.lifecycle.registry on Lambda: a new version is loaded in slices of requests that the old one answers."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from core.deadline import SLICE_SECONDS, answerable, within
from core.errors import StillLoading
from core.operations import ModelRef, State
from handler.aws import Function
from handler.lifecycle.single_flight import Background
from handler.stores.progress import Progress
from handler.stores.s3.http import BucketReader
from handler.stores.transfer.answers import Broken
from tests.handler.calling import context, http, infer
from tests.handler.lifecycle.samples import ONNX, PATIENT, ROOT, served
from tests.support import s3_stand_in


def overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Function:
    """A function whose model is loaded, while a newer version exists."""
    old = tmp_path / "half_plus_three" / "123"
    shutil.copytree(ROOT / "models" / "half_plus_three" / "123", old)
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path))
    function = Function()
    while function(infer(), context(3))["statusCode"] != 200:
        pass
    shutil.copytree(old, old.with_name("124"))
    return function


def test_a_new_load_that_runs_out_of_time_leaves_the_old_model_serving(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The old version stays ready, and the index shows how far the new one is."""
    function = overtaken(tmp_path, monkeypatch)
    app = function.app
    assert app is not None
    slow[-1].done = 0
    waiting = Background(within(3))
    with pytest.raises(StillLoading):
        app.registry.load("half_plus_three", waiting)
    told = {entry.version: (entry.state, entry.reason) for entry in app.registry.index(PATIENT)}
    far = "model 'half_plus_three' is 120 of 300 MB loaded: try again"
    assert told == {"123": (State.READY, ""), "124": (State.LOADING, far)}
    assert function(infer(), context(3))["statusCode"] == 200
    with pytest.raises(StillLoading, match="240 of 300 MB"):
        app.registry.load("half_plus_three", waiting)
    app.registry.load("half_plus_three", waiting)
    assert served(app.registry, ModelRef("half_plus_three")) == "124"
    function.close()


def renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Function:
    """The same function as `overtaken`, due for another look."""
    function = overtaken(tmp_path, monkeypatch)
    assert function.app is not None
    function.app.registry._catalog.put_off("half_plus_three", float("-inf"))
    return function


@pytest.mark.parametrize("settings", ["{}", '{"canary": {"124": 1}}'])
def test_a_new_version_is_fetched_in_slices_of_requests_that_the_old_one_answers(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str
) -> None:
    """No request fails or waits for long, until the new version takes over."""
    function = renewed(tmp_path, monkeypatch)
    (tmp_path / "half_plus_three" / "model-settings.json").write_text(settings)
    slow[-1].done = 0
    del slow[:-1]
    versions = []
    for _ in range(4):
        answer = function(infer(), context(9))
        assert answer["statusCode"] == 200
        versions.append(answer["headers"]["model-version"])
        assert slow[-1].left <= SLICE_SECONDS
    assert versions == ["123", "123", "124", "124"]
    assert len(slow) == 1 + 3
    function.close()


def test_a_store_that_stalls_is_no_loaded_models_business(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A due look ends after its slice, and a request for another model is refused in time."""
    with s3_stand_in.running() as store:
        store.put("p/m/1/model.onnx", ONNX.read_bytes())
        for name, value in {**store.variables(store.url), "AWS_LAMBDA_FUNCTION_NAME": "f"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DRAGOMAN_REPOSITORY", "s3://bucket/p")
        monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path))
        function = Function()
        assert function.app is not None
        models = function.app.registry
        assert function(infer("/v2/models/m/infer"), context(60))["statusCode"] == 200
        asked: list[float] = []

        def stalls(_: BucketReader, __: Any, seconds: float) -> bytes:
            asked.append(seconds)
            time.sleep(min(seconds, 2 * SLICE_SECONDS))
            raise Broken("TimeoutError")

        monkeypatch.setattr(BucketReader, "list", stalls)
        models._catalog.put_off("m", float("-inf"))
        for _ in range(2):
            assert function(infer("/v2/models/m/infer"), context(2))["statusCode"] == 200
        (serving,) = models.status(ModelRef("m"), PATIENT).versions
        late = "the repository has not answered in time: try again"
        assert (serving.state, serving.reason) == (State.READY, late)
        assert len(asked) == 1
        assert asked[0] <= SLICE_SECONDS
        asked.clear()
        answer = function(infer("/v2/models/n/infer"), context(2))
        assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
        assert json.loads(answer["body"]) == {"error": late}
        assert max(asked) <= answerable(2)
        assert function(http("GET", "/v2/health/ready"), context(2))["statusCode"] == 503
        assert max(asked) <= answerable(2)
        function.close()


def test_a_new_version_is_not_loaded_where_that_would_fail_the_request(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The load time of the old version is the estimate; the index has the reason, and a call loads it."""
    function = renewed(tmp_path, monkeypatch)
    assert function.app is not None
    models = function.app.registry
    (serving,) = models.known()
    assert serving.progress is not None
    monkeypatch.setattr(Progress, "load_ns", 5 * 10**9)
    for _ in range(2):
        answer = function(infer(), context(5))
        assert (answer["statusCode"], answer["headers"]["model-version"]) == (200, "123")
    told = {entry.version: (entry.state, entry.reason) for entry in models.index(PATIENT)}
    assert told["123"] == (State.READY, "")
    assert told["124"][0] == State.UNAVAILABLE
    assert "takes more time than the request has left" in told["124"][1]
    named = infer("/v2/models/half_plus_three/versions/124/infer")
    assert function(named, context(5))["headers"]["model-version"] == "124"  # the failure is not reported to others
    models.unload("half_plus_three", PATIENT)
    models.load("half_plus_three", PATIENT)
    assert function(infer(), context(5))["headers"]["model-version"] == "124"
    function.close()
