"""The index: every version of every model with its state, as of one look at the store.

Models that are not in memory are looked at again, all of them at once. A look at models whose settings have not been
read yet sends a request for each of those files, several at a time.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from core.deadline import Deadline
from core.errors import ModelNotFound, ServingError
from core.operations import IndexEntry, State
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.inventory.looks import FEW, PAUSE
from handler.lifecycle.repository import Repository
from handler.stores import File
from handler.stores.progress import Progress

READERS: Final = 8
"""Threads that read settings."""


class Index:
    """`_troubles`: why a model could not be listed, by name, as of the latest look."""

    def __init__(self, repository: Repository, catalog: Catalog) -> None:
        self._repository = repository
        self._catalog = catalog
        self._lock = threading.Lock()
        self._names: Sequence[str] = ()
        self._troubles: dict[str, str] = {}
        self._began = self._due = float("-inf")

    def forget(self) -> None:
        """Lets the next request look again."""
        self._due = float("-inf")

    def entries(self, deadline: Deadline) -> Sequence[IndexEntry]:
        """Returns every version of every model. Raises ServingError where the models cannot be listed."""
        came = time.monotonic()
        if not self._lock.acquire(timeout=-1 if deadline.is_never else max(0.0, deadline.left)):
            raise Progress(deadline).unanswered()
        try:
            if self._began <= came and time.monotonic() >= self._due:
                self._look(deadline)
            names, troubles = self._names, self._troubles
        finally:
            self._lock.release()
        loaded = self._catalog.loaded()
        every = sorted({*names, *loaded})
        return [entry for name in every for entry in self._overview(name, "" if name in loaded else troubles.get(name))]

    def _overview(self, name: str, trouble: str | None) -> Sequence[IndexEntry]:
        model = self._catalog.models.get(name)
        if trouble or model is None:
            return [IndexEntry(name, "", State.UNAVAILABLE, trouble or "not listed yet")]
        return list(model.overview())

    def _look(self, deadline: Deadline) -> None:
        """Looks at every model that is not in memory."""
        began, repository, loaded = time.monotonic(), self._repository, self._catalog.loaded()
        if repository.inventory.is_local:
            files: dict[str, Sequence[File] | None] = dict.fromkeys(repository.models(deadline))
        else:
            files = dict(repository.files(deadline))
        absent = [(name, found) for name, found in files.items() if name not in loaded]
        unread = sum(1 for name, found in absent if found is not None and not repository.has_settings(name, found))
        look = partial(self._trouble, deadline)
        if unread < READERS:
            troubles = list(map(look, absent))
        else:
            with ThreadPoolExecutor(READERS) as readers:
                troubles = list(readers.map(look, absent))
        self._names = sorted(files)
        self._troubles = {name: text for (name, _), text in zip(absent, troubles, strict=True) if text}
        self._began = began
        is_cheap = repository.inventory.is_local and len(self._catalog.known()) <= FEW
        self._due = time.monotonic() + (0.0 if is_cheap else PAUSE)

    def _trouble(self, deadline: Deadline, found: tuple[str, Sequence[File] | None]) -> str:
        """Looks at a model. Returns why it cannot be listed, or an empty text."""
        name, files = found
        if files is None and not self._repository.inventory.is_local and name in self._catalog.models:
            return ""  # so many files that each request for them would be many: it is listed when it is used
        try:
            self._catalog.look(name, deadline, files=files)
        except ModelNotFound:  # of a name that was listed just now
            return "its folder holds no files"
        except ServingError as error:
            return error.message
        return ""
