"""handler.lifecycle.rollout and the registry: a model moves to what the repository now says, without an executor."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, ServerBusy, StillLoading, VersionNotFound
from core.operations import ModelRef, State
from handler.lifecycle import models as entries
from handler.lifecycle import versions as slots
from handler.lifecycle.registry import Pending, Registry
from handler.settings import Settings
from handler.stores import File, Forbidden
from handler.stores.directory import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler.lifecycle.phases import Phases

ONNX = Path(__file__).parents[2] / "models" / "half_plus_three" / "123" / "model.onnx"
M = ModelRef("m")
POLL = 60.0


class Clock:
    """time.monotonic, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In place of the real one."""
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Version 1 of model `m`."""
    add(tmp_path, "1")
    return tmp_path


def add(root: Path, version: str, content: bytes | None = None) -> Path:
    """A version that works, or has this content."""
    file = root / "m" / version / "model.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(ONNX.read_bytes() if content is None else content)
    return file


def say(root: Path, **settings: Any) -> None:
    """The model's settings."""
    (root / "m" / "model-settings.json").write_text(json.dumps(settings))


def registry(root: Path, executor: Any = None, **settings: str) -> Registry:
    """Of this repository; without an executor it loads on the spot, as on Lambda."""
    named = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    return Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root), **named}), executor)


def version(models: Registry, ref: ModelRef = M) -> str:
    """The version that answers."""
    with models.use(ref, PATIENT) as model:
        return model.spec.version


def states(models: Registry) -> dict[str, tuple[str, str]]:
    """The index as plain text."""
    return {entry.version: (str(entry.state), entry.reason) for entry in models.index(PATIENT)}


