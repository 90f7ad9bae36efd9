"""handler.lifecycle.room.budget: which models are evicted for another one."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelFailed, ModelNotLoadable
from core.operations import ModelRef, State
from handler import backends
from handler.lifecycle.room import memory
from handler.lifecycle.versions import REASONS, Status
from tests.handler.lifecycle.room.machine import OWN, Machine, add_mb, budget_of, in_memory, limited, measured, use
from tests.handler.lifecycle.samples import PATIENT, registry, served


def test_the_least_recently_used_is_unloaded_first(five: Path, machine: Machine) -> None:
    """As few models as possible are evicted, and an evicted model is loaded when it is needed."""
    models = limited(five, OWN + 100)
    use(models, "a", "b", "c", "a", "d")
    assert in_memory(models) == ["a", "c", "d"]
    assert models.readiness(ModelRef("b"), PATIENT) == (False, State.UNAVAILABLE, REASONS[Status.EVICTED], None)
    use(models, "b")
    assert in_memory(models) == ["a", "b", "d"]
    machine.sizes["e"] = 90
    use(models, "e")
    assert in_memory(models) == ["e"]
    assert machine.loaded == ["a", "b", "c", "d", "b", "e"]


def test_without_a_limit_nothing_is_unloaded(five: Path) -> None:
    """Nothing is measured either."""
    models = registry(five, MEMORY_LIMIT="0")
    use(models, *"abcde")
    assert in_memory(models) == [*"abcde"]
    assert budget_of(models) is None


def test_where_nobody_tells_what_is_resident_there_is_no_limit(
    five: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once."""
    monkeypatch.setattr(memory, "resident", lambda: None)
    models = limited(five, 1)
    use(models, *"abc")
    assert caplog.text.count("DRAGOMAN_MEMORY_LIMIT is not enforced") == 1


def test_a_model_that_takes_too_much_is_refused_with_the_numbers(five: Path, machine: Machine) -> None:
    """The first load is measured, later ones are refused before they begin, and the other models stay."""
    add_mb(five, "big")
    machine.sizes["big"] = 150
    models = limited(five, OWN + 100)
    use(models, "a")
    for _ in range(3):
        with pytest.raises(ModelNotLoadable) as refusal:
            models.use(ModelRef("big"), PATIENT)
        assert refusal.value.message == (
            "model 'big' version 1 needs 150 MB; at most 100 MB fit beside the server itself "
            "(DRAGOMAN_MEMORY_LIMIT 200 MB)"
        )
    with pytest.raises(ModelNotLoadable):
        models.load("big", PATIENT)  # this ignores earlier failures
    assert machine.loaded == ["a", "big"]
    assert machine.used == OWN
    use(models, "a", "b")
    assert in_memory(models) == ["a", "b"]


def test_a_limit_below_the_server_itself_is_named_as_the_cause(five: Path, machine: Machine) -> None:
    """The size of the model does not matter then."""
    models = limited(five, OWN - 10)
    with pytest.raises(ModelNotLoadable) as refusal:
        models.use(ModelRef("a"), PATIENT)
    assert refusal.value.message == (
        f"model 'a' has no room: the server itself uses {OWN} MB, and DRAGOMAN_MEMORY_LIMIT is {OWN - 10} MB: raise it"
    )
    assert machine.loaded == []


def test_there_is_room_for_the_peak_of_a_load(five: Path, machine: Machine) -> None:
    """The peak is estimated as twice the file at first, and is the measured one later."""
    add_mb(five, "twice", size=30)
    machine.sizes["twice"], machine.peaks["twice"] = 30, 30
    machine.peaks["e"] = 60
    models = limited(five, OWN + 100)
    use(models, "a", "b", "twice")
    assert in_memory(models) == ["b", "twice"]
    assert machine.most <= OWN + 100
    machine.most = 0
    use(models, "e")  # its peak is not known yet
    use(models, "a", "b", "c", "e")
    assert in_memory(models) == ["e"]


def test_a_guess_that_may_be_too_high_is_tried_when_nothing_is_left_to_unload(five: Path, machine: Machine) -> None:
    """The file fits and twice the file does not: the load is tried after every eviction."""
    add_mb(five, "half", size=60)
    machine.sizes["half"] = 60
    models = limited(five, OWN + 100)
    use(models, "a", "half", "a", "b", "half")
    assert in_memory(models) == ["half"]
    assert machine.loaded == ["a", "half", "a", "b", "half"]


