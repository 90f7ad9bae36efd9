"""handler.lifecycle.loading: the memory that a load takes, and when a load is not begun."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler import backends
from handler.lifecycle import loading
from handler.lifecycle.repository import Version
from handler.stores import File, Forbidden
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.room.machine import MB, OWN, Machine, add_mb, budget_of, in_memory, limited, use
from tests.handler.lifecycle.samples import ONNX, PATIENT, M, get, registry, say


def test_a_model_that_can_never_fit_is_not_even_fetched(
    five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listing, or its last load, shows its size."""
    add_mb(five, "big", size=150)
    fetched: list[str] = []
    fetch = DirectoryStore.fetch

    def watched(self: Any, model: str, *rest: Any) -> Any:
        fetched.append(model)
        return fetch(self, model, *rest)

    monkeypatch.setattr(DirectoryStore, "fetch", watched)
    models = limited(five, OWN + 100)
    machine.sizes["e"] = 150
    for name in ("big", "e", "e"):
        with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
            models.load(name, PATIENT)
    assert fetched == machine.loaded == ["e"]


def test_sizes_that_the_store_does_not_tell_are_looked_up_when_the_files_are_here(
    five: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not permit listing does not report sizes."""
    add_mb(five, "big", size=150)

    def forbidden(*_: Any) -> Any:
        raise Forbidden

    monkeypatch.setattr(DirectoryStore, "files", forbidden)
    with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
        limited(five, OWN + 100).use(ModelRef("big", "1"), PATIENT)
    assert machine.loaded == []


def test_a_runtime_that_is_missing_is_its_loader_s_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing a missing or an unknown runtime does not raise an error."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for files in ({"model.onnx"}, {"model.py"}, {"weights.bin"}):
        backends.prepare(files)


def test_onnx_models_are_measured_as_they_are(tmp_path: Path) -> None:
    """A real model costs at least its file, and its peak is not below that."""
    for name in ("m", "n"):
        (tmp_path / name / "1").mkdir(parents=True)
        shutil.copy(ONNX, tmp_path / name / "1" / "model.onnx")
    models = limited(tmp_path, 10**6)
    use(models, "m", "n")
    kept = budget_of(models)
    assert kept is not None
    sizes = [kept._footprints.get(version) for version in models.known()]
    assert all(size is not None and ONNX.stat().st_size <= size.cost <= size.peak < 200 * MB for size in sizes)


def test_the_weights_beside_an_onnx_model_count_as_it_does() -> None:
    """They are mapped at first, and in memory later; words and labels are not."""
    sizes = {"model.onnx": 10, "model.onnx.data": 100, "labels.txt": 1000}
    version = Version(1, "1", tuple(File(f"1/{name}", size) for name, size in sizes.items()))
    found = loading.footprint(version)
    assert (found.cost, found.peak - 2 * loading.SESSION) == (110, 2 * 110 + 1000)


def test_a_model_whose_file_is_larger_than_what_is_left_is_not_even_tried(five: Path, machine: Machine) -> None:
    """An ONNX model takes at least as much as its file, and the others stay in memory."""
    add_mb(five, "big", size=150)
    models = limited(five, OWN + 100)
    use(models, "a")
    with pytest.raises(ModelNotLoadable, match="needs 150 MB; at most 100 MB fit beside the server itself"):
        models.use(ModelRef("big"), PATIENT)
    assert machine.loaded == ["a"]
    assert in_memory(models) == ["a"]


def test_a_model_is_warm_before_it_is_ready(root: Path) -> None:
    """It has answered the requests that its settings ask for."""
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
