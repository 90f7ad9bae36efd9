"""handler.lifecycle.room.disk: models are evicted where DRAGOMAN_CACHE has no room for another one's files."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.stores import cache
from tests.handler.lifecycle.room.machine import MB, Machine, in_memory, use
from tests.handler.lifecycle.samples import ONNX, PATIENT
from tests.handler.lifecycle.test_pipelines import CHAIN
from tests.support.s3_stand_in import StandIn

DISK = 9 * MB
SIZES = {"a": 3, "b": 3, "c": 3, "d": 5, "huge": 10}


def used(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def start(
    machine: Machine, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Registry]:
    """Starts a server whose cache lies on a small disk, without a limit of memory."""
    machine.sizes = dict.fromkeys(SIZES, 1)
    for name, size in SIZES.items():
        stand_in.put(f"p/{name}/1/model.onnx", bytes(size * MB))
    folder = tmp_path / "cache"
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=DISK - used(folder)))

    def registry(**settings: str) -> Registry:
        settings = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
        return Registry(
            stand_in.settings(monkeypatch, DRAGOMAN_CACHE=str(folder), DRAGOMAN_MEMORY_LIMIT="0", **settings)
        )

    return registry


def test_the_least_recently_used_models_leave_the_disk_with_the_memory(
    start: Callable[..., Registry], machine: Machine
) -> None:
    """As few as possible are evicted, and they are fetched again when they are needed."""
    models = start()
    use(models, "a", "b", "c", "a", "d")
    assert in_memory(models) == ["a", "d"]
    use(models, "b")
    assert in_memory(models) == ["b", "d"]
    assert machine.loaded == ["a", "b", "c", "d", "b"]


def test_nothing_is_evicted_for_what_does_not_fit_on_the_disk_at_all(start: Callable[..., Registry]) -> None:
    """It would cost the clients of other models their time, and help nobody."""
    models = start()
    use(models, "a", "b")
    with pytest.raises(ModelNotLoadable, match=r"^model 'huge' has 10000000 bytes, 3000000 are free: enlarge"):
        use(models, "huge")
    assert in_memory(models) == ["a", "b"]


def test_models_in_use_and_preloaded_ones_stay(start: Callable[..., Registry]) -> None:
    """The request gets the refusal if what is left is not enough, and nothing is evicted in vain."""
    models = start(PRELOAD="b")
    models.preload(PATIENT)
    use(models, "a", "c")
    with models.use(ModelRef("a"), PATIENT), pytest.raises(ModelNotLoadable, match="enlarge DRAGOMAN_CACHE"):
        use(models, "d")
    assert in_memory(models) == ["a", "b", "c"]
    models.load("d", PATIENT)
    assert in_memory(models) == ["b", "d"]


def test_one_of_several_workers_evicts_nothing(start: Callable[..., Registry]) -> None:
    """The others may hold the same files."""
    models = start(WORKERS="2")
    use(models, "a", "b")
    with pytest.raises(ModelNotLoadable, match="enlarge DRAGOMAN_CACHE"):
        use(models, "d")
    assert in_memory(models) == ["a", "b"]


def test_an_idle_pipeline_leaves_before_the_models_of_its_steps(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the models, and so their files. After it, as few models as possible are evicted."""
    model = onnx.load_from_string(ONNX.read_bytes())
    model.doc_string = "." * MB
    for name in "mnq":
        stand_in.put(f"p/{name}/1/model.onnx", model.SerializeToString())
    stand_in.put("p/p/1/pipeline.json", json.dumps(CHAIN).encode())
    folder = tmp_path / "cache"
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=2.5 * MB - used(folder)))
    models = Registry(stand_in.settings(monkeypatch, DRAGOMAN_CACHE=str(folder), DRAGOMAN_MEMORY_LIMIT="0"))
    use(models, "p")
    assert in_memory(models) == ["m", "n", "p"]
    use(models, "q")
    assert in_memory(models) == ["n", "q"]
    use(models, "p")
    assert in_memory(models) == ["m", "n", "p"]