def test_a_request_after_the_poll_is_answered_by_the_version_that_has_come(root: Path, clock: Clock) -> None:
    """None before; who holds the old one keeps it."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    clock.now += POLL - 0.1
    assert version(models) == "1"
    held = models.use(M, PATIENT)
    clock.now += 0.2
    assert version(models) == "2"
    with held as model:
        assert model.spec.version == "1"
        assert held.slot.reason == "replaced by a newer version"
        assert held.in_use()
    assert not held.in_use()
    with pytest.raises(VersionNotFound):
        models.use(ModelRef("m", "1"), PATIENT)


def test_a_poll_of_zero_never_looks(root: Path, clock: Clock) -> None:
    """Only calls do."""
    models = registry(root, REPOSITORY_POLL="0")
    assert version(models) == "1"
    add(root, "2")
    clock.now += 1e9
    assert version(models) == "1"
    models.load("m", PATIENT)
    assert version(models) == "2"


def test_on_a_server_the_look_is_taken_beside_the_requests(root: Path, clock: Clock) -> None:
    """Once, however many come; they are answered by what is loaded."""
    with ThreadPoolExecutor(1) as executor:
        models = registry(root, executor)
        with pytest.raises(Pending) as pending:
            models.use(M, PATIENT)
        pending.value.future.result(10)
        assert version(models) == "1"
        add(root, "2")
        gate = threading.Event()
        executor.submit(gate.wait)
        clock.now += POLL + 1
        assert [version(models) for _ in range(8)] == ["1"] * 8
        gate.set()
        executor.submit(int).result(10)
        assert version(models) == "2"
    clock.now += POLL + 1
    assert version(models) == "2"  # and who comes while the server ends is answered


def test_a_version_that_does_not_load_changes_nothing(root: Path, clock: Clock) -> None:
    """It is tried again after the usual pauses, and takes over when it is mended."""
    models = registry(root)
    model = get(models, M)
    file = add(root, "2", b"nonsense")
    clock.now += POLL + 1
    assert get(models, M) is model
    told = states(models)
    assert told["1"] == ("READY", "")
    assert told["2"][0] == "UNAVAILABLE"
    assert "version 2 cannot be loaded" in told["2"][1]
    (one, two) = models.status(M, PATIENT).versions
    assert (one.state, two.state, two.fault is None) == (State.READY, State.UNAVAILABLE, False)
    shutil.copy(ONNX, file)
    assert get(models, M) is model
    clock.now += slots.FIRST_PAUSE + 0.1
    assert version(models) == "2"


def test_what_fails_under_the_version_that_serves_is_told_beside_it(root: Path, clock: Clock) -> None:
    """Other files under its number, which went back to what they were."""
    models = registry(root)
    model = get(models, M)
    file = root / "m" / "1" / "model.onnx"
    good = file.with_name("good")
    file.rename(good)
    add(root, "1", b"nonsense")
    clock.now += POLL + 1
    assert get(models, M) is model
    state, reason = states(models)["1"]
    assert state == "READY"
    assert "cannot be loaded" in reason
    file.unlink()
    good.rename(file)
    clock.now += POLL + 1
    assert get(models, M) is model
    assert states(models)["1"] == ("READY", "")


def test_a_store_that_does_not_answer_leaves_what_serves(root: Path, clock: Clock, caplog: Any) -> None:
    """And the log says so; the next look is due as ever."""
    models = registry(root)
    model = get(models, M)
    (root / "m").rename(root / "n")
    clock.now += POLL + 1
    assert get(models, M) is model
    assert "model m stays as it is: there is no model 'm' in the repository" in caplog.text
    (root / "n").rename(root / "m")
    add(root, "2")
    clock.now += POLL + 1
    assert version(models) == "2"


def test_only_what_serves_has_to_be_loaded_before_the_switch(root: Path, clock: Clock) -> None:
    """Versions and labels that nobody has asked for are left for who does."""
    for number in ("2", "3"):
        add(root, number)
    say(root, version_policy={"all": {}}, version_labels={"old": 1, "stable": 2})
    models = registry(root)
    assert [version(models, ref) for ref in (ModelRef("m", "1"), ModelRef("m", None, "stable"))] == ["1", "2"]
    add(root, "4")
    say(root, version_policy={"all": {}}, version_labels={"old": 1, "stable": 3})
    clock.now += POLL + 1
    assert version(models, ModelRef("m", None, "stable")) == "3"
    loaded = {number for number, (state, _) in states(models).items() if state == "READY"}
    assert loaded == {"1", "2", "3"}
    assert version(models) == "4"


def test_a_version_asked_for_by_name_brings_all_along_that_serves(root: Path) -> None:
    """Or nothing, if that does not load."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    add(root, "3", b"nonsense")
    say(root, version_policy={"latest": {"num_versions": 2}})
    with pytest.raises(ModelNotLoadable, match="version 3 cannot be loaded"):
        models.use(ModelRef("m", "2"), PATIENT)
    assert version(models) == "1"
    shutil.rmtree(root / "m" / "3")
    models.load("m", PATIENT)
    assert version(models, ModelRef("m", "2")) == version(models) == "2"


def test_a_load_that_was_overtaken_by_an_unload_does_not_bring_the_model_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is coming takes the place of nothing but what it was to replace."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    load = models._load

    def overtaken(slot: slots.Slot, phases: Phases) -> slots.Loaded:
        models._catalog.give_up("m")
        monkeypatch.undo()
        return load(slot, phases)

    monkeypatch.setattr(models, "_load", overtaken)
    serving = models._catalog.entries["m"].versions
    models.load("m", PATIENT)
    assert models._catalog.entries["m"].versions == serving
    assert version(models) == "2"  # which looks again


def test_a_probe_does_not_keep_a_load_from_taking_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the repository, too, and finds the same."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    load = models._load

    def probed(slot: slots.Slot, phases: Phases) -> slots.Loaded:
        with pytest.raises(VersionNotFound):
            models.readiness(ModelRef("m", "9"), PATIENT)
        return load(slot, phases)

    monkeypatch.setattr(models, "_load", probed)
    models.load("m", PATIENT)
    assert version(models) == "2"


