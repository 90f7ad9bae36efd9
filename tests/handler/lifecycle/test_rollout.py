"""handler.lifecycle.rollout: a model moves to what the repository has now, without an executor."""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER
from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, VersionNotFound
from core.operations import ModelRef, State
from handler.lifecycle.backoff import FIRST_PAUSE
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Pending, settled
from handler.lifecycle.versions import REASONS, Status
from tests.handler.lifecycle.samples import (
    EVERY,
    ONNX,
    PATIENT,
    POLL,
    Clock,
    M,
    add,
    get,
    registry,
    say,
    served,
    states,
)


def test_a_request_after_the_poll_is_answered_by_the_version_that_has_come(root: Path, clock: Clock) -> None:
    """Before the poll the old version answers, and a request that holds it keeps it."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    clock.now += POLL - 0.1
    assert served(models) == "1"
    (replaced,) = models.known()
    held = models.use(M, PATIENT)
    clock.now += 0.2
    assert served(models) == "2"
    with held as model:
        assert model.spec.version == "1"
        assert replaced.reason == "replaced by a newer version"
        assert held.in_use()
    assert not held.in_use()
    with pytest.raises(VersionNotFound):
        models.use(ModelRef("m", "1"), PATIENT)


def test_a_poll_of_zero_never_looks(root: Path, clock: Clock) -> None:
    """Only a load looks at the repository."""
    models = registry(root, REPOSITORY_POLL="0")
    assert served(models) == "1"
    add(root, "m", "2")
    clock.now += 1e9
    assert served(models) == "1"
    models.load("m", PATIENT)
    assert served(models) == "2"


def test_on_a_server_the_look_is_taken_beside_the_requests(root: Path, clock: Clock) -> None:
    """One look is taken for all requests, which the loaded version answers meanwhile."""
    with ThreadPoolExecutor(1) as executor:
        models = registry(root, executor)
        with pytest.raises(Pending) as pending:
            models.use(M, PATIENT)
        pending.value.future.result(10)
        assert served(models) == "1"
        add(root, "m", "2")
        gate = threading.Event()
        executor.submit(gate.wait)
        clock.now += POLL + 1
        assert [served(models) for _ in range(8)] == ["1"] * 8
        gate.set()
        executor.submit(int).result(10)
        assert served(models) == "2"
    clock.now += POLL + 1
    assert served(models) == "2"  # a request while the server ends is answered


@pytest.mark.parametrize("is_server", [True, False])
def test_a_model_can_be_evicted_after_looks_at_the_repository(root: Path, clock: Clock, *, is_server: bool) -> None:
    """The request that starts a look ends its use of the model as every other request does."""
    with ThreadPoolExecutor(1) as executor:
        models = registry(root, executor if is_server else None)
        for _ in range(3):
            settled(lambda: served(models), NEVER)
            clock.now += POLL + 1
        (version,) = models.known()
        assert version.loaded is not None
        assert version.loaded.uses == []
        assert version.evict()


def test_a_version_that_does_not_load_changes_nothing(root: Path, clock: Clock) -> None:
    """It is tried again after the usual pauses, and takes over when it is repaired."""
    models = registry(root)
    model = get(models)
    file = add(root, "m", "2", b"nonsense")
    clock.now += POLL + 1
    assert get(models) is model
    told = states(models)
    assert told["1"] == ("READY", "")
    assert told["2"][0] == "UNAVAILABLE"
    assert "version 2 cannot be loaded" in told["2"][1]
    (one, two) = models.status(M, PATIENT).versions
    assert (one.state, two.state, two.fault is None) == (State.READY, State.UNAVAILABLE, False)
    shutil.copy(ONNX, file)
    assert get(models) is model
    clock.now += FIRST_PAUSE + 0.1
    assert served(models) == "2"


def test_what_fails_under_the_version_that_serves_is_told_beside_it(root: Path, clock: Clock) -> None:
    """The index shows why new files under the same number do not load, until the old files are back."""
    models = registry(root)
    model = get(models)
    file = root / "m" / "1" / "model.onnx"
    good = file.with_name("good")
    file.rename(good)
    add(root, "m", "1", b"nonsense")
    clock.now += POLL + 1
    assert get(models) is model
    state, reason = states(models)["1"]
    assert state == "READY"
    assert "cannot be loaded" in reason
    file.unlink()
    good.rename(file)
    clock.now += POLL + 1
    assert get(models) is model
    assert states(models)["1"] == ("READY", "")


def test_an_old_version_whose_new_files_do_not_load_holds_back_no_others(root: Path, clock: Clock) -> None:
    """It serves its old files, and the index says why. The other versions and the settings take effect."""
    add(root, "m", "2")
    say(root, **EVERY)
    models = registry(root)
    assert served(models) == "2"
    first = get(models, ModelRef("m", "1"))
    add(root, "m", "1", b"junk")
    add(root, "m", "3")
    say(root, **EVERY, version_labels={"new": 3})
    clock.now += POLL
    assert served(models) == "3"
    assert served(models, ModelRef("m", None, "new")) == "3"
    assert served(models, ModelRef("m", "2")) == "2"
    assert get(models, ModelRef("m", "1")) is first
    state, reason = states(models)["1"]
    assert (state, reason.startswith("model 'm' version 1 cannot be loaded")) == ("READY", True)
    with pytest.raises(ModelNotLoadable, match="version 1"):
        models.load("m", PATIENT)
    add(root, "m", "1")
    clock.now += POLL
    assert served(models) == "3"
    assert get(models, ModelRef("m", "1")) is not first
    assert states(models) == dict.fromkeys("123", ("READY", ""))


def test_a_new_version_is_answered_by_name_beside_an_old_one_that_does_not_load(root: Path) -> None:
    """The request did not name the old one."""
    add(root, "m", "2")
    say(root, **EVERY)
    models = registry(root)
    assert served(models, ModelRef("m", "1")) == "1"
    assert served(models) == "2"
    add(root, "m", "1", b"junk")
    add(root, "m", "3")
    assert served(models, ModelRef("m", "3")) == "3"
    assert served(models) == "3"
    assert served(models, ModelRef("m", "1")) == "1"


def test_a_store_that_does_not_answer_leaves_what_serves(root: Path, clock: Clock, caplog: Any) -> None:
    """The log has the reason, and the next look is due as usual."""
    models = registry(root)
    model = get(models)
    (root / "m").rename(root / "n")
    clock.now += POLL + 1
    assert get(models) is model
    assert "model m serves what is loaded: model 'm' is not in the repository" in caplog.text
    (root / "n").rename(root / "m")
    add(root, "m", "2")
    clock.now += POLL + 1
    assert served(models) == "2"


def test_only_what_serves_has_to_be_loaded_before_the_switch(root: Path, clock: Clock) -> None:
    """Versions and labels that no request has used are loaded when they are asked for."""
    for number in ("2", "3"):
        add(root, "m", number)
    say(root, version_policy={"all": {}}, version_labels={"old": 1, "stable": 2})
    models = registry(root)
    assert [served(models, ref) for ref in (ModelRef("m", "1"), ModelRef("m", None, "stable"))] == ["1", "2"]
    add(root, "m", "4")
    say(root, version_policy={"all": {}}, version_labels={"old": 1, "stable": 3})
    clock.now += POLL + 1
    assert served(models, ModelRef("m", None, "stable")) == "3"
    loaded = {number for number, (state, _) in states(models).items() if state == "READY"}
    assert loaded == {"1", "2", "3"}
    assert served(models) == "4"


def test_a_version_asked_for_by_name_brings_all_along_that_serves(root: Path) -> None:
    """If the rest does not load, the model stays as it was."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    add(root, "m", "3", b"nonsense")
    say(root, version_policy={"latest": {"num_versions": 2}})
    with pytest.raises(ModelNotLoadable, match="version 3 cannot be loaded"):
        models.use(ModelRef("m", "2"), PATIENT)
    assert served(models) == "1"
    shutil.rmtree(root / "m" / "3")
    models.load("m", PATIENT)
    assert served(models, ModelRef("m", "2")) == served(models) == "2"


