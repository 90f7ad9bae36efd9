"""`dragoman serve --reload`: loads models again whose files in a local repository have changed."""

import logging
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final

from core.deadline import NEVER
from core.errors import ServingError, escaped
from handler.lifecycle.backoff import reason
from handler.lifecycle.single_flight import Background, settled
from handler.settings import InvalidSettings, Settings
from handler.stores import File, open_store

log = logging.getLogger("dragoman.reload")
PAUSE: Final = 0.5
"""Seconds between two looks. Files have to be the same in two looks: an editor or a copy can still be writing."""


def check(settings: Settings) -> None:
    """Raises InvalidSettings for a repository that is not a folder."""
    if "://" in settings.repository and not settings.repository.startswith("file://"):
        raise InvalidSettings("--reload watches a folder; --repository-poll 1 looks at a bucket each second")


class Reloader:
    """Watches a folder in a thread of its own. Only models in use are loaded again."""

    def __init__(self, settings: Settings, registry: Any) -> None:
        self._store, self._registry = open_store(settings), registry
        self._loaded: dict[str, tuple[File, ...]] = {}
        self._changed: dict[str, tuple[File, ...]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        self.look()
        while not self._ended.wait(PAUSE):
            self.look()

    def look(self) -> None:
        """Looks at all files once."""
        with suppress(ServingError):  # the repository's folder has gone, or it changes: the next look sees more
            for name in list(self._store.models()):
                with suppress(ServingError):  # this model's folder has gone, or cannot be listed
                    self._compare(name, tuple(self._store.files(name)))

    def _compare(self, name: str, files: tuple[File, ...]) -> None:
        if self._loaded.setdefault(name, files) == files:
            self._changed.pop(name, None)
        elif self._changed.get(name) == files:
            self._loaded[name] = files
            self._load(name)
        else:
            self._changed[name] = files

    def _load(self, name: str) -> None:
        if all(version.name != name for version in self._registry.known()):
            return
        try:
            settled(lambda: self._registry.load(name, Background()), NEVER)
            log.info("%s is loaded again: its files have changed", escaped(name))
        except ServingError as error:
            log.warning("%s answers as before%s", escaped(name), reason(error))
        except (RuntimeError, CancelledError):
            self._ended.set()  # the server is ending
