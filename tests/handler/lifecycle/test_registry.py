"""handler.lifecycle.registry on a directory: when a model is loaded, how often, and what clients learn about it."""

from __future__ import annotations

import importlib.metadata
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from core.deadline import NEVER
from core.errors import (
    ModelFailed,
    ModelNotFound,
    ModelNotLoadable,
    ModelUnavailable,
)
from core.operations import ModelRef, ServerInfo
from handler import backends
from handler.lifecycle.backoff import FIRST_PAUSE
from handler.lifecycle.single_flight import Pending
from tests.handler.lifecycle.samples import ONNX, PATIENT, Clock, M, add, get, listed, registry, say, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from handler.lifecycle.registry import Registry
    from handler.lifecycle.usage import Loaded
    from handler.lifecycle.versions import ServedVersion


def test_nothing_is_loaded_before_it_is_asked_for(root: Path, loads: list[str]) -> None:
    """Readiness and index list the repository and load nothing."""
    models = registry(root)
    assert listed(models) == [("m", "1", "UNAVAILABLE", "not loaded yet")]
    assert not models.readiness(M, PATIENT).ready
    assert models.readiness(M, PATIENT).reason == "not loaded yet"
    assert loads == []
    get(models)
    get(models, ModelRef("m", "1"))
    assert loads == ["m"]
    assert models.readiness(M, PATIENT).ready
    assert listed(models) == [("m", "1", "READY", "")]
    (known,) = models.particulars("m")
    assert known.load_seconds


def test_many_first_requests_load_once(root: Path, loads: list[str]) -> None:
    """Requests of many threads get the same model."""
    models = registry(root)
    with ThreadPoolExecutor(16) as crowd:
        got = list(crowd.map(lambda _: get(models), range(64)))
    assert len(set(map(id, got))) == 1
    assert loads == ["m"]


def test_with_an_executor_getting_a_model_never_blocks(root: Path, loads: list[str]) -> None:
    """Every request that arrives meanwhile gets the same future."""
    with ThreadPoolExecutor(1) as executor:
        gate = threading.Event()
        executor.submit(gate.wait)
        models = registry(root, executor)
        futures = set()
        for _ in range(64):
            with pytest.raises(Pending) as pending:
                get(models)
            futures.add(pending.value.future)
        assert len(futures) == 1
        gate.set()
        futures.pop().result(10)
        assert served(models) == "1"
    assert loads == ["m"]


def test_one_model_that_loads_slowly_keeps_no_other_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests for it, under any alias, occupy one thread."""
    add(root, "q", "1")
    with ThreadPoolExecutor(2) as executor:
        models = registry(root, executor)
        gate, begun, load = threading.Event(), threading.Event(), models._rollout._load

        def slow(version: ServedVersion, *rest: Any) -> Loaded:
            if version.name == "m":
                begun.set()
                assert gate.wait(60)
            return load(version, *rest)

        monkeypatch.setattr(models._rollout, "_load", slow)

        def asked(call: Callable[..., Any], *given: Any) -> Any:
            with pytest.raises(Pending) as pending:
                call(*given, PATIENT)
            return pending.value.future

        waiting = [asked(models.use, M), asked(models.use, ModelRef("m", dashed=True))]
        assert begun.wait(10)
        selector = ModelRef("m-1", dashed=True)
        asked(models.use, selector).result(10)  # the selector has to be resolved first
        waiting.append(asked(models.use, selector))
        waiting += [asked(models.use, ModelRef("m", "1")), asked(models.load, "m"), asked(models.unload, "m")]
        asked(models.use, ModelRef("q")).result(10)
        assert get(models, ModelRef("q")).spec.name == "q"
        assert not any(future.done() for future in waiting)
        gate.set()
        for future in waiting:
            future.result(10)
        assert listed(models) == [("m", "1", "UNAVAILABLE", "unloaded"), ("q", "1", "READY", "")]


def test_what_is_refused_leaves_nothing_behind(root: Path) -> None:
    """A client can make up any number of names, and none of them is kept."""
    with ThreadPoolExecutor(1) as executor:
        models = registry(root, executor)

        def kept() -> int:
            parts: Any = (models, models._rollout, models._catalog, models._flights)
            return sum(len(each) for part in parts for each in vars(part).values() if isinstance(each, dict | set))

        before = kept()
        for number in range(8):
            for call in (
                lambda name: models.load(name, PATIENT),
                lambda name: models.use(ModelRef(name), PATIENT),
                lambda name: models.use(ModelRef(name, dashed=True), PATIENT),
            ):
                with pytest.raises(Pending) as pending:
                    call(f"q{number}")
                assert isinstance(pending.value.future.exception(10), ModelNotFound)
            with pytest.raises(ModelNotFound):
                models.unload(f"q{number}", PATIENT)
        assert kept() == before


def test_a_version_published_since_is_found_when_it_is_asked_for(root: Path) -> None:
    """The newest version stays the same until a request names the new one, or a load looks."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    assert served(models) == "1"
    assert served(models, ModelRef("m", "2")) == "2"
    assert served(models) == "2"


