"""The code of the init phase in one file of the function's artifact: handler.edge.runtime.bundling writes it.

An instance imports 190 modules before its first request. Finding and reading their files one by one takes a tenth of
the init phase. Without the file, or with that of another Python, each module comes from its own file. So does one that
is imported again.
"""

import marshal
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = __file__.removesuffix("/handler/edge/runtime/bundle.py")
FILE: Final = f"{ROOT}/init.bundle"
Bundle = dict[str, tuple[CodeType, bool]]
"""By module: its code, and whether it is a package."""


class BundleFinder:
    """Finds and loads the modules of the file. It implements importlib's MetaPathFinder and Loader."""

    def __init__(self, codes: Bundle) -> None:
        self._codes = codes

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        found = self._codes.get(name)
        if found is None:
            return None
        place, is_package = place_of(name), found[1]
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=file_of(name, is_package=is_package), is_package=is_package)
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(place)
        return spec

    def create_module(self, _: ModuleSpec) -> None:
        """Leaves the module's object to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        exec(self._codes.pop(module.__name__)[0], module.__dict__)  # noqa: S102 - as the import system does


def place_of(name: str) -> str:
    return f"{ROOT}/{name.replace('.', '/')}"


def file_of(name: str, *, is_package: bool) -> str:
    """Returns the file of a module's source."""
    return f"{place_of(name)}/__init__.py" if is_package else f"{place_of(name)}.py"


def install() -> None:
    """Imports what the file has from there, from now on."""
    try:
        with open(FILE, "rb") as file:  # noqa: PTH123 - pathlib is one of its modules
            python, codes = marshal.loads(file.read())  # noqa: S302 - trusted as the .pyc files beside it
    except FileNotFoundError:
        return
    if python == sys.implementation.cache_tag:
        sys.meta_path.insert(0, BundleFinder(codes))
