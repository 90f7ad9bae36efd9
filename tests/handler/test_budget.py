"""handler.lifecycle.budget and loading: what is unloaded for what, on a stand-in for the kernel's count of bytes."""

from __future__ import annotations

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from handler.deadlines import Patience

from core.errors import ModelFailed, ModelNotLoadable, ServerBusy
from core.operations import ModelRef, ModelSpec, State
from handler import backends
from handler.lifecycle import budget, memory
from handler.lifecycle.registry import Pending, Registry
from handler.lifecycle.versions import EVICTED
from handler.settings import Settings
from handler.stores import Forbidden
from handler.stores.directory import DirectoryStore

ONNX = Path(__file__).parents[2] / "models" / "half_plus_three" / "123" / "model.onnx"
MB = 10**6
OWN = 100
"""MB of the process itself."""


class Model:
    """A model that takes so many MB for as long as it lives, and more while it is loaded."""

    steady = True
    explain = stream = http = None

    def __init__(self, machine: Machine, spec: Any, size: int) -> None:
        self.spec = spec
        self._machine = machine
        self._size = size
        machine.used += size

    def __del__(self) -> None:
        self._machine.used -= self._size


class Machine:
    """What is resident, in MB. `sizes`: of the models by name; `peaks`: beyond that while they are loaded."""

    def __init__(self) -> None:
        self.used = OWN
        self.most = 0
        self.sizes: dict[str, int] = {}
        self.peaks: dict[str, int] = {}
        self.loaded: list[str] = []

    def load(self, source: Any, _: Settings) -> Model:
        """As a backend does."""
        self.loaded.append(source.name)
        size = self.sizes[source.name]
        self.most = max(self.most, self.used + size + self.peaks.get(source.name, 0))
        return Model(self, ModelSpec(source.name, source.version, "fake", None, None), size)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """In place of the kernel and of ONNX Runtime."""
    made = Machine()
    monkeypatch.setattr(memory, "resident", lambda: made.used * MB)
    monkeypatch.setattr(memory, "peak", lambda: made.most * MB)
    monkeypatch.setattr(memory, "reset_peak", lambda: setattr(made, "most", made.used))
    monkeypatch.setattr(backends, "choose", lambda *_: made.load)
    monkeypatch.setattr(budget, "ROOM_SECONDS", 0.2)
    monkeypatch.setattr(budget, "LOOK_SECONDS", 0.01)
    return made


def add(root: Path, model: str, version: str = "1", size: int = 0) -> None:
    """A version whose files have so many MB."""
    file = root / model / version / "model.onnx"
    file.parent.mkdir(parents=True)
    with file.open("wb") as content:
        content.truncate(size * MB)


def registry(root: Path, limit: int, executor: Any = None, **settings: str) -> Registry:
    """With a limit in MB."""
    named = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    environ = {"DRAGOMAN_REPOSITORY": str(root), "DRAGOMAN_MEMORY_LIMIT": f"{limit}MB", **named}
    return Registry(Settings.from_env(environ), executor)


def in_memory(models: Registry) -> list[str]:
    """Names of what is loaded."""
    return [entry.name for entry in models.index() if entry.state is State.READY]


@pytest.fixture
def root(tmp_path: Path, machine: Machine) -> Path:
    """Models a to e of 30 MB each."""
    for name in "abcde":
        add(tmp_path, name)
        machine.sizes[name] = 30
    return tmp_path


def use(models: Registry, *names: str) -> None:
    """One request each."""
    for name in names:
        with models.use(ModelRef(name)):
            pass


def test_the_least_recently_used_is_unloaded_first(root: Path, machine: Machine) -> None:
    """As many as it takes, and what was unloaded is loaded when it is needed."""
    models = registry(root, OWN + 100)
    use(models, "a", "b", "c", "a", "d")
    assert in_memory(models) == ["a", "c", "d"]
    assert models.readiness(ModelRef("b")) == (False, State.UNAVAILABLE, EVICTED)
    use(models, "b")
    assert in_memory(models) == ["a", "b", "d"]
    machine.sizes["e"] = 90
    use(models, "e")
    assert in_memory(models) == ["e"]
    assert machine.loaded == ["a", "b", "c", "d", "b", "e"]


