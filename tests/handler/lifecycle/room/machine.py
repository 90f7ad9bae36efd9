"""A stand-in for the kernel's count of bytes, and models of known sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from core.deadline import NEVER
from core.operations import ModelRef, ModelSpec, State
from handler.lifecycle.room.budget import Footprint
from tests.handler.lifecycle.samples import PATIENT, registry

if TYPE_CHECKING:
    from pathlib import Path

    from handler.lifecycle.registry import Registry
    from handler.lifecycle.room.budget import Budget
    from handler.settings import Settings

MB: Final = 10**6
OWN: Final = 100
"""The MB of the process itself."""


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
    """The resident memory, in MB. `sizes`: by model name; `peaks`: the additional MB while a model is loaded.

    `bursts`: the MB that requests take during the first load of a model, and keep.
    """

    def __init__(self) -> None:
        self.used = OWN
        self.most = 0
        self.sizes: dict[str, int] = {}
        self.peaks: dict[str, int] = {}
        self.bursts: dict[str, int] = {}
        self.loaded: list[str] = []

    def load(self, source: Any, _: Settings) -> Model:
        """Loads a model as a backend does."""
        self.loaded.append(source.name)
        size = self.sizes[source.name]
        self.used += self.bursts.pop(source.name, 0)
        self.most = max(self.most, self.used + size + self.peaks.get(source.name, 0))
        return Model(self, ModelSpec(source.name, source.version, "fake", None, None), size)


def add_mb(root: Path, model: str, version: str = "1", size: int = 0) -> None:
    """Adds a version whose file has that many MB."""
    file = root / model / version / "model.onnx"
    file.parent.mkdir(parents=True)
    with file.open("wb") as content:
        content.truncate(size * MB)


def limited(root: Path, limit: int, executor: Any = None, **settings: str) -> Registry:
    """Returns a registry with a limit in MB."""
    return registry(root, executor, MEMORY_LIMIT=f"{limit}MB", **settings)


def budget_of(models: Registry) -> Budget | None:
    """Returns the budget that keeps a registry's limit."""
    return models._budget


def measured(models: Registry, name: str, peak: int, cost: int) -> None:
    """Lets a model count as loaded before, with a peak and a cost in MB."""
    kept = budget_of(models)
    assert kept is not None
    for version in models._catalog.model(name, NEVER).versions.values():
        kept._footprints[version] = Footprint(peak * MB, cost * MB)


def in_memory(models: Registry) -> list[str]:
    """Returns the names of the models that are loaded."""
    return [entry.name for entry in models.index(PATIENT) if entry.state is State.READY]


def use(models: Registry, *names: str) -> None:
    """Sends one request to each of the models."""
    for name in names:
        with models.use(ModelRef(name), PATIENT):
            pass


def use_measured(models: Registry, context: Any = PATIENT) -> None:
    """Asks for `b`, whose 30 MB are known."""
    measured(models, "b", 30, 30)
    models.use(ModelRef("b"), context)