def test_a_failure_is_remembered_for_a_while_and_then_tried_again(root: Path, loads: list[str], clock: Clock) -> None:
    """Readiness and the index show it, and a repaired model is loaded after the pause."""
    file = root / "m" / "1" / "model.onnx"
    file.write_bytes(b"")
    models = registry(root)
    for _ in range(3):
        with pytest.raises(ModelNotLoadable, match="the file is empty") as refusal:
            get(models)
        assert refusal.value.retry_after == FIRST_PAUSE
    assert loads == ["m"]
    assert "the file is empty" in models.readiness(M, PATIENT).reason
    assert "the file is empty" in listed(models)[0][3]
    clock.now += 1.01
    with pytest.raises(ModelNotLoadable) as refusal:
        get(models)
    assert refusal.value.retry_after == 2 * FIRST_PAUSE
    shutil.copy(ONNX, file)
    with pytest.raises(ModelNotLoadable):
        get(models)
    clock.now += 2.01
    assert served(models) == "1"
    assert listed(models) == [("m", "1", "READY", "")]


def test_loading_by_call_does_not_wait_and_a_failure_leaves_the_old_model_serving(root: Path) -> None:
    """The index shows the failure beside the model that serves."""
    models = registry(root)
    serving = get(models)
    (root / "m" / "1" / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelNotLoadable):
        models.load("m", PATIENT)
    assert get(models) is serving
    assert listed(models)[0][2] == "READY"
    assert "cannot be loaded" in listed(models)[0][3]
    shutil.copy(ONNX, root / "m" / "1" / "model.onnx")
    models.load("m", PATIENT)
    assert get(models) is not serving


def test_an_unloaded_model_says_so_and_is_loaded_when_it_is_needed(root: Path, loads: list[str]) -> None:
    """The next request loads it, and is not refused."""
    models = registry(root)
    get(models)
    models.unload("m", PATIENT)
    assert listed(models) == [("m", "1", "UNAVAILABLE", "unloaded")]
    get(models)
    assert loads == ["m", "m"]


def test_a_model_deleted_while_it_serves_goes_on_until_it_is_unloaded(root: Path) -> None:
    """A model in memory does not need the repository."""
    models = registry(root)
    get(models)
    shutil.rmtree(root / "m")
    assert served(models) == "1"
    assert listed(models) == [("m", "1", "READY", "")]
    with pytest.raises(ModelNotFound):
        models.load("m", PATIENT)
    models.unload("m", PATIENT)
    with pytest.raises(ModelNotFound):
        models.load("m", PATIENT)
    with pytest.raises(ModelNotFound):
        get(models)


def test_the_newest_version_being_broken_is_no_reason_to_answer_with_an_old_one(root: Path) -> None:
    """The old version answers under its number where the policy serves it."""
    add(root, "m", "2", b"\x08\x08")
    (root / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    models = registry(root)
    with pytest.raises(ModelNotLoadable, match="'m' version 2 cannot be loaded"):
        get(models)
    assert served(models, ModelRef("m", "1")) == "1"


def test_an_unforeseen_error_while_loading_is_told_without_its_text(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has the error's kind only."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(backends, "choose", broken)
    with pytest.raises(ModelFailed, match="^model 'm' version 1 cannot be loaded: RuntimeError$"):
        get(registry(root), M)


def test_a_version_that_goes_while_it_is_being_loaded_is_an_error(root: Path) -> None:
    """A folder that was deleted between the listing and the load is named in the refusal."""
    models = registry(root)
    models.index(PATIENT)
    shutil.rmtree(root / "m" / "1")
    with pytest.raises(ModelUnavailable, match="version 1 of model 'm' was removed"):
        get(models)


def test_settings_that_hide_the_newer_versions_are_the_reason(root: Path) -> None:
    """The version that was known has gone, and that is not what has to be mended."""
    models = registry(root)
    get(models)
    models.unload("m", PATIENT)
    (root / "m" / "1").rename(root / "m" / "2")
    (root / "m" / "model-settings.json").write_text('{"timeout": "x"}')
    for _ in range(2):
        with pytest.raises(ModelNotLoadable, match="model-settings.json of model 'm': timeout is 'x'"):
            get(models)
    (root / "m" / "model-settings.json").unlink()
    assert get(models).spec.version == "2"


def test_the_server_tells_its_name_and_its_packages_version(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is 0 in a tree that was never installed."""
    models = registry(root, NAME="mine")
    assert models.server() == ServerInfo("mine", importlib.metadata.version("dragoman"))

    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert models.server() == ServerInfo("mine", "0")
    assert registry(root, DEFAULT_MODEL="m-1").server().default_model == "m-1"


def test_after_a_snapshot_what_is_loaded_is_looked_at_again(root: Path, clock: Clock) -> None:
    """A restored process moves to what the repository has now, and what failed there before is tried at once."""
    add(root, "broken", "1", b"nonsense")
    models = registry(root)
    get(models)
    with pytest.raises(ModelNotLoadable):
        models.use(ModelRef("broken"), PATIENT)
    assert models.custom("/chat") == {}
    add(root, "m", "2")
    add(root, "broken", "1")
    say(root, http={"path": "/chat"})
    models.disconnect()
    models.restored(NEVER)
    assert states_of_m(models) == [("m", "2", "READY", "")]
    assert served(models, ModelRef("broken")) == "1"
    assert models.custom("/chat") == {"m": ("POST",)}


def states_of_m(models: Registry) -> list[tuple[str, str, str, str]]:
    """Returns the index without other models."""
    return [entry for entry in listed(models) if entry[0] == "m"]