def test_without_a_limit_nothing_is_unloaded(root: Path) -> None:
    """And nothing is measured."""
    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root), "DRAGOMAN_MEMORY_LIMIT": "0"}))
    use(models, *"abcde")
    assert in_memory(models) == [*"abcde"]
    assert all(slot.footprint is None for slot in models.known())


def test_where_nobody_tells_what_is_resident_there_is_no_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which the log says once."""
    monkeypatch.setattr(memory, "resident", lambda: None)
    models = registry(root, 1)
    use(models, *"abc")
    assert caplog.text.count("DRAGOMAN_MEMORY_LIMIT is not kept") == 1


def test_a_model_that_takes_too_much_is_refused_with_the_numbers(root: Path, machine: Machine) -> None:
    """At the first load after it, at later ones before it; what is loaded stays."""
    add(root, "big")
    machine.sizes["big"] = 150
    models = registry(root, OWN + 100)
    use(models, "a")
    for _ in range(3):
        with pytest.raises(ModelNotLoadable) as refusal:
            models.use(ModelRef("big"))
        assert refusal.value.message == (
            "model 'big' version 1 needs 150 MB; at most 100 MB fit beside the server itself "
            "(DRAGOMAN_MEMORY_LIMIT 200 MB)"
        )
    with pytest.raises(ModelNotLoadable):
        models.load("big")  # whatever failed before
    assert machine.loaded == ["a", "big"]
    assert machine.used == OWN
    use(models, "a", "b")
    assert in_memory(models) == ["a", "b"]


def test_a_model_whose_file_is_larger_than_what_is_left_is_not_even_tried(root: Path, machine: Machine) -> None:
    """An ONNX model takes as much as its file at least."""
    add(root, "big", size=150)
    models = registry(root, OWN + 100)
    use(models, "a")
    with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
        models.use(ModelRef("big"))
    assert machine.loaded == ["a"]
    assert in_memory(models) == ["a"]


def test_a_model_that_can_never_fit_is_not_even_fetched(
    root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its listing tells, or the last time that it was loaded."""
    add(root, "big", size=150)
    fetched: list[str] = []
    fetch = DirectoryStore.fetch

    def watched(self: Any, model: str, *rest: Any) -> Any:
        fetched.append(model)
        return fetch(self, model, *rest)

    monkeypatch.setattr(DirectoryStore, "fetch", watched)
    models = registry(root, OWN + 100)
    machine.sizes["e"] = 150
    for name in ("big", "e", "e"):
        with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
            models.load(name)
    assert fetched == machine.loaded == ["e"]


