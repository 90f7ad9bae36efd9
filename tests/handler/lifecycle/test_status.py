"""handler.lifecycle.catalog: the states of a model's versions."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from core.errors import Fault, ModelNotLoadable
from core.operations import IndexEntry, ModelRef, ModelSpec, Readiness, State, StatusResult
from handler.lifecycle.registry import Registry
from handler.lifecycle.versions import REASONS, Status
from handler.settings import Settings
from tests.handler.lifecycle.samples import EVERY, ONNX, PATIENT, STABLE, M, add, get, registry, say, states


def entry(version: str, state: State, reason: str = "", **said: Any) -> IndexEntry:
    """Returns a version of model `m`."""
    return IndexEntry("m", version, state, reason, **said)


def test_status_tells_every_version_and_loads_none(root: Path, loads: list[str]) -> None:
    """The versions ascend, and `ready` is that of the version that would answer."""
    add(root, "m", "10")
    say(root, **EVERY, version_labels={"stable": 1}, v1_dialect="tfs")
    models = registry(root)
    fresh = [entry(number, State.UNAVAILABLE, REASONS[Status.NEW], fresh=True) for number in ("1", "10")]
    assert models.status(M, PATIENT) == StatusResult(tuple(fresh), ready=False, v1_dialect="tfs")
    assert loads == []
    get(models, STABLE)
    ready = entry("1", State.READY)
    assert models.status(M, PATIENT) == StatusResult((ready, fresh[1]), ready=False, v1_dialect="tfs")
    for ref in (STABLE, ModelRef("m", "1")):
        assert models.status(ref, PATIENT) == StatusResult((ready,), ready=True, v1_dialect="tfs")
    assert models.status(ModelRef("m", "10"), PATIENT).versions == (fresh[1],)
    assert loads == ["m"]
    get(models)
    assert models.status(M, PATIENT).ready
    models.unload("m", PATIENT)
    assert [e.state for e in models.status(M, PATIENT).versions] == [State.UNAVAILABLE] * 2
    assert models.status(STABLE, PATIENT).versions == (entry("1", State.UNAVAILABLE, "unloaded"),)


def test_status_tells_what_is_not_there(root: Path) -> None:
    """A missing model has no versions, and a missing version is named, under its label as well."""
    say(root, version_labels={"gone": 9})
    models = registry(root)
    assert models.status(ModelRef("q"), PATIENT) == StatusResult(())
    assert models.status(ModelRef("q", "1"), PATIENT) == StatusResult(())
    assert models.status(ModelRef("m", "7"), PATIENT) == StatusResult((), missing="7")
    assert models.status(ModelRef("m", None, "gone"), PATIENT) == StatusResult((), missing="9")


def test_status_tells_why_a_load_failed(root: Path) -> None:
    """The fault and the text stay until the files are others."""
    file = root / "m" / "1" / "model.onnx"
    file.write_bytes(b"")
    models = registry(root)
    with pytest.raises(ModelNotLoadable):
        get(models)
    (failed,) = models.status(M, PATIENT).versions
    assert (failed.state, failed.fault, failed.fresh) == (State.UNAVAILABLE, Fault.FAILED_PRECONDITION, False)
    assert "the file is empty" in failed.reason
    shutil.copy(ONNX, file)
    models.load("m", PATIENT)
    assert models.status(M, PATIENT).versions == (entry("1", State.READY),)


def test_status_tells_of_a_model_that_cannot_be_looked_at(root: Path) -> None:
    """Wrong settings and a silent store hide its versions, and the status has the fault."""
    say(root, version_labels=[])
    models = registry(root)
    for ref, number in ((M, "0"), (ModelRef("m", "7"), "7"), (STABLE, "0")):
        (failed,) = models.status(ref, PATIENT).versions
        assert (failed.version, failed.fault) == (number, Fault.FAILED_PRECONDITION)
        assert "version_labels is []; expected an object" in failed.reason
        assert not models.status(ref, PATIENT).ready
    gone = registry(root / "nowhere").status(M, PATIENT)
    assert [e.fault for e in gone.versions] == [Fault.UNAVAILABLE]


def test_a_loaded_version_that_answers_no_requests_is_not_ready(root: Path) -> None:
    """Readiness, status and index have the same reason, of that version only, until it answers again."""
    add(root, "m", "2")
    say(root, **EVERY)
    stuck = ["2"]

    def trouble(spec: ModelSpec | None) -> str:
        return "its threads are lost" if spec is not None and spec.version in stuck else ""

    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root)}), None, trouble)
    models.load("m", PATIENT)
    ready = entry("1", State.READY), entry("2", State.READY)
    lost = entry("2", State.UNAVAILABLE, "its threads are lost", fault=Fault.UNAVAILABLE)
    assert models.index(PATIENT) == [ready[0], lost]
    assert models.status(M, PATIENT) == StatusResult((ready[0], lost), ready=False)
    assert models.status(ModelRef("m", "1"), PATIENT) == StatusResult((ready[0],), ready=True)
    unready = Readiness(ready=False, state=State.UNAVAILABLE, reason=lost.reason, fault=Fault.UNAVAILABLE)
    for ref in (M, ModelRef("m", "2")):
        assert models.readiness(ref, PATIENT) == unready
    assert models.readiness(ModelRef("m", "1"), PATIENT).ready
    stuck.clear()
    assert models.index(PATIENT) == list(ready)
    assert models.status(M, PATIENT) == StatusResult(ready, ready=True)
    assert models.readiness(M, PATIENT).ready


def test_the_index_names_unknown_keys_of_settings(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before and after the load, which logs them. A version's own file is known once it is loaded."""
    say(root, canry={"1": 0.1})
    (root / "m" / "1" / "model-settings.json").write_text('{"timout": 3}')
    models = registry(root)
    note = "model-settings.json has the unknown key 'canry' (did you mean 'canary'?)"
    assert states(models) == {"1": ("UNAVAILABLE", f"not loaded yet; {note}")}
    get(models)
    note = (
        "model-settings.json has the unknown keys 'canry' (did you mean 'canary'?), 'timout' (did you mean 'timeout'?)"
    )
    assert states(models) == {"1": ("READY", note)}
    assert f"model m version 1: {note}" in caplog.messages
    assert models.status(M, PATIENT).versions == (entry("1", State.READY, note),)