@pytest.mark.parametrize("served", [True, False])
def test_what_is_published_while_a_version_is_loaded_is_loaded_next(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, served: bool
) -> None:
    """A load is over when what the repository says is loaded; what was overtaken goes out of memory."""
    models = registry(root)
    if served:
        assert version(models) == "1"
        add(root, "2")
    overtaken: list[slots.Slot] = []
    load = models._load

    def late(slot: slots.Slot, phases: Phases) -> slots.Loaded:
        if not overtaken:
            overtaken.append(slot)
            add(root, "3")
            models.readiness(ModelRef("m", "3"), PATIENT)
        return load(slot, phases)

    monkeypatch.setattr(models, "_load", late)
    models.load("m", PATIENT)
    assert states(models) == {"3": ("READY", "")}
    assert version(models) == "3"
    assert [slot.loaded for slot in overtaken] == [None]


def test_a_look_that_ends_late_does_not_undo_what_a_later_one_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does its failure count."""
    models = registry(root)
    assert version(models) == "1"
    look, failing = models._repository.look, False

    def slow(name: str, wanted: int | None) -> Any:
        listing = look(name, wanted)
        monkeypatch.undo()
        add(root, "2" if not failing else "3")
        models._catalog.look("m")
        if failing:
            raise ModelUnavailable("the store did not answer")
        return listing

    monkeypatch.setattr(models._repository, "look", slow)
    with pytest.raises(VersionNotFound):
        models.readiness(ModelRef("m", "9"), PATIENT)
    assert states(models) == {"1": ("READY", ""), "2": ("UNAVAILABLE", slots.NOT_YET)}
    failing = True
    monkeypatch.setattr(models._repository, "look", slow)
    assert not models.readiness(ModelRef("m", "9"), PATIENT).ready
    assert states(models) == {"1": ("READY", ""), "3": ("UNAVAILABLE", slots.NOT_YET)}


def test_probes_do_not_put_off_the_next_look(root: Path, clock: Clock) -> None:
    """However often somebody asks whether the new version is ready."""
    say(root, version_policy={"all": {}})
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    while clock.now <= 1000 + POLL:
        clock.now += POLL / 8
        assert not models.readiness(ModelRef("m", "2"), PATIENT).ready
    assert version(models) == "2"
    assert models.readiness(ModelRef("m", "2"), PATIENT).ready


def test_one_look_counts_for_all_versions_that_serve(root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them is asked for first."""
    add(root, "2")
    say(root, version_policy={"all": {}})
    models = registry(root)
    assert [version(models, ModelRef("m", number)) for number in ("1", "2")] == ["1", "2"]
    looks: list[str] = []
    look = models._repository.look
    monkeypatch.setattr(models._repository, "look", lambda name, wanted: looks.append(name) or look(name, wanted))
    clock.now += POLL + 1
    assert [version(models, ModelRef("m", number)) for number in ("1", "2")] == ["1", "2"]
    assert looks == ["m"]


def test_the_index_says_why_the_new_state_cannot_be_read(root: Path, clock: Clock) -> None:
    """Of what serves on, until it can be read again; whether a poll looked or a call."""
    models = registry(root)
    model = get(models, M)
    (root / "m" / "model-settings.json").write_text("{")
    clock.now += POLL + 1
    assert get(models, M) is model
    assert states(models)["1"][0] == "READY"
    assert "expected JSON" in states(models)["1"][1]
    say(root)
    clock.now += POLL + 1
    assert get(models, M) is model
    assert states(models)["1"] == ("READY", "")
    say(root, canary=[])
    with pytest.raises(ModelNotLoadable, match="canary"):
        models.load("m", PATIENT)
    assert "canary" in states(models)["1"][1]
    assert [entry.fault for entry in models.status(M, PATIENT).versions] == [None]


