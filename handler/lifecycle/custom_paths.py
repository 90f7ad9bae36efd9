"""The HTTP paths that models have named in their settings, to answer whole requests there (GRPS's customised HTTP)."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from core.deadline import Deadline
from core.errors import ModelUnavailable, ServingError
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.inventory.looks import PAUSE
from handler.lifecycle.repository import Repository
from handler.settings.model import CustomPath
from handler.stores import File

CUSTOM_SECONDS: Final = 10.0
"""The seconds for which the paths are remembered: finding them takes a listing of the repository."""


class CustomPaths:
    def __init__(self, repository: Repository, catalog: Catalog) -> None:
        self._repository = repository
        self._catalog = catalog
        self._paths: Mapping[str, Mapping[str, Sequence[str]]] | None = None
        self._until = float("-inf")

    def models(self, path: str, deadline: Deadline) -> Mapping[str, Sequence[str]]:
        """Returns the models that answer whole requests on a path, each with its methods, as of some seconds ago."""
        if time.monotonic() > self._until:
            self._look(deadline)
        return (self._paths or {}).get(path, {})

    def forget(self) -> None:
        """Lets the next request ask again: the clock can differ now."""
        self._until = float("-inf")

    def _look(self, deadline: Deadline) -> None:
        """Finds the paths. If the store does not answer, its last answer counts. Without one, it looks again soon."""
        began = time.monotonic()
        try:
            self._paths, is_whole = self._all(deadline)
        except ServingError:
            is_whole = self._paths is not None
        self._until = began + CUSTOM_SECONDS if is_whole else time.monotonic() + PAUSE

    def _all(self, deadline: Deadline) -> tuple[Mapping[str, Mapping[str, Sequence[str]]], bool]:
        """Returns the paths, and whether each model could be looked at. Raises what listing the repository raises."""
        is_whole = True
        paths: dict[str, dict[str, Sequence[str]]] = {}
        names = self._repository.models(deadline)
        unknown = [name for name in names if name not in self._catalog.models]
        several = len(unknown) > 1 and not self._repository.inventory.is_local
        files = self._repository.files(deadline) if several else {}  # one listing for all of them
        for name in names:
            try:
                said = self._path_of(name, deadline, files.get(name))
            except ServingError as error:  # the index shows it
                is_whole = is_whole and not isinstance(error, ModelUnavailable)
                continue
            if said is not None:
                paths.setdefault(said.path, {})[name] = said.methods
        return paths, is_whole

    def _path_of(self, name: str, deadline: Deadline, files: Sequence[File] | None) -> CustomPath | None:
        known = self._catalog.models.get(name)
        if known is None and files is not None:
            known = self._catalog.look(name, deadline, files=files)
        return (known or self._catalog.model(name, deadline)).said.http
