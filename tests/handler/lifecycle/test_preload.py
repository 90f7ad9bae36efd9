"""handler.lifecycle.preload and readiness: the models that the settings name."""

import logging
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelUnavailable, NotSupported
from core.operations import ModelRef, State
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.lifecycle.samples import (
    EVERY,
    PATIENT,
    POLL,
    Clock,
    M,
    add,
    get,
    listed,
    registry,
    say,
    served,
    states,
)


def test_the_server_is_ready_when_the_repository_answers_and_what_is_preloaded_is_loaded(tmp_path: Path) -> None:
    """Readiness names the models that are missing."""
    empty = registry(tmp_path)
    assert empty.ready(PATIENT).ready
    assert empty.names(PATIENT) == []
    gone = registry(tmp_path / "gone")
    assert "not a directory" in gone.ready(PATIENT).reason
    with pytest.raises(ModelUnavailable):
        gone.names(PATIENT)
    add(tmp_path, "a", "1")
    add(tmp_path, "b", "1", b"")
    for wanted in ("a,b", "*"):
        models = registry(tmp_path, PRELOAD=wanted)
        models.preload(PATIENT)
        assert models.readiness(ModelRef("a"), PATIENT).ready
        told = models.ready(PATIENT)
        assert (told.ready, told.state) == (False, State.LOADING)
        assert "b: model 'b' version 1 cannot be loaded" in told.reason
    ready = registry(tmp_path, PRELOAD="a")
    ready.preload(PATIENT)
    assert ready.ready(PATIENT).ready


def test_the_reason_of_a_preload_that_fails_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The load has logged it. What prevents a load is logged by the preload."""
    add(tmp_path, "a", "1", b"")
    registry(tmp_path, PRELOAD="a,b").preload(PATIENT)
    load, *others = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert load.startswith("model 'a' version 1 cannot be loaded: ")
    assert others == ["preload of a version 1 failed", "preload of b: model 'b' is not in the repository"]


def test_an_empty_folder_is_no_model_to_wait_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`*` finds it, as a bucket's marker of a folder, too. One that is named is missing."""
    add(tmp_path, "a", "1")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "empty").mkdir()
    models = registry(tmp_path, PRELOAD="*")
    models.preload(PATIENT)
    assert models.ready(PATIENT).ready
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'empty'" in registry(tmp_path, PRELOAD="a,empty").ready(PATIENT).reason
    told = {entry.name: entry.reason for entry in models.index(PATIENT)}
    assert told == {"a": "", "empty": "its folder holds no files"}


def test_a_platforms_folder_of_one_model_has_to_have_it(tmp_path: Path) -> None:
    """An endpoint whose archive has no model was in service, and refused each request. The model may come later."""
    (tmp_path / "wine.onnx").touch()
    (tmp_path / "empty").mkdir()
    models = registry(tmp_path, PLATFORM="kserve", PRELOAD="*")
    models.preload(PATIENT)
    told = models.ready(PATIENT)
    assert (told.ready, "the model's folder has no model.onnx, model.py or pipeline.json" in told.reason) == (
        False,
        True,
    )
    add(tmp_path, "m", "1").rename(tmp_path / "model.onnx")
    assert models.ready(PATIENT).ready
    (name,) = models.names(PATIENT)
    models.unload(name, PATIENT)
    assert models.ready(PATIENT).ready


def test_a_model_unloaded_by_call_is_not_loaded_for_readiness_s_sake(root: Path, loads: list[str]) -> None:
    """Readiness leaves it alone until a request brings it back, whatever else is loaded or published."""
    models = registry(root, PRELOAD="m,later")
    models.preload(PATIENT)
    models.unload("m", PATIENT)
    assert not models.ready(PATIENT).ready  # the other one is missing
    add(root, "m", "2")
    assert ("m", "2", "UNAVAILABLE", "not loaded yet") in listed(models)
    add(root, "later", "1")
    assert models.ready(PATIENT).ready
    assert not models.readiness(M, PATIENT).ready
    assert loads == ["m", "later"]
    get(models)
    (version,) = (version for version in models.known() if version.name == "m")
    assert version.evict()
    assert models.ready(PATIENT).ready
    assert loads == ["m", "later", "m", "m"]