def test_an_unload_waits_for_a_load_that_is_on_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keeping its caller."""
    with ThreadPoolExecutor(2) as executor:
        models = registry(root, executor)
        gate, load = threading.Event(), models._load
        monkeypatch.setattr(models, "_load", lambda *which: gate.wait(10) and load(*which))
        with pytest.raises(Pending) as loading:
            models.use(M, PATIENT)
        while not any(slot.state is State.LOADING for slot in models.known()):
            pass
        with pytest.raises(Pending) as unloading:
            models.unload("m", PATIENT)
        assert unloading.value.final
        gate.set()
        loading.value.future.result(10)
        unloading.value.future.result(10)
        assert states(models)["1"] == ("UNAVAILABLE", "unloaded")


def test_after_an_unload_the_next_request_looks_at_once(root: Path) -> None:
    """There is nothing to go on with."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    models.unload("m", PATIENT)
    assert version(models) == "2"


def test_a_model_that_was_unloaded_for_others_is_still_what_serves(root: Path, clock: Clock) -> None:
    """A broken version does not take its place, and it is loaded again when it is needed."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2", b"nonsense")
    (slot,) = models.known()
    assert slot.evict()
    assert not models.readiness(M, PATIENT).ready
    assert models.readiness(M, PATIENT).reason == slots.EVICTED
    clock.now += POLL + 1
    assert version(models) == "1"
    assert "version 2 cannot be loaded" in states(models)["2"][1]
    (slot, *_) = models.known()
    assert slot.evict()
    shutil.rmtree(root / "m")
    clock.now += POLL + 1
    with pytest.raises(ModelNotFound):
        models.use(M, PATIENT)


def test_what_is_in_use_is_not_unloaded_for_others(root: Path) -> None:
    """Nor what was never loaded, nor what is being loaded."""
    models = registry(root)
    (slot,) = models._catalog.entry("m").versions.values()
    assert not slot.evict()
    with models.use(M, PATIENT), models.use(M, PATIENT).again():
        assert not slot.evict()
    with models.use(M, PATIENT):
        pass
    slot.loaded.__exit__()  # type: ignore[union-attr] # the use that `again` was begun from
    assert slot._lock.acquire()
    assert not slot.evict()
    slot._lock.release()
    assert slot.evict()
    assert slot.use() is None


def test_a_use_that_begins_while_the_model_is_taken_away_is_none(root: Path) -> None:
    """Whichever of the two comes first; here each sees the other half-way."""
    models = registry(root)
    get(models, M)
    (slot,) = models.known()
    loaded = slot.loaded
    assert loaded is not None
    taken: list[Any] = []

    class Taking(list[None]):
        def append(self, _: None) -> None:
            super().append(None)
            slot.loaded = taken.pop() if taken else None

    loaded.uses = Taking()
    assert slot.use() is None
    assert not loaded.in_use()
    slot.loaded = loaded

    class Late(list[None]):
        looks = 0

        def __len__(self) -> int:
            self.looks += 1
            return self.looks - 1  # used from the second look on

    loaded.uses = Late()
    assert not slot.evict()
    assert slot.loaded is loaded


def test_a_model_is_warm_before_it_is_ready(root: Path) -> None:
    """As its settings ask."""
    (root / "m" / "1" / "model.onnx").unlink()
    (root / "m" / "1" / "model.py").write_text(
        "metadata = {'inputs': [{'name': 'x', 'datatype': 'FP32', 'shape': [2]}]}\n"
        "seen = []\n"
        "def predict(inputs, parameters):\n"
        "    seen.append(inputs['x'].shape)\n"
        "    return {}\n"
    )
    say(root, warmup=[{"random": True, "count": 2}])
    model: Any = get(registry(root, ALLOW_CODE="true"), M)
    assert model.module.seen == [(2,), (2,)]


# -- canaries ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is drawn next; 0.5 if nothing is left."""
    given: list[float] = []
    monkeypatch.setattr(entries, "draw", lambda: given.pop(0) if given else 0.5)
    return given


