"""handler.lifecycle.rollout: looks and loads of one model that overtake each other."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER, Deadline
from core.errors import ModelNotFound, ModelUnavailable, UnknownLabel, VersionNotFound
from core.operations import ModelRef, State
from handler.lifecycle.single_flight import Pending, settled
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import REASONS, ServedVersion, Status
from handler.stores.progress import Progress
from tests.handler.lifecycle.samples import EVERY, PATIENT, POLL, STABLE, Clock, M, add, registry, say, served, states


def test_an_unload_waits_for_a_load_that_is_on_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller gets Pending and does not block."""
    with ThreadPoolExecutor(2) as executor:
        models = registry(root, executor)
        gate, load = threading.Event(), models._rollout._load
        monkeypatch.setattr(models._rollout, "_load", lambda *which: gate.wait(10) and load(*which))
        with pytest.raises(Pending) as loading:
            models.use(M, PATIENT)
        while not any(version.state is State.LOADING for version in models.known()):
            pass
        with pytest.raises(Pending) as unloading:
            models.unload("m", PATIENT)
        assert unloading.value.final
        gate.set()
        loading.value.future.result(10)
        unloading.value.future.result(10)
        assert states(models)["1"] == ("UNAVAILABLE", "unloaded")


def test_a_load_that_was_overtaken_by_an_unload_does_not_bring_the_model_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coming version replaces only the versions that it was listed beside."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    load = models._rollout._load

    def overtaken(version: ServedVersion, progress: Progress, spared: Any) -> Loaded:
        models._catalog.give_up("m")
        monkeypatch.undo()
        return load(version, progress, spared)

    monkeypatch.setattr(models._rollout, "_load", overtaken)
    serving = models._catalog.models["m"].versions
    models.load("m", PATIENT)
    assert models._catalog.models["m"].versions == serving
    assert served(models) == "2"  # this looks again


def test_a_probe_does_not_keep_a_load_from_taking_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe looks at the repository as well, and finds the same."""
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    load = models._rollout._load

    def probed(version: ServedVersion, progress: Progress, spared: Any) -> Loaded:
        with pytest.raises(VersionNotFound):
            models.readiness(ModelRef("m", "9"), PATIENT)
        return load(version, progress, spared)

    monkeypatch.setattr(models._rollout, "_load", probed)
    models.load("m", PATIENT)
    assert served(models) == "2"


@pytest.mark.parametrize("is_served", [True, False])
def test_what_is_published_while_a_version_is_loaded_is_loaded_next(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, is_served: bool
) -> None:
    """The load ends when the newest listing is loaded, and the overtaken version leaves memory."""
    models = registry(root)
    if is_served:
        assert served(models) == "1"
        add(root, "m", "2")
    overtaken: list[ServedVersion] = []
    load = models._rollout._load

    def late(version: ServedVersion, progress: Progress, spared: Any) -> Loaded:
        if not overtaken:
            overtaken.append(version)
            add(root, "m", "3")
            models.readiness(ModelRef("m", "3"), PATIENT)
        return load(version, progress, spared)

    monkeypatch.setattr(models._rollout, "_load", late)
    models.load("m", PATIENT)
    assert states(models) == {"3": ("READY", "")}
    assert served(models) == "3"
    assert [version.loaded for version in overtaken] == [None]


def test_a_look_that_ends_late_does_not_undo_what_a_later_one_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure does not count either."""
    models = registry(root)
    assert served(models) == "1"
    look, failing = models._repository.look, False

    def slow(name: str, wanted: int | None, deadline: Deadline) -> Any:
        listing = look(name, wanted, deadline)
        monkeypatch.undo()
        add(root, "m", "2" if not failing else "3")
        models._catalog.look("m", NEVER)
        if failing:
            raise ModelUnavailable("the store did not answer")
        return listing

    monkeypatch.setattr(models._repository, "look", slow)
    with pytest.raises(VersionNotFound):
        models.readiness(ModelRef("m", "9"), PATIENT)
    assert states(models) == {"1": ("READY", ""), "2": ("UNAVAILABLE", REASONS[Status.NEW])}
    failing = True
    monkeypatch.setattr(models._repository, "look", slow)
    assert not models.readiness(ModelRef("m", "9"), PATIENT).ready
    assert states(models) == {"1": ("READY", ""), "3": ("UNAVAILABLE", REASONS[Status.NEW])}