def test_preloading_survives_a_repository_that_does_not_answer(tmp_path: Path) -> None:
    """The next readiness request tries again, because no inference arrives before the server is ready."""
    models = registry(tmp_path / "later", PRELOAD="*")
    models.preload(PATIENT)
    assert not models.ready(PATIENT).ready
    add(tmp_path / "later", "m", "1")
    assert models.ready(PATIENT).ready


def test_canaries_are_preloaded(root: Path) -> None:
    """The first request for a canary does not wait."""
    add(root, "m", "2")
    say(root, canary={"2": 0.1})
    models = registry(root, PRELOAD="m")
    models.preload(PATIENT)
    assert {state for state, _ in states(models).values()} == {"READY"}
    assert models.ready(PATIENT).ready


def test_every_version_that_the_policy_serves_is_preloaded(root: Path) -> None:
    """Readiness waits for all of them, names those that fail, and does not wait for a canary that fails."""
    add(root, "m", "2", b"")
    add(root, "m", "3")
    add(root, "m", "4", b"")
    say(root, **EVERY, canary={"4": 0.1})
    models = registry(root, PRELOAD="m")
    models.preload(PATIENT)
    assert {number: state for number, (state, _) in states(models).items()} == {
        "1": "READY", "2": "UNAVAILABLE", "3": "READY", "4": "UNAVAILABLE"
    }  # fmt: skip
    told = models.ready(PATIENT).reason
    assert told.startswith("models not loaded: m version 2: model 'm' version 2 cannot be loaded")
    assert "version 4" not in told
    add(root, "m", "2")
    models.load("m", PATIENT)
    assert models.ready(PATIENT).ready


def test_of_many_missing_models_the_first_are_named(root: Path) -> None:
    """Readiness counts the others, so that the list does not seem to be all of them."""
    for number in range(20):
        add(root, f"z{number:02}", "1", b"")
    models = registry(root, PRELOAD="*")
    models.preload(PATIENT)
    told = models.ready(PATIENT).reason
    assert "z07: " in told
    assert "z08: " not in told
    assert told.endswith(" and 12 more")


def test_a_preloaded_model_whose_settings_are_wrong_is_missing(root: Path) -> None:
    """Readiness says why, and the others are loaded."""
    say(root, version_policy=[])
    add(root, "other", "1")
    models = registry(root, PRELOAD="m,other")
    models.preload(PATIENT)
    reason = "models not loaded: m: model-settings.json of model 'm': version_policy is []; expected an object"
    assert models.ready(PATIENT) == (False, State.LOADING, reason, None)
    assert models.readiness(ModelRef("other"), PATIENT).ready


def test_a_preloaded_model_moves_on_with_all_its_versions(root: Path, clock: Clock) -> None:
    """An older number that is published later is in memory before it is served: the server stays ready."""
    add(root, "m", "3")
    say(root, **EVERY)
    models = registry(root, PRELOAD="m")
    models.preload(PATIENT)
    add(root, "m", "2")
    clock.now += POLL + 1
    assert served(models) == "3"
    assert {state for state, _ in states(models).values()} == {"READY"}
    assert set(states(models)) == {"1", "2", "3"}


def test_a_process_that_was_set_offline_is_not_ready(root: Path) -> None:
    """Its models continue to serve, and only readiness shows the state."""
    models = registry(root)
    assert models.ready(PATIENT).ready
    models.set_online(online=False)
    assert models.ready(PATIENT) == (False, State.UNAVAILABLE, "set offline", None)
    assert served(models) == "1"
    models.set_online(online=True)
    assert models.ready(PATIENT).ready


@pytest.mark.parametrize("environ", [{"DRAGOMAN_GRPS_HEALTH_CONTROL": "off"}, {"AWS_LAMBDA_FUNCTION_NAME": "f"}])
def test_instances_that_nobody_can_choose_are_not_set_offline(root: Path, environ: dict[str, Any]) -> None:
    """A client cannot address one instance, and that one would answer for all."""
    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root), **environ}))
    with pytest.raises(NotSupported, match="DRAGOMAN_GRPS_HEALTH_CONTROL=off"):
        models.set_online(online=False)
    assert models.ready(PATIENT).ready


def test_on_lambda_health_control_can_be_asked_for(root: Path) -> None:
    """The setting turns it on as on any server."""
    environ = {"AWS_LAMBDA_FUNCTION_NAME": "f", "DRAGOMAN_GRPS_HEALTH_CONTROL": "instance"}
    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root), **environ}))
    models.set_online(online=False)
    assert not models.ready(PATIENT).ready