def test_a_canary_is_served_beside_what_the_policy_says_of_the_others(root: Path, drawn: list[float]) -> None:
    """By what is drawn; by the words of clients of other protocols, too; metadata is the stable version's."""
    for number in ("2", "3", "4"):
        add(root, number)
    say(root, canary={"3": 0.2, "4": 0.1}, version_labels={"next": 4})
    models = registry(root)
    drawn += [0.1, 0.25, 0.35, 0.0]
    assert [version(models) for _ in range(4)] == ["3", "4", "2", "3"]
    for ref in (ModelRef("m", dashed=True), ModelRef("m", "0", zero_is_newest=True), ModelRef("", dashed=True)):
        drawn += [0.1, 0.9]
        assert [version(models, ref) for _ in range(2)] == ["3", "2"]
    assert version(models, ModelRef("m", None, "next")) == "4"
    assert version(models, ModelRef("m-3", dashed=True)) == "3"
    drawn.clear()
    drawn += [0.0] * 4
    assert models.describe(M, PATIENT).spec.version == "2"
    assert models.describe(M, PATIENT).versions == ("2", "3", "4")
    assert models.status(M, PATIENT).ready


def test_a_canary_is_quick_only_if_the_stable_version_is(root: Path) -> None:
    """Nobody knows which of them is going to answer."""
    add(root, "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    for number in ("1", "2"):
        assert not models.is_quick(M, 1)
        with (held := models.use(ModelRef("m", number), PATIENT)):
            for _ in range(slots.QUICK_RUNS):
                held.slot.record((0, 0, 1, 0), 1, success=True)
    assert models.is_quick(M, 1)


def test_all_versions_may_be_canaries(root: Path, drawn: list[float]) -> None:
    """The newest of them gets what is left; a share of 1 leaves nothing."""
    add(root, "2")
    say(root, canary={"1": 0.25, "2": 0.25})
    drawn += [0.1, 0.3, 0.6, 0.99]
    models = registry(root)
    assert [version(models) for _ in range(4)] == ["1", "2", "2", "2"]
    say(root, canary={"1": 1.0})
    models.load("m", PATIENT)
    drawn += [0.9999999]
    assert version(models) == "1"


def test_a_canary_that_does_not_load_is_no_request_s_business(root: Path, drawn: list[float], clock: Clock) -> None:
    """Its share goes to the stable version until it is due to be tried again; the index says why."""
    file = add(root, "2", b"nonsense")
    say(root, canary={"2": 0.5, "7": 0.1})
    models = registry(root)
    drawn += [0.9, 0.1, 0.1, 0.1]
    assert [version(models) for _ in range(3)] == ["1"] * 3
    told = states(models)
    assert told["1"] == ("READY", "")
    assert "version 2 cannot be loaded" in told["2"][1]
    assert told["7"] == ("UNAVAILABLE", entries.NOT_THERE)
    shutil.copy(ONNX, file)
    drawn[:] = [0.1]
    assert version(models) == "1"
    clock.now += slots.FIRST_PAUSE + 0.1
    drawn[:] = [0.1, 0.1]
    assert version(models) == "2"


def test_a_canary_that_is_still_being_fetched_says_so_to_its_share(
    root: Path, drawn: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request goes on with it, without a pause: it has not failed."""
    add(root, "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    drawn += [0.9]
    assert version(models) == "1"

    def unfinished(*_: Any) -> slots.Loaded:
        raise StillLoading("model 'm' is 120 of 300 MB loaded: try again", retry_after=1)

    with monkeypatch.context() as patch:
        patch.setattr(models, "_load", unfinished)
        drawn += [0.1, 0.9]
        with pytest.raises(StillLoading):
            models.use(M, PATIENT)
        assert version(models) == "1"
        assert states(models)["2"] == ("LOADING", "model 'm' is 120 of 300 MB loaded: try again")
    drawn += [0.1]
    assert version(models) == "2"


def test_a_canary_for_which_others_leave_no_room_gives_its_share_to_the_stable_version(
    root: Path, drawn: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a second, then it is tried again."""
    add(root, "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    tries: list[str] = []

    def busy(slot: slots.Slot, phases: Phases) -> slots.Loaded:
        tries.append(slot.version.folder)
        if slot.version.number == 2:
            raise ServerBusy("the others are in use")
        return load(slot, phases)

    load = models._load
    monkeypatch.setattr(models, "_load", busy)
    drawn += [0.1, 0.1]
    assert [version(models), version(models)] == ["1", "1"]
    assert tries == ["2", "1"]
    clock.now += slots.FIRST_PAUSE + 0.1
    drawn += [0.1, 0.1]
    assert version(models) == "1"
    assert tries == ["2", "1", "2"]


def test_a_canary_that_comes_is_loaded_before_it_gets_requests(root: Path, drawn: list[float], clock: Clock) -> None:
    """If it does not load, it comes all the same, and gets none."""
    models = registry(root)
    assert version(models) == "1"
    add(root, "2")
    add(root, "3", b"nonsense")
    say(root, canary={"2": 0.2, "3": 0.2})
    clock.now += POLL + 1
    drawn += [0.1]
    assert version(models) == "2"
    drawn += [0.3]
    assert version(models) == "1"
    assert "version 3 cannot be loaded" in states(models)["3"][1]
    assert states(models)["2"] == ("READY", "")


def test_a_canary_is_promoted_by_its_settings_without_a_load(root: Path, drawn: list[float], clock: Clock) -> None:
    """It is in memory already."""
    add(root, "2")
    say(root, canary={"2": 0.1})
    models = registry(root)
    drawn += [0.05, 0.9]
    assert [version(models) for _ in range(2)] == ["2", "1"]
    canary = get(models, ModelRef("m", "2"))
    say(root)
    clock.now += POLL + 1
    assert get(models, M) is canary


def test_canaries_are_preloaded(root: Path) -> None:
    """So that none of the first requests waits."""
    add(root, "2")
    say(root, canary={"2": 0.1})
    models = registry(root, PRELOAD="m")
    models.preload(PATIENT)
    assert {state for state, _ in states(models).values()} == {"READY"}
    assert models.ready(PATIENT).ready


# -- stores that may not be listed -------------------------------------------------------------------------------------


class Unlisted(DirectoryStore):
    """A stand-in for a bucket that may be read and not listed."""

    def files(self, model: str, _: Any = None) -> list[File]:
        """Denied."""
        raise Forbidden


@pytest.fixture
def unlisted(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Registry]:
    """A registry of such a store."""
    monkeypatch.setattr("handler.stores.directory.DirectoryStore", Unlisted)
    return lambda: registry(root)


def test_versions_of_a_store_that_may_not_be_listed_serve_beside_each_other(
    root: Path, unlisted: Callable[[], Registry]
) -> None:
    """A look that found one of them says nothing of the others."""
    add(root, "2")
    models = unlisted()
    loaded = [get(models, ModelRef("m", number)) for number in ("1", "2")]
    assert [get(models, ModelRef("m", number)) for number in ("1", "2")] == loaded
    assert version(models) == "2"
    with pytest.raises(ModelUnavailable):
        models.load("m", PATIENT)
    assert version(models) == "2"


def test_files_are_other_files_when_their_time_is(root: Path) -> None:
    """Of the same size: what is written anew is loaded anew."""
    models = registry(root)
    model = get(models, M)
    models.load("m", PATIENT)
    assert get(models, M) is model
    os.utime(root / "m" / "1" / "model.onnx", ns=(1, 1))
    models.load("m", PATIENT)
    assert get(models, M) is not model
