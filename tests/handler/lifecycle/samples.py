"""Repositories of small models, and a client that asks a registry for them."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from core.operations import ModelRef
from core.ports import Model
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

ROOT: Final = Path(__file__).parents[3]
ONNX: Final = ROOT / "models" / "half_plus_three" / "123" / "model.onnx"
M: Final = ModelRef("m")
STABLE: Final = ModelRef("m", None, "stable")
EVERY: Final = {"version_policy": {"all": {}}}
POLL: Final = 60.0
"""The seconds between two looks at a model's files, by default."""
PATIENT: Final = Background()
"""The context of a client that waits as long as necessary."""


class Clock:
    """A stand-in for time.monotonic that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def add(root: Path, model: str, version: str, content: bytes | None = None) -> Path:
    """Adds a version that works, or one whose file has this content. Returns its file."""
    file = root / model / version / "model.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        shutil.copy(ONNX, file)
    else:
        file.write_bytes(content)
    return file


def say(root: Path, **settings: Any) -> None:
    """Writes the settings of model `m`."""
    (root / "m" / "model-settings.json").write_text(json.dumps(settings))


def registry(root: Path, executor: Any = None, **settings: str) -> Registry:
    """Returns the registry of a repository. Without an executor it loads in the caller's thread, as on Lambda."""
    named = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    return Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root), **named}), executor)


def get(models: Registry, ref: ModelRef = M) -> Model:
    """Returns the model that answers, and ends its use."""
    with models.use(ref, PATIENT) as model:
        return model


def served(models: Registry, ref: ModelRef = M) -> str:
    """Returns the number of the version that answers."""
    return get(models, ref).spec.version


def states(models: Registry) -> dict[str, tuple[str, str]]:
    """Returns state and reason of each version in the index."""
    return {entry.version: (str(entry.state), entry.reason) for entry in models.index(PATIENT)}


def listed(models: Registry) -> list[tuple[str, str, str, str]]:
    """Returns the index as plain text."""
    return [(entry.name, entry.version, str(entry.state), entry.reason) for entry in models.index(PATIENT)]


def record(models: Registry, ref: ModelRef, durations: tuple[int, ...], size: int, *, success: bool) -> None:
    """Counts an inference of a model that is loaded, as its job does."""
    with (held := models.use(ref, PATIENT)):
        held.record(durations, size, success=success)