def test_sizes_that_the_store_does_not_tell_are_looked_up_when_the_files_are_here(
    root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it may not be listed."""
    add(root, "big", size=150)

    def forbidden(*_: Any) -> Any:
        raise Forbidden

    monkeypatch.setattr(DirectoryStore, "files", forbidden)
    with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
        registry(root, OWN + 100).use(ModelRef("big", "1"))
    assert machine.loaded == []


def test_there_is_room_for_the_peak_of_a_load(root: Path, machine: Machine) -> None:
    """Twice its file at first, then what was measured."""
    add(root, "twice", size=30)
    machine.sizes["twice"], machine.peaks["twice"] = 30, 30
    machine.peaks["e"] = 60
    models = registry(root, OWN + 100)
    use(models, "a", "b", "twice")
    assert in_memory(models) == ["b", "twice"]
    assert machine.most <= OWN + 100
    machine.most = 0
    use(models, "e")  # nobody knows of its peak yet
    use(models, "a", "b", "c", "e")
    assert in_memory(models) == ["e"]


def test_a_guess_that_may_be_too_high_is_tried_when_nothing_is_left_to_unload(root: Path, machine: Machine) -> None:
    """Its file fits, twice its file does not; and again after it was unloaded."""
    add(root, "half", size=60)
    machine.sizes["half"] = 60
    models = registry(root, OWN + 100)
    use(models, "a", "half", "a", "b", "half")
    assert in_memory(models) == ["half"]
    assert machine.loaded == ["a", "half", "a", "b", "half"]


def test_what_is_in_use_stays_and_is_waited_for(root: Path) -> None:
    """For some time; then the client is told to come again, and the model is not to blame."""
    models = registry(root, OWN + 40)
    held = [models.use(ModelRef("a"))]
    with pytest.raises(ServerBusy, match="model 'b' needs 30 MB to load, and what is in use leaves no room") as busy:
        registry_b(models)
    assert busy.value.retry_after == 1.0
    assert in_memory(models) == ["a"]
    with pytest.raises(ServerBusy):
        models.use(ModelRef("b"))
    threading.Timer(0.05, lambda: held.pop().__exit__()).start()
    models.load("b")
    assert in_memory(models) == ["b"]


def test_a_load_waits_for_others_no_longer_than_who_asked_for_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Lambda: it must be told before its gateway gives up."""
    monkeypatch.setattr(budget, "ROOM_SECONDS", 3600.0)
    models = registry(root, OWN + 40)
    with models.use(ModelRef("a")):
        models.patience = Patience.of(0.05)
        with pytest.raises(ServerBusy):
            registry_b(models)


def test_that_others_were_in_use_is_no_reason_for_a_pause(root: Path) -> None:
    """The next request tries at once."""
    models = registry(root, OWN + 40)
    with models.use(ModelRef("a")), pytest.raises(ServerBusy):
        registry_b(models)
    use(models, "b")
    assert in_memory(models) == ["b"]


def registry_b(models: Registry) -> None:
    """A first load of `b`, to know what it takes; then one beside what is in use."""
    for slot in models._catalog.entry("b").versions.values():
        slot.footprint = budget.Footprint(30 * MB, 30 * MB)
    models.use(ModelRef("b"))


def test_a_model_that_nobody_has_used_yet_stays_for_those_who_wait_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server; where there is one request at a time nobody waits."""
    inline = registry(root, OWN + 40)
    inline.load("a")
    inline.load("b")
    assert in_memory(inline) == ["b"]
    inline.unload("b")
    monkeypatch.setattr("handler.lifecycle.registry.FRESH_SECONDS", 10.0)
    with ThreadPoolExecutor(4) as executor:
        models = registry(root, OWN + 40, executor)
        with pytest.raises(Pending) as pending:
            models.load("a")
        pending.value.future.result(10)
        for slot in models._catalog.entry("b").versions.values():
            slot.footprint = budget.Footprint(30 * MB, 30 * MB)
        with pytest.raises(Pending) as pending:
            models.use(ModelRef("b"))
        with pytest.raises(ServerBusy):
            pending.value.future.result(10)
        use(models, "a")
        with pytest.raises(Pending) as pending:
            models.load("b")
        pending.value.future.result(10)
        assert in_memory(models) == ["b"]


def test_what_is_preloaded_stays(root: Path) -> None:
    """What does not fit beside it is refused with its name."""
    models = registry(root, OWN + 70, PRELOAD="a")
    models.preload()
    use(models, "b", "c")
    assert in_memory(models) == ["a", "c"]
    for slot in models._catalog.entry("d").versions.values():
        slot.footprint = budget.Footprint(50 * MB, 50 * MB)
    with pytest.raises(ModelNotLoadable, match=r"needs 50 MB; at most 40 MB fit beside .* \(a version 1\)"):
        models.use(ModelRef("d"))
    assert in_memory(models) == ["a", "c"]
    for slot in models._catalog.entry("e").versions.values():
        slot.footprint = budget.Footprint(50 * MB, 30 * MB)
    with pytest.raises(ModelNotLoadable, match=r"needs 50 MB; at most 40 MB fit beside .* \(a version 1\)"):
        models.use(ModelRef("e"))
    assert in_memory(models) == ["a"]


def test_a_new_version_is_loaded_beside_the_one_that_serves_or_not_at_all(root: Path, machine: Machine) -> None:
    """Others go for it; if that is not enough, the old one stays."""
    models = registry(root, OWN + 70)
    use(models, "a", "b")
    add(root, "a", "2")
    models.load("a")
    assert models.get(ModelRef("a")).spec.version == "2"
    assert in_memory(models) == ["a"]
    add(root, "a", "3")
    machine.sizes["a"] = 60
    with pytest.raises(ModelNotLoadable, match=r"needs 60 MB; at most 40 MB fit beside .* \(a version 2\)"):
        models.load("a")
    assert models.get(ModelRef("a")).spec.version == "2"
    told = {entry.version: (entry.state, entry.reason[:38]) for entry in models.index() if entry.name == "a"}
    assert told == {
        "2": (State.READY, ""),
        "3": (State.UNAVAILABLE, "model 'a' version 3 needs 60 MB; at mo"),
    }


def test_a_model_that_does_not_fit_beside_what_the_server_has_become_is_not_loaded_again(
    root: Path, machine: Machine
) -> None:
    """It would have fitted beside what the server was. Once that is known, nothing is unloaded for it either."""
    models = registry(root, OWN + 100)
    use(models, "a")
    machine.used += 30  # such as the site's framework
    machine.sizes["b"] = 80
    for _ in range(2):
        with pytest.raises(ModelNotLoadable) as refusal:
            models.load("b")
        assert refusal.value.message == (
            "model 'b' version 1 needs 80 MB; at most 70 MB fit beside the server itself (DRAGOMAN_MEMORY_LIMIT 200 MB)"
        )
        use(models, "a")
    assert machine.loaded == ["a", "b", "a"]


def test_memory_that_comes_and_goes_is_no_reason_to_say_never(root: Path, machine: Machine) -> None:
    """A load that finds more in use than it left is refused as things are, and tried again when they have changed."""
    models = registry(root, OWN + 40)
    use(models, "a")
    machine.used += 30  # a large request
    with pytest.raises(ModelNotLoadable, match="needs 30 MB; at most 10 MB fit beside the server itself"):
        use(models, "b")
    machine.used -= 30
    models.load("b")
    assert in_memory(models) == ["b"]
    assert machine.loaded == ["a", "b", "b"]


def test_a_load_that_finds_memory_short_again_and_again_is_put_off(
    root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
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
        use(registry(root, OWN + 40), "a")
    assert machine.loaded == ["a"] * budget.TRIES
    assert machine.used == OWN


def test_a_load_that_fails_gives_its_turn_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one loads."""
    models = registry(root, OWN + 100)

    def broken(*_: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(backends, "choose", lambda *_: broken)
        with pytest.raises(ModelFailed):
            use(models, "a")
    use(models, "b")
    assert in_memory(models) == ["b"]


@pytest.mark.parametrize("by_call", [False, True])
def test_a_model_that_python_code_holds_in_a_cycle_is_collected(root: Path, machine: Machine, *, by_call: bool) -> None:
    """Else it would stay until the collector comes by; unloaded by call, it would count as the server's own memory."""
    models = registry(root, OWN + 40)
    use(models, "a")
    (slot,) = models.known()
    assert slot.loaded is not None
    slot.loaded.model.cycle = slot.loaded.model  # type: ignore[attr-defined] # as a module's functions hold it
    if by_call:
        models.unload("a")
    use(models, "b")
    assert machine.used == OWN + 30


@pytest.mark.parametrize(("preload", "limit"), [("", 40), ("e", 70)])
def test_what_is_unloaded_in_use_is_waited_for(root: Path, preload: str, limit: int) -> None:
    """It takes memory until the request ends, beside what has to stay, too; the model that waits is not to blame."""
    models = registry(root, OWN + limit, PRELOAD=preload)
    models.preload()
    with models.use(ModelRef("a")):
        models.unload("a")
        with pytest.raises(ServerBusy, match="model 'b' needs 30 MB to load, and what is in use leaves no room"):
            registry_b(models)
    use(models, "b")
    assert in_memory(models) == ["b", *preload]


def test_nothing_is_collected_while_what_is_unloaded_is_in_use(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every look, requests would stand still for as long as it takes."""
    models = registry(root, OWN + 40)
    with models.use(ModelRef("a")):
        models.unload("a")
        monkeypatch.setattr(budget, "gc", None)
        with pytest.raises(ServerBusy):
            registry_b(models)


def test_what_is_replaced_in_use_is_waited_for(root: Path, machine: Machine) -> None:
    """The version that took its place is idle, and unloading it is not enough."""
    models = registry(root, OWN + 70)
    machine.sizes["b"] = 60
    with models.use(ModelRef("a")):
        add(root, "a", "2")
        models.load("a")
        with pytest.raises(ServerBusy):
            models.load("b")
    use(models, "b")
    assert in_memory(models) == ["b"]


def test_what_is_unloaded_and_used_no_more_is_waited_for_until_nobody_holds_it(root: Path) -> None:
    """As a thread does that is about to let go of it."""
    models = registry(root, OWN + 40)
    held = models.use(ModelRef("a"))
    models.unload("a")
    held.__exit__()
    with pytest.raises(ServerBusy):
        models.load("b")
    del held
    use(models, "b")
    assert in_memory(models) == ["b"]


def test_what_a_last_user_still_holds_is_waited_for(root: Path, machine: Machine) -> None:
    """A step away from letting go."""
    models = registry(root, OWN + 40)
    with models.use(ModelRef("a")) as model:
        held = [model]
        del model
    threading.Timer(0.01, held.clear).start()
    use(models, "b")
    assert machine.used == OWN + 30
    assert machine.loaded == ["a", "b"]


def test_a_runtime_that_is_missing_is_its_loader_s_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what has none of its own, and what nobody knows."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for files in ({"model.onnx"}, {"model.py"}, {"weights.bin"}):
        backends.prepare(files)


# -- the kernel and the allocator as they are --------------------------------------------------------------------------


def test_the_kernel_tells_what_is_resident_and_what_it_was_at_most() -> None:
    """A block of 64 MB that came and went."""
    before = memory.resident()
    assert before is not None
    memory.reset_peak()
    with memory.separate_blocks():
        block = bytearray(b"x") * (64 * 2**20)
    during = memory.resident()
    assert during is not None
    assert during - before > 60 * 2**20
    del block
    memory.trim()
    after = memory.resident()
    assert after is not None
    assert during - after > 60 * 2**20
    assert memory.peak() - before > 60 * 2**20


def test_where_the_kernel_or_the_allocator_is_another_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells, and nothing is given back."""
    for name in ("STATM", "STATUS", "CLEAR_REFS"):
        monkeypatch.setattr(memory, name, tmp_path / "gone" / name)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory.reset_peak()
    memory.trim()
    memory.keep_large_blocks()
    with memory.separate_blocks():
        assert memory.resident() is None
    assert memory.peak() == 0


def test_onnx_models_are_measured_as_they_are(tmp_path: Path) -> None:
    """Of a real one, in a limit that is no limit."""
    for name in ("m", "n"):
        (tmp_path / name / "1").mkdir(parents=True)
        shutil.copy(ONNX, tmp_path / name / "1" / "model.onnx")
    models = registry(tmp_path, 10**6)
    use(models, "m", "n")
    sizes = [slot.footprint for slot in models.known()]
    assert all(size is not None and ONNX.stat().st_size <= size.cost <= size.peak < 200 * MB for size in sizes)
