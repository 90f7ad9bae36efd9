"""One version by itself, and models that are only names."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.errors import ServingError
from core.operations import ModelSpec
from handler.lifecycle.repository import Listing, Version
from handler.lifecycle.usage import Loaded, MemoryGate, Traffic
from handler.lifecycle.versions import ServedVersion
from handler.stores import Folder


def listing(settings: bytes | None = None) -> Listing:
    """Returns version 7 of model `m`, without files."""
    return Listing("m", (Version(7, "7", ()),), settings)


def new() -> ServedVersion:
    """Returns that version as it is before it is loaded."""
    found = listing()
    return ServedVersion(found, found.versions[0], Traffic())


def loads(version: ServedVersion, *_: Any) -> Loaded:
    """Loads a model that does nothing."""
    model: Any = SimpleNamespace(spec=ModelSpec("m", "7", "fake", None, None), steady=True, is_there=True)
    return Loaded(model, Folder(Path()), MemoryGate(), version.traffic, version.pace)


def raises(error: ServingError | Exception) -> Callable[..., Loaded]:
    """Returns a load that fails with this error."""

    def load(*_: Any) -> Loaded:
        raise error

    return load
