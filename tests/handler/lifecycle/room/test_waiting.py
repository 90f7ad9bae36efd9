"""handler.lifecycle.room.budget: loads that wait for models in use."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER, within
from core.errors import ServerBusy
from core.operations import ModelRef
from handler import backends
from handler.edge.dispatch.threads import Threads
from handler.lifecycle import loading
from handler.lifecycle.room import budget, memory
from handler.lifecycle.single_flight import Background, Pending, settled
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.room.machine import (
    OWN,
    Machine,
    Model,
    add_mb,
    in_memory,
    limited,
    measured,
    use,
    use_measured,
)
from tests.handler.lifecycle.samples import PATIENT, registry


def test_what_is_in_use_stays_and_is_waited_for(five: Path) -> None:
    """After a while the request is refused with a pause, and a later load succeeds."""
    models = limited(five, OWN + 40)
    held = [models.use(ModelRef("a"), PATIENT)]
    with pytest.raises(ServerBusy, match="model 'b' needs 30 MB to load, and what is in use leaves no room") as busy:
        use_measured(models)
    assert busy.value.retry_after == 1.0
    assert in_memory(models) == ["a"]
    with pytest.raises(ServerBusy):
        models.use(ModelRef("b"), PATIENT)
    threading.Timer(0.05, lambda: held.pop().__exit__()).start()
    models.load("b", PATIENT)
    assert in_memory(models) == ["b"]


def test_a_load_waits_for_others_no_longer_than_who_asked_for_it(five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Lambda the request is refused before its gateway gives up."""
    monkeypatch.setattr(budget, "ROOM_SECONDS", 3600.0)
    models = limited(five, OWN + 40)
    with models.use(ModelRef("a"), PATIENT), pytest.raises(ServerBusy):
        use_measured(models, Background(within(0.05)))


def test_that_others_were_in_use_is_no_reason_for_a_pause(five: Path) -> None:
    """The next request tries at once."""
    models = limited(five, OWN + 40)
    with models.use(ModelRef("a"), PATIENT), pytest.raises(ServerBusy):
        use_measured(models)
    use(models, "b")
    assert in_memory(models) == ["b"]