def test_what_is_preloaded_stays(five: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A model that does not fit beside it is refused. The log names what stays, and the refusal does not."""
    models = limited(five, OWN + 70, PRELOAD="a")
    models.preload(PATIENT)
    use(models, "b", "c")
    assert in_memory(models) == ["a", "c"]
    measured(models, "d", 50, 50)
    with pytest.raises(
        ModelNotLoadable,
        match=r"needs 50 MB; at most 40 MB fit beside the server itself and 1 other version that must stay",
    ):
        models.use(ModelRef("d"), PATIENT)
    assert "d has no room beside what has to stay: a version 1" in caplog.messages
    assert in_memory(models) == ["a", "c"]


def test_a_guess_that_may_be_too_high_is_tried_beside_what_is_preloaded(five: Path, machine: Machine) -> None:
    """Its cost decides. A peak that was too high is tried; what takes too much goes again, and the preloaded stays."""
    add_mb(five, "half", size=30)
    machine.sizes["half"] = 30
    models = limited(five, OWN + 70, PRELOAD="a")
    models.preload(PATIENT)
    use(models, "b", "half")
    assert in_memory(models) == ["a", "half"]
    measured(models, "c", 50, 30)
    use(models, "c")
    assert in_memory(models) == ["a", "c"]
    measured(models, "e", 50, 30)
    machine.sizes["e"] = 41
    for _ in range(2):
        with pytest.raises(ModelNotLoadable, match="needs 41 MB; at most 40 MB fit beside the server itself and 1 oth"):
            models.load("e", PATIENT)
        assert in_memory(models) == ["a"]
    assert machine.loaded == ["a", "b", "half", "c", "e"]


def test_a_new_version_is_loaded_beside_the_one_that_serves_or_not_at_all(five: Path, machine: Machine) -> None:
    """Other models are evicted for it; if that is not enough, the old version stays."""
    models = limited(five, OWN + 70)
    use(models, "a", "b")
    add_mb(five, "a", "2")
    models.load("a", PATIENT)
    assert served(models, ModelRef("a")) == "2"
    assert in_memory(models) == ["a"]
    add_mb(five, "a", "3")
    machine.sizes["a"] = 60
    with pytest.raises(
        ModelNotLoadable,
        match=r"needs 60 MB; at most 40 MB fit beside the server itself and 1 other version that must stay",
    ):
        models.load("a", PATIENT)
    assert served(models, ModelRef("a")) == "2"
    told = {entry.version: (entry.state, entry.reason[:38]) for entry in models.index(PATIENT) if entry.name == "a"}
    assert told == {"2": (State.READY, ""), "3": (State.UNAVAILABLE, "model 'a' version 3 needs 60 MB; at mo")}


def test_a_model_that_does_not_fit_beside_what_the_server_has_become_is_not_loaded_again(
    five: Path, machine: Machine
) -> None:
    """It fitted beside the server as it was, and later no model is evicted for it in vain."""
    models = limited(five, OWN + 100)
    use(models, "a")
    machine.used += 30  # such as the site's framework
    machine.sizes["b"] = 80
    for _ in range(2):
        with pytest.raises(ModelNotLoadable) as refusal:
            models.load("b", PATIENT)
        assert refusal.value.message == (
            "model 'b' version 1 needs 80 MB; at most 70 MB fit beside the server itself (DRAGOMAN_MEMORY_LIMIT 200 MB)"
        )
        use(models, "a")
    assert machine.loaded == ["a", "b", "a"]


def test_memory_that_comes_and_goes_is_no_reason_to_say_never(five: Path, machine: Machine) -> None:
    """A load that finds too little memory is refused, and tried again when there is more."""
    models = limited(five, OWN + 40)
    use(models, "a")
    machine.used += 30  # a large request
    with pytest.raises(ModelNotLoadable, match="needs 30 MB; at most 10 MB fit beside the server itself"):
        use(models, "b")
    machine.used -= 30
    models.load("b", PATIENT)
    assert in_memory(models) == ["b"]
    assert machine.loaded == ["a", "b", "b"]


def test_memory_of_requests_during_a_load_does_not_count_as_the_models(five: Path, machine: Machine) -> None:
    """A model that counted for it would never be loaded again."""
    models = limited(five, OWN + 80)
    machine.bursts["a"] = 60
    with pytest.raises(ModelNotLoadable, match="needs 30 MB; at most 20 MB fit beside the server itself"):
        use(models, "a")
    machine.used -= 60
    models.load("a", PATIENT)
    assert in_memory(models) == ["a"]
    assert machine.loaded == ["a", "a"]


def test_a_load_that_fails_gives_its_turn_back(five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next load begins."""
    models = limited(five, OWN + 100)

    def broken(*_: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(backends, "choose", lambda *_: broken)
        with pytest.raises(ModelFailed):
            use(models, "a")
    use(models, "b")
    assert in_memory(models) == ["b"]


@pytest.mark.parametrize("by_call", [False, True])
def test_a_model_that_python_code_holds_in_a_cycle_is_collected(five: Path, machine: Machine, *, by_call: bool) -> None:
    """Its memory is free at once, after an eviction and after an unload."""
    models = limited(five, OWN + 40)
    use(models, "a")
    (version,) = models.known()
    assert version.loaded is not None
    version.loaded.model.cycle = version.loaded.model  # type: ignore[attr-defined] # as a module's functions hold it
    if by_call:
        models.unload("a", PATIENT)
    use(models, "b")
    assert machine.used == OWN + 30
