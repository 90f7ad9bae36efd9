"""The models that this process's pipelines hold: which they are, and what becomes of them."""

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from handler.lifecycle.catalog import Catalog
from handler.lifecycle.repository import Repository
from handler.lifecycle.versions import ServedVersion

if TYPE_CHECKING:
    from core.operations import ModelRef
    from handler.backends import Source
    from handler.lifecycle.pipelines.assembly import Obtain
    from handler.lifecycle.pipelines.parts import HeldParts
    from handler.lifecycle.single_flight import Load
    from handler.stores.progress import Progress

log = logging.getLogger(__name__)


class Steps:
    """`obtain`: loads a model. `has_limit`: memory is limited. A process without pipelines pays nothing for them."""

    def __init__(self, repository: Repository, catalog: Catalog, obtain: "Obtain", *, has_limit: bool) -> None:
        self._repository = repository
        self._catalog = catalog
        self._obtain = obtain
        self._turn = threading.Lock() if has_limit else None
        self._lock = threading.Lock()  # guards the next two
        self._parts: WeakSet[HeldParts] = WeakSet()
        self._brought: WeakSet[ServedVersion] = WeakSet()

    def parts(
        self, owner: ServedVersion, source: "Source", progress: "Progress", spared: Sequence[ServedVersion]
    ) -> "HeldParts":
        """Returns the models of a pipeline, all of them in memory. `spared`: versions that are not evicted for them.

        Raises ServingError with the name of the step whose model cannot be had.
        """
        from handler.lifecycle.pipelines.assembly import Assembly  # noqa: PLC0415 - 3 ms of cold start

        assembly = Assembly(self._repository, self._catalog, self._bring, self._note, self._turn)
        staying = (*spared, *(version for each in spared for version in self.of(each)))
        return assembly.parts(owner, source, progress, staying)

    def _bring(self, ref: "ModelRef", load: "Load", spared: Sequence[ServedVersion]) -> None:
        self._obtain(ref, load, spared)
        if load.version is not None:
            with self._lock:
                self._brought.add(load.version)

    def _note(self, parts: "HeldParts") -> None:
        with self._lock:
            self._parts.add(parts)

    def of(self, version: ServedVersion) -> list[ServedVersion]:
        """Returns the versions that a version in memory calls: none unless it is a pipeline."""
        found = (parts.versions.values() for parts in self._all() if parts.owner is version)
        return list(dict.fromkeys(each for versions in found for each in versions))

    def owners(self, name: str) -> set[str]:
        """Returns the names of the pipelines in memory that call a model."""
        # Threads that load parts side by side add to `held` meanwhile.
        return {parts.owner.name for parts in self._all() if any(name == wanted for wanted, _ in tuple(parts.held))}

    def _all(self) -> Sequence["HeldParts"]:
        if not self._parts:
            return ()
        with self._lock:
            return list(self._parts)

    def release(self) -> None:
        """Takes out of memory what was loaded for pipelines alone, and that none of them calls any more."""
        with self._lock:
            brought = list(self._brought)
        for version in brought:
            loaded = version.loaded
            if loaded is not None and not loaded.last_use and version.evict():
                log.info("model %s version %s is unloaded with its pipeline", version.name, version.version.number)
