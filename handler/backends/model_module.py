"""Imports the file of a Python model, and the modules beside it, as modules of its own.

Modules that lie beside model.py are in sys.modules under their plain names, where pickle and lazy imports find them.
Each load has its own: before it begins, those of other loads leave. Loads that share such a name take turns.
"""

import itertools
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.machinery import PathFinder, all_suffixes
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from core.errors import ModelNotLoadable, shown
from handler.backends import Source

log = logging.getLogger(__name__)
LONGEST_KIND: Final = 64
MODEL: Final = "model"
"""The name of model.py for the modules beside it."""
OWN: Final = tuple(f"{name}{kind}" for name in ("core", "dragoman", "handler") for kind in (".py", "/__init__.py"))
"""Modules beside model.py that it cannot import: this process has others of these names."""
TRITON: Final = "triton_python_backend_utils"
INTERFACE: Final = "expected a function predict(inputs, parameters), see docs/python-models.md"
_CHANGING: Final = threading.Lock()
_LOADS: Final = itertools.count(1)
_TURNS: Final[dict[str, threading.Lock]] = {}
"""By the name of a module beside a model.py: held while a load may import one of that name."""
_BESIDE: Final[dict[str, dict[str, ModuleType]]] = {}
"""The modules beside each model.py that its load has imported, by the names of the load's own module and of theirs."""


def imported(source: Source) -> ModuleType:
    """Imports model.py, with its folder on sys.path meanwhile. `forget` frees the module. Raises ModelNotLoadable."""
    # Each load has a name of its own: while a version is replaced, two modules of one model are in use.
    name = f"dragoman_model_{source.name}_{source.version}_{next(_LOADS)}".replace("-", "_").replace(".", "_")
    found = spec_from_file_location(name, source.folder / "model.py")
    if found is None or found.loader is None:
        raise ModelNotLoadable(f"model {source.name!r}: model.py cannot be imported")
    for own in OWN:
        if (source.folder / own).exists():
            raise ModelNotLoadable(f"model {source.name!r}: {own} has the name of a package of Dragoman: rename it")
    module = module_from_spec(found)
    sys.modules[name] = module  # dataclasses, pickle and typing look for a class's module there
    try:
        with _beside(name, source.folder), _on_the_path(str(source.folder)):
            found.loader.exec_module(module)
    except BaseException as error:  # not even sys.exit() in a model may end the server
        forget(name)
        log.exception("importing model.py of model %s failed", source.name)
        raise ModelNotLoadable(f"model {source.name!r}: model.py {_told(error)}") from error
    return module


def forget(name: str) -> None:
    """Takes the modules of a load out of sys.modules, which would keep them, and all their data, for ever."""
    sys.modules.pop(name, None)
    _hide(_BESIDE.pop(name, {}))


def _told(error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        return f"raised {kind(error)}"
    more = f", which is Triton's: {INTERFACE}" if missing == TRITON else ", which is not installed"
    return f"imports {shown(missing)}{more}"


def kind(error: BaseException) -> str:
    """Returns an error's class. Its text is for the log alone: it may hold paths, data and secrets."""
    return type(error).__name__[:LONGEST_KIND]


@contextmanager
def _beside(load: str, folder: Path) -> Iterator[None]:
    """Has a load import its own modules beside model.py, whatever others of these names were imported before."""
    own = _names(folder)
    names = own | {MODEL}
    with ExitStack() as turns:
        for name in sorted(own):  # in one order, so that no two loads wait for each other
            turns.enter_context(_TURNS.setdefault(name, threading.Lock()))
        for others in _BESIDE.copy().values():
            _hide({name: module for name, module in others.items() if name.partition(".")[0] in names})
        try:
            yield
        finally:
            imports = sys.modules.copy()  # other threads import meanwhile, and finalizers forget
            found = {name: module for name, module in imports.items() if name.partition(".")[0] in names}
            _BESIDE[load] = {name: module for name, module in found.items() if _lies_in(module, folder)}
            # The server itself may yet import an installed package of such a name.
            installed = {name for name in own if PathFinder.find_spec(name) is not None}
            _hide({name: _BESIDE[load][name] for name in _BESIDE[load] if name.partition(".")[0] in installed})


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = getattr(module, "__file__", None), *getattr(module, "__path__", ())
    return any(Path(place).is_relative_to(folder) for place in places if place)


def _names(folder: Path) -> set[str]:
    """Returns the names of the modules and packages that lie beside model.py; a folder needs no file of its own."""
    suffixes = tuple(all_suffixes())
    files = {each.name.partition(".")[0] for each in folder.iterdir() if each.name.endswith(suffixes)} - {MODEL}
    return files | {each.name for each in folder.iterdir() if any(each.rglob("*.py"))}


def _hide(modules: dict[str, ModuleType]) -> None:
    """Takes modules out of sys.modules, but none that has replaced them there."""
    for name, module in modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


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