def test_a_model_that_nobody_has_used_yet_stays_for_those_who_wait_for_it(
    five: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That holds on a server; where one request comes at a time, none waits."""
    inline = limited(five, OWN + 40)
    inline.load("a", PATIENT)
    inline.load("b", PATIENT)
    assert in_memory(inline) == ["b"]
    inline.unload("b", PATIENT)
    monkeypatch.setattr("handler.lifecycle.registry.FRESH_SECONDS", 10.0)
    with ThreadPoolExecutor(4) as executor:
        models = limited(five, OWN + 40, executor)
        with pytest.raises(Pending) as pending:
            models.load("a", PATIENT)
        pending.value.future.result(10)
        measured(models, "b", 30, 30)
        with pytest.raises(Pending) as pending:
            models.use(ModelRef("b"), PATIENT)
        with pytest.raises(ServerBusy):
            pending.value.future.result(10)
        use(models, "a")
        with pytest.raises(Pending) as pending:
            models.load("b", PATIENT)
        pending.value.future.result(10)
        assert in_memory(models) == ["b"]


@pytest.mark.parametrize(("preload", "limit"), [("", 40), ("e", 70)])
def test_what_is_unloaded_in_use_is_waited_for(five: Path, preload: str, limit: int) -> None:
    """It takes memory until its request ends, and the waiting model is not blamed."""
    models = limited(five, OWN + limit, PRELOAD=preload)
    models.preload(PATIENT)
    with models.use(ModelRef("a"), PATIENT):
        models.unload("a", PATIENT)
        with pytest.raises(ServerBusy, match="model 'b' needs 30 MB to load, and what is in use leaves no room"):
            use_measured(models)
    use(models, "b")
    assert in_memory(models) == ["b", *preload]


def test_nothing_is_collected_while_what_is_unloaded_is_in_use(five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection at every check would interrupt the requests in progress."""
    models = limited(five, OWN + 40)
    with models.use(ModelRef("a"), PATIENT):
        models.unload("a", PATIENT)
        monkeypatch.setattr(budget, "gc", None)
        with pytest.raises(ServerBusy):
            use_measured(models)


def test_what_is_replaced_in_use_is_waited_for(five: Path, machine: Machine) -> None:
    """The version in its place is idle, and evicting that one is not enough."""
    models = limited(five, OWN + 70)
    machine.sizes["b"] = 60
    with models.use(ModelRef("a"), PATIENT):
        add_mb(five, "a", "2")
        models.load("a", PATIENT)
        with pytest.raises(ServerBusy):
            models.load("b", PATIENT)
    use(models, "b")
    assert in_memory(models) == ["b"]


def test_what_is_unloaded_and_used_no_more_is_waited_for_until_nobody_holds_it(five: Path) -> None:
    """A thread may be about to let go of the model."""
    models = limited(five, OWN + 40)
    held = models.use(ModelRef("a"), PATIENT)
    models.unload("a", PATIENT)
    held.__exit__()
    with pytest.raises(ServerBusy):
        models.load("b", PATIENT)
    del held
    use(models, "b")
    assert in_memory(models) == ["b"]


def test_what_a_last_user_still_holds_is_waited_for(five: Path, machine: Machine) -> None:
    """The thread that used it last is a step away from letting go."""
    models = limited(five, OWN + 40)
    with models.use(ModelRef("a"), PATIENT) as model:
        held = [model]
        del model
    threading.Timer(0.01, held.clear).start()
    use(models, "b")
    assert machine.used == OWN + 30
    assert machine.loaded == ["a", "b"]


def test_a_load_that_finds_memory_short_again_and_again_is_put_off(
    five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room before each try and after it, and none during it."""

    def begin() -> None:
        machine.used += 30  # a large request
        machine.most = machine.used

    def load(source: Any, settings: Settings) -> Model:
        model = machine.load(source, settings)
        model._size += 30  # which ends when the model is given up
        return model

    monkeypatch.setattr(memory, "reset_peak", begin)
    monkeypatch.setattr(backends, "choose", lambda *_: load)
    with pytest.raises(ServerBusy, match="model 'a' needs 30 MB to load, and what is in use leaves no room"):
        use(limited(five, OWN + 40), "a")
    assert machine.loaded == ["a"] * budget.TRIES
    assert machine.used == OWN


def test_what_fits_does_not_wait_for_what_waits_for_memory(
    five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of models that wait. As many are fetched at the same time as before."""
    monkeypatch.setattr(budget, "ROOM_SECONDS", 60.0)
    monkeypatch.setattr("handler.lifecycle.registry.FRESH_SECONDS", 0.0)
    add_mb(five, "tiny")
    machine.sizes["tiny"] = 1
    threads = Threads(Settings.from_env({}))
    models = limited(five, OWN + 40, threads.loaders)
    settled(lambda: models.use(ModelRef("a"), PATIENT), NEVER)  # stays in use
    waiting = []
    for name in "bcde":
        measured(models, name, 30, 30)
        with pytest.raises(Pending) as pending:
            models.use(ModelRef(name), PATIENT)
        waiting.append(pending.value.future)
    while not all("memory" in version.reason for version in models.known() if version.name in "bcde"):
        threading.Event().wait(0.01)
    with settled(lambda: models.use(ModelRef("tiny"), PATIENT), within(50)) as tiny:
        assert tiny.spec.name == "tiny"
    assert not any(future.done() for future in waiting)
    threads.close()
    for version in models.known():
        if version.name == "a" and version.loaded is not None:
            version.loaded.__exit__()
    for future in waiting:
        future.exception(60)
    models.close()


def test_no_more_models_are_fetched_at_the_same_time_than_before(
    five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for memory have threads of their own; the network and the disk do not have more to do."""
    together, most, meet = [], [0], threading.Barrier(loading.AT_ONCE, timeout=60)
    fetch = DirectoryStore.fetch

    def counted(*given: Any) -> Any:
        together.append(None)
        most[0] = max(most[0], len(together))
        meet.wait()
        together.pop()
        return fetch(*given)

    monkeypatch.setattr(DirectoryStore, "fetch", counted)
    for number in range(8):
        add_mb(five, f"m{number}")
        machine.sizes[f"m{number}"] = 0
    threads = Threads(Settings.from_env({}))
    models = registry(five, threads.loaders, MEMORY_LIMIT="0")
    loads = []
    for number in range(8):
        with pytest.raises(Pending) as pending:
            models.load(f"m{number}", PATIENT)
        loads.append(pending.value.future)
    assert [future.result(60) for future in loads] == [True] * 8
    assert most[0] == loading.AT_ONCE
    threads.close()
    models.close()
