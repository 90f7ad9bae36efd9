"""handler.lifecycle.loading: loads that take long in their runtime, and may never end."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER, within
from core.errors import ServerBusy
from core.operations import ModelRef
from handler import backends
from handler.edge.dispatch.threads import LOADERS, Threads
from handler.lifecycle import loading
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Load, Pending, settled
from handler.settings import Settings
from tests.handler.lifecycle.room.machine import MB, OWN, Machine, add_mb, budget_of, measured
from tests.handler.lifecycle.samples import PATIENT, registry

Hang = Callable[..., list[Load]]
LIMITS = ("0", f"{OWN + 200}MB")


@pytest.fixture
def gate(five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets models load whose names end with `hangs`."""
    opened = threading.Event()

    def load(source: Any, settings: Settings) -> Any:
        if source.name.endswith("hangs"):
            assert opened.wait(60)
        return machine.load(source, settings)

    monkeypatch.setattr(backends, "choose", lambda *_: load)
    for number in range(20):
        add_mb(five, f"{number}hangs")
        machine.sizes[f"{number}hangs"] = 1
    return opened


@pytest.fixture
def served(five: Path, gate: threading.Event) -> Iterator[Callable[[str], Registry]]:
    """Makes a registry with a limit of memory, whose loads have a server's threads."""
    threads, made = Threads(Settings.from_env({})), []

    def make(limit: str) -> Registry:
        made.append(registry(five, threads.loaders, MEMORY_LIMIT=limit))
        return made[-1]

    yield make
    gate.set()
    threads.close()
    for models in made:
        models.close()


def begin(models: Registry, name: str) -> Load:
    """Starts a model's load."""
    with pytest.raises(Pending) as pending:
        models.use(ModelRef(name), PATIENT)
    return pending.value.load


def reserved(models: Registry) -> int:
    """Returns the bytes that long loads may yet take."""
    kept = budget_of(models)
    assert kept is not None
    return sum(kept._reserved.values())


def in_runtime(models: Registry, name: str) -> bool:
    """Decides whether a model's load is in its runtime."""
    return any(each.name == name and each.progress is not None and each.progress.load_ns for each in models.known())


def until(is_so: Callable[[], bool]) -> None:
    """Waits for an event."""
    while not is_so():
        threading.Event().wait(0.01)


def get(models: Registry, name: str) -> str:
    """Returns the name of the model that answers."""
    with settled(lambda: models.use(ModelRef(name), PATIENT), within(50)) as model:
        return model.spec.name


@pytest.mark.parametrize("limit", LIMITS)
def test_models_whose_loads_do_not_end_do_not_keep_others_from_loading(
    served: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gate: threading.Event, limit: str
) -> None:
    """There are more of them than loads at the same time. The log names each, and they are loaded at last."""
    monkeypatch.setattr(loading, "LONG_SECONDS", 0.02)
    models = served(limit)
    names = [f"{number}hangs" for number in range(20)]
    loads = [begin(models, name) for name in names]
    assert get(models, "a") == "a"
    assert not any(load.future.done() for load in loads)
    assert len(loads) < LOADERS
    until(lambda: caplog.text.count("has been loading in its runtime for 0.02 s") == len(loads))
    assert "model 0hangs version 1 has been loading in its runtime for 0.02 s" in caplog.text
    gate.set()
    assert [get(models, name) for name in names] == names


@pytest.mark.parametrize("limit", LIMITS)
def test_a_load_that_waits_for_others_is_reported_as_such(
    served: Any, monkeypatch: pytest.MonkeyPatch, gate: threading.Event, limit: str
) -> None:
    """Its request's refusal and its state name the loads of other models, until these have ended."""
    monkeypatch.setattr(loading, "LONG_SECONDS", 60.0)
    models = served(limit)
    names = [f"{number}hangs" for number in range(loading.AT_ONCE)]
    others = [begin(models, name) for name in names]
    at_once = len(names) if limit == "0" else 1
    until(lambda: sum(in_runtime(models, name) for name in names) == at_once)
    load = begin(models, "a")
    until(lambda: load.version is not None and load.version.reason == "waiting for the loads of other models")
    assert load.unfinished().message == "model 'a' waits for the loads of other models: try again"
    gate.set()
    assert [each.future.exception(60) for each in (*others, load)] == [None] * (len(others) + 1)
    assert load.version is not None
    assert load.version.reason == ""


def test_memory_that_a_long_load_may_yet_take_is_not_another_models(
    served: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    """What fits beside it is loaded, and does not count as taken by the long load."""
    monkeypatch.setattr(loading, "LONG_SECONDS", 0.02)
    machine.sizes |= {"0hangs": 60, "b": 50}
    models = served(f"{OWN + 100}MB")
    measured(models, "0hangs", 60, 60)
    measured(models, "b", 50, 50)
    load = begin(models, "0hangs")
    until(lambda: reserved(models) == 60 * MB)
    with pytest.raises(ServerBusy, match="model 'b' needs 50 MB to load, and what is in use leaves no room"):
        settled(lambda: models.use(ModelRef("b"), PATIENT), NEVER)
    assert get(models, "a") == "a"
    gate.set()
    assert load.future.exception(60) is None
    costs = {version.name: kept.cost(version) for version in models.known() if (kept := budget_of(models)) is not None}
    assert (costs["a"], costs["0hangs"], reserved(models)) == (30 * MB, 60 * MB, 0)
