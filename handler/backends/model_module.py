"""Imports the file of a Python model, as a module of its own."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Final

from core.errors import ModelNotLoadable
from handler.backends import Source

log = logging.getLogger(__name__)
LONGEST_KIND: Final = 64
OWN: Final = tuple(f"{name}{kind}" for name in ("core", "dragoman", "handler") for kind in (".py", "/__init__.py"))
"""Modules beside model.py that it cannot import: this process has others of these names."""
_CHANGING: Final = threading.Lock()


def imported(source: Source) -> ModuleType:
    """Imports model.py, with its folder on sys.path meanwhile. Raises ModelNotLoadable."""
    # The name is unique to the version, so two versions' modules do not collide in sys.modules.
    name = f"dragoman_model_{source.name}_{source.version}".replace("-", "_").replace(".", "_")
    found = spec_from_file_location(name, source.folder / "model.py")
    if found is None or found.loader is None:
        raise ModelNotLoadable(f"model {source.name!r}: model.py cannot be imported")
    for own in OWN:
        if (source.folder / own).exists():
            raise ModelNotLoadable(f"model {source.name!r}: {own} has the name of a package of Dragoman: rename it")
    module = module_from_spec(found)
    try:
        with _on_the_path(str(source.folder)):
            found.loader.exec_module(module)
    except BaseException as error:  # not even sys.exit() in a model may end the server
        log.exception("importing model.py of model %s failed", source.name)
        raise ModelNotLoadable(f"model {source.name!r}: model.py raised {kind(error)}") from error
    return module


def kind(error: BaseException) -> str:
    """Returns an error's class. Its text is for the log alone: it may hold paths, data and secrets."""
    return type(error).__name__[:LONGEST_KIND]


@contextmanager
def _on_the_path(folder: str) -> Iterator[None]:
    """Puts a folder first on sys.path, and takes it off at the end. No list that was sys.path is changed.

    An import of another thread goes through such a list meanwhile. If an entry left it, the import would skip the next
    one, and fail for a module that is there.
    """
    with _CHANGING:
        sys.path = [folder, *sys.path]
    try:
        yield
    finally:
        with _CHANGING:
            rest = [*sys.path]
            with suppress(ValueError):  # the model itself has taken it off
                rest.remove(folder)
            sys.path = rest