def test_probes_do_not_put_off_the_next_look(root: Path, clock: Clock) -> None:
    """Readiness of the new version may be asked as often as a client wants."""
    say(root, version_policy={"all": {}})
    models = registry(root)
    assert served(models) == "1"
    add(root, "m", "2")
    while clock.now <= 1000 + POLL:
        clock.now += POLL / 8
        assert not models.readiness(ModelRef("m", "2"), PATIENT).ready
    assert served(models) == "2"
    assert models.readiness(ModelRef("m", "2"), PATIENT).ready


def test_one_look_counts_for_all_versions_that_serve(root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request for any of them takes the look."""
    add(root, "m", "2")
    say(root, version_policy={"all": {}})
    models = registry(root)
    assert [served(models, ModelRef("m", number)) for number in ("1", "2")] == ["1", "2"]
    looks: list[str] = []
    look = models._repository.look
    monkeypatch.setattr(models._repository, "look", lambda name, *rest: looks.append(name) or look(name, *rest))
    clock.now += POLL + 1
    assert [served(models, ModelRef("m", number)) for number in ("1", "2")] == ["1", "2"]
    assert looks == ["m"]


def test_a_request_gets_what_another_look_has_found_while_its_model_was_loaded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that have changed meanwhile count for the request that waited."""
    say(root, version_policy={"all": {}})
    models = registry(root)
    load = models._rollout._load

    def late(*which: Any) -> Loaded:
        if not (root / "m" / "2").exists():
            add(root, "m", "2")
            models._catalog.look("m", NEVER)
        return load(*which)

    monkeypatch.setattr(models._rollout, "_load", late)
    assert served(models) == "2"
    assert states(models) == {"1": ("READY", ""), "2": ("READY", "")}


@pytest.mark.parametrize("moved", ["label", "version"])
def test_requests_that_wait_for_one_load_get_the_errors_of_their_own_references(root: Path, moved: str) -> None:
    """A label and a version that go with the look before the load are errors of the requests that name them alone."""
    add(root, "m", "2")
    say(root, **EVERY, version_labels={"stable": 2})
    with ThreadPoolExecutor(2) as executor:
        models = registry(root, executor)
        lost, together = STABLE if moved == "label" else ModelRef("m", "2"), list[Pending]()

        def waits(ref: ModelRef) -> Pending:
            with pytest.raises(Pending) as pending:
                models.use(ref, PATIENT)
            return pending.value

        def meet() -> None:
            together.extend((waits(lost), waits(M)))

        for ref in (M, STABLE, ModelRef("m", "2")):
            settled(lambda ref=ref: models.use(ref, PATIENT), NEVER).__exit__()  # type: ignore[misc] # bound now
        (_, version) = models.known()
        assert version.evict()
        if moved == "version":
            shutil.rmtree(root / "m" / "2")
        say(root, **EVERY)
        version.look_again(0.0)
        assert models._flights.run_if_idle("m", meet)
        assert together[0].load is together[1].load
        assert together[1].future.result(10) is None
        kept = settled(lambda: models.use(M, PATIENT), NEVER)
        assert kept.model.spec.version == ("2" if moved == "label" else "1")
        with pytest.raises((UnknownLabel, VersionNotFound)):
            settled(lambda: models.use(lost, PATIENT), NEVER)
        models.close()


def test_references_to_a_model_that_has_gone_with_its_memory_end(root: Path) -> None:
    """Each request finds that out by itself, with and without threads for loads."""
    for executor in (None, ThreadPoolExecutor(1)):
        add(root, "m", "1")
        models = registry(root, executor)
        settled(lambda: models.use(M, PATIENT), NEVER).__exit__()  # noqa: B023 - called at once
        (version,) = models.known()
        assert version.evict()
        shutil.rmtree(root / "m")
        version.look_again(0.0)
        for ref in (M, ModelRef("m", "1"), M):
            with pytest.raises((ModelNotFound, ModelUnavailable)):
                settled(lambda ref=ref: models.use(ref, PATIENT), NEVER)  # type: ignore[misc] # noqa: B023 - the same
        models.close()
        if executor is not None:
            executor.shutdown()
