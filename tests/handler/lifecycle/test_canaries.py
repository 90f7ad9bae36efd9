"""handler.lifecycle.rollout and models: versions that get a share of the requests."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from core.errors import ServerBusy, StillLoading
from core.operations import ModelRef
from handler.lifecycle import models as listed_models
from handler.lifecycle.backoff import FIRST_PAUSE
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import ServedVersion
from handler.stores.progress import Progress
from tests.handler.lifecycle.samples import ONNX, PATIENT, POLL, Clock, M, add, get, registry, say, served, states


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The numbers that are drawn next; 0.5 if none is left."""
    given: list[float] = []
    monkeypatch.setattr(listed_models, "draw", lambda: given.pop(0) if given else 0.5)
    return given


def test_a_canary_is_served_beside_what_the_policy_says_of_the_others(root: Path, drawn: list[float]) -> None:
    """The drawn number chooses the version under every alias, and metadata is the stable version's."""
    for number in ("2", "3", "4"):
        add(root, "m", number)
    say(root, canary={"3": 0.2, "4": 0.1}, version_labels={"next": 4})
    models = registry(root)
    drawn += [0.1, 0.25, 0.35, 0.0]
    assert [served(models) for _ in range(4)] == ["3", "4", "2", "3"]
    for ref in (ModelRef("m", dashed=True), ModelRef("m", "0", zero_is_newest=True), ModelRef("", dashed=True)):
        drawn += [0.1, 0.9]
        assert [served(models, ref) for _ in range(2)] == ["3", "2"]
    assert served(models, ModelRef("m", None, "next")) == "4"
    assert served(models, ModelRef("m-3", dashed=True)) == "3"
    drawn.clear()
    drawn += [0.0] * 4
    assert models.describe(M, PATIENT).spec.version == "2"
    assert models.describe(M, PATIENT).versions == ("2", "3", "4")
    assert models.status(M, PATIENT).ready


def test_all_versions_may_be_canaries(root: Path, drawn: list[float]) -> None:
    """The newest canary gets what is left, and a share of 1 leaves nothing."""
    add(root, "m", "2")
    say(root, canary={"1": 0.25, "2": 0.25})
    drawn += [0.1, 0.3, 0.6, 0.99]
    models = registry(root)
    assert [served(models) for _ in range(4)] == ["1", "2", "2", "2"]
    say(root, canary={"1": 1.0})
    models.load("m", PATIENT)
    drawn += [0.9999999]
    assert served(models) == "1"


def test_a_canary_that_does_not_load_is_no_request_s_business(root: Path, drawn: list[float], clock: Clock) -> None:
    """Its share goes to the stable version until it is due to be tried again; the index says why."""
    file = add(root, "m", "2", b"nonsense")
    say(root, canary={"2": 0.5, "7": 0.1})
    models = registry(root)
    drawn += [0.9, 0.1, 0.1, 0.1]
    assert [served(models) for _ in range(3)] == ["1"] * 3
    told = states(models)
    assert told["1"] == ("READY", "")
    assert "version 2 cannot be loaded" in told["2"][1]
    assert told["7"] == ("UNAVAILABLE", listed_models.NOT_THERE)
    shutil.copy(ONNX, file)
    drawn[:] = [0.1]
    assert served(models) == "1"
    clock.now += FIRST_PAUSE + 0.1
    drawn[:] = [0.1, 0.1]
    assert served(models) == "2"


def test_a_canary_whose_new_files_do_not_load_gets_no_requests(root: Path, drawn: list[float]) -> None:
    """Unlike other versions it does not go on with its old files, and a load call succeeds without it."""
    add(root, "m", "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    drawn += [0.1]
    assert served(models) == "2"
    add(root, "m", "2", b"junk")
    models.load("m", PATIENT)
    drawn += [0.1]
    assert served(models) == "1"
    assert states(models)["2"][0] == "UNAVAILABLE"


def test_a_canary_that_is_still_being_fetched_says_so_to_its_share(
    root: Path, drawn: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request continues the fetch without a pause, because it has not failed."""
    add(root, "m", "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    drawn += [0.9]
    assert served(models) == "1"

    def unfinished(*_: Any) -> Loaded:
        raise StillLoading("model 'm' is 120 of 300 MB loaded: try again", retry_after=1)

    with monkeypatch.context() as patch:
        patch.setattr(models._rollout, "_load", unfinished)
        drawn += [0.1, 0.9]
        with pytest.raises(StillLoading):
            models.use(M, PATIENT)
        assert served(models) == "1"
        assert states(models)["2"] == ("LOADING", "model 'm' is 120 of 300 MB loaded: try again")
    drawn += [0.1]
    assert served(models) == "2"


def test_a_canary_for_which_others_leave_no_room_gives_its_share_to_the_stable_version(
    root: Path, drawn: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second the canary is tried again."""
    add(root, "m", "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    tries: list[str] = []

    def busy(version: ServedVersion, progress: Progress, spared: Any) -> Loaded:
        tries.append(version.version.folder)
        if version.version.number == 2:
            raise ServerBusy("the others are in use")
        return load(version, progress, spared)

    load = models._rollout._load
    monkeypatch.setattr(models._rollout, "_load", busy)
    drawn += [0.1, 0.1]
    assert [served(models), served(models)] == ["1", "1"]
    assert tries == ["2", "1"]
    clock.now += FIRST_PAUSE + 0.1
    drawn += [0.1, 0.1]
    assert served(models) == "1"
    assert tries == ["2", "1", "2"]


def test_a_canary_that_comes_is_loaded_before_it_gets_requests(root: Path, drawn: list[float], clock: Clock) -> None:
    """A canary that does not load is listed, and gets no requests."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    add(root, "m", "3", b"nonsense")
    say(root, canary={"2": 0.2, "3": 0.2})
    clock.now += POLL + 1
    drawn += [0.1]
    assert served(models) == "2"
    drawn += [0.3]
    assert served(models) == "1"
    assert "version 3 cannot be loaded" in states(models)["3"][1]
    assert states(models)["2"] == ("READY", "")


def test_a_canary_is_promoted_by_its_settings_without_a_load(root: Path, drawn: list[float], clock: Clock) -> None:
    """The canary is in memory already."""
    add(root, "m", "2")
    say(root, canary={"2": 0.1})
    models = registry(root)
    drawn += [0.05, 0.9]
    assert [served(models) for _ in range(2)] == ["2", "1"]
    canary = get(models, ModelRef("m", "2"))
    say(root)
    clock.now += POLL + 1
    assert get(models) is canary
