"""handler.lifecycle.versions: threads that use, load, evict and replace one version at the same time."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import Status
from tests.handler.lifecycle.samples import PATIENT, M, get, registry
from tests.handler.lifecycle.versions.one_version import loads, new

USERS = 4
USES = 400
EVICTIONS = 500


@pytest.fixture
def _hasty() -> Iterator[None]:
    """Lets threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Looked(list[None]):
    """Uses of a model. When they are counted first, something else happens; there are none."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens: Callable[[], None] | None = happens

    def __len__(self) -> int:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return super().__len__()


@pytest.mark.parametrize("event", ["replace", "unload"])
def test_a_version_that_another_thread_takes_out_of_memory_first_is_not_evicted(event: str) -> None:
    """It may be replaced or unloaded between the look at its uses and the eviction, and then stays so."""
    version = new()
    version.obtain(loads)
    assert version.loaded is not None
    version.loaded.uses = Looked(getattr(version, event))
    assert not version.evict()
    assert version.loaded is None
    assert version.status is {"replace": Status.REPLACED, "unload": Status.UNLOADED}[event]
    version.obtain(loads)
    assert version.evict()


def test_what_is_in_use_is_not_unloaded_for_others(root: Path) -> None:
    """A version that was never loaded, or is being loaded, is not evicted either."""
    models = registry(root)
    (version,) = models._catalog.model("m", NEVER).versions.values()
    assert not version.evict()
    with models.use(M, PATIENT), models.use(M, PATIENT).again():
        assert not version.evict()
    with models.use(M, PATIENT):
        pass
    version.loaded.__exit__()  # type: ignore[union-attr] # the use that `again` was begun from
    assert version._lock.acquire()
    assert not version.evict()
    version._lock.release()
    assert version.evict()
    assert version.use() is None


def test_a_use_that_begins_while_the_model_is_taken_away_is_none(root: Path) -> None:
    """Each of the two sees the other half-way, and the eviction never takes a model in use."""
    models = registry(root)
    get(models)
    (version,) = models.known()
    loaded = version.loaded
    assert loaded is not None
    taken: list[Any] = []

    class Taking(list[None]):
        def append(self, _: None) -> None:
            super().append(None)
            version.loaded = taken.pop() if taken else None

    loaded.uses = Taking()
    assert version.use() is None
    assert not loaded.in_use()
    version.loaded = loaded

    class Late(list[None]):
        looks = 0

        def __len__(self) -> int:
            self.looks += 1
            return self.looks - 1  # it is used from the second look on

    loaded.uses = Late()
    assert not version.evict()
    assert version.loaded is loaded


@pytest.mark.usefixtures("_hasty")
def test_no_thread_gets_a_model_that_was_taken_away_and_no_use_is_lost() -> None:
    """While a thread uses the model, it is there; when all have ended, none is in use."""
    version, every, done, failed = new(), [], threading.Event(), threading.Event()

    def load(*arguments: Any) -> Loaded:
        every.append(loads(*arguments))
        return every[-1]

    def user() -> int:
        used = 0
        while used < USES or not (done.is_set() or failed.is_set()):
            loaded = version.use()
            if loaded is None:
                version.obtain(load)
                continue
            with loaded as model, loaded.again() as same:
                assert same is model
                assert model.is_there  # type: ignore[attr-defined]
                used += 1
                assert model.is_there  # type: ignore[attr-defined]
            time.sleep(0)
        return used

    def evictor() -> None:
        evicted = 0
        while evicted < EVICTIONS and not failed.is_set():
            loaded = version.loaded
            if loaded is not None and version.evict():
                loaded.model.is_there = False  # type: ignore[attr-defined]
                evicted += 1
        done.set()

    with ThreadPoolExecutor(USERS + 1) as crowd:
        evicting = crowd.submit(evictor)
        using = [crowd.submit(user) for _ in range(USERS)]
        try:
            assert all(each.result(60) >= USES for each in using)
        finally:
            failed.set()
        evicting.result(60)
    assert len(every) >= EVICTIONS
    assert not any(loaded.in_use() for loaded in every)
    assert sum(loaded is version.loaded for loaded in every) == (version.status is Status.READY)


@pytest.mark.usefixtures("_hasty")
def test_threads_that_change_a_version_at_the_same_time_do_not_break_its_states() -> None:
    """Whatever the order, no event occurs in a status that cannot have it, and the model and the status agree."""
    version = new()

    def obtain() -> None:
        version.obtain(loads)

    def repeat(work: Callable[[], object]) -> None:
        for _ in range(USES):
            work()

    for _ in range(4):
        with ThreadPoolExecutor(6) as crowd:
            works = (obtain, obtain, version.evict, version.evict, version.replace, version.unload)
            for ended in [crowd.submit(repeat, work) for work in works]:
                ended.result(60)
        assert (version.loaded is not None) == (version.status is Status.READY)