def test_the_index_says_why_the_new_state_cannot_be_read(root: Path, clock: Clock) -> None:
    """The reason stands beside the version that serves until the repository can be read again."""
    models = registry(root)
    model = get(models)
    (root / "m" / "model-settings.json").write_text("{")
    clock.now += POLL + 1
    assert get(models) is model
    assert states(models)["1"][0] == "READY"
    assert "is not JSON" in states(models)["1"][1]
    say(root)
    clock.now += POLL + 1
    assert get(models) is model
    assert states(models)["1"] == ("READY", "")
    say(root, canary=[])
    with pytest.raises(ModelNotLoadable, match="canary"):
        models.load("m", PATIENT)
    assert "canary" in states(models)["1"][1]
    assert [entry.fault for entry in models.status(M, PATIENT).versions] == [None]


def test_after_an_unload_the_next_request_looks_at_once(root: Path) -> None:
    """The unloaded version is not loaded again if there is a newer one."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    models.unload("m", PATIENT)
    assert served(models) == "2"


def test_a_model_that_was_unloaded_for_others_is_still_what_serves(root: Path, clock: Clock) -> None:
    """A broken version does not take its place, and it is loaded again when it is needed."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2", b"nonsense")
    (version,) = models.known()
    assert version.evict()
    assert not models.readiness(M, PATIENT).ready
    assert models.readiness(M, PATIENT).reason == REASONS[Status.EVICTED]
    clock.now += POLL + 1
    assert served(models) == "1"
    assert "version 2 cannot be loaded" in states(models)["2"][1]
    (version, *_) = models.known()
    assert version.evict()
    shutil.rmtree(root / "m")
    clock.now += POLL + 1
    with pytest.raises(ModelNotFound):
        models.use(M, PATIENT)


def test_files_are_other_files_when_their_time_is(root: Path) -> None:
    """Files of the same size and another time are loaded anew."""
    models = registry(root)
    model = get(models)
    models.load("m", PATIENT)
    assert get(models) is model
    os.utime(root / "m" / "1" / "model.onnx", ns=(1, 1))
    models.load("m", PATIENT)
    assert get(models) is not model


def test_versions_of_a_store_that_may_not_be_listed_serve_beside_each_other(
    root: Path, unlisted: Callable[[], Registry]
) -> None:
    """A look that found one of them does not drop the others."""
    add(root, "m", "2")
    models = unlisted()
    loaded = [get(models, ModelRef("m", number)) for number in ("1", "2")]
    assert [get(models, ModelRef("m", number)) for number in ("1", "2")] == loaded
    assert served(models) == "2"
    with pytest.raises(ModelUnavailable):
        models.load("m", PATIENT)
    assert served(models) == "2"
