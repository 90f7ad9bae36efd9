"""The versions in memory: which of them may be evicted for another one, and in which order."""

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from handler.lifecycle.traffic.loads import LOADS
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import ServedVersion

if TYPE_CHECKING:
    from core.ports import Model

GONE_SECONDS: Final = 0.05
"""The seconds that the thread that used a model last may take to let go of it."""
FRESH_SECONDS: Final = 5.0


class Residents:
    """`versions`: those that may hold a model. `is_pinned`: decides whether a model of this name stays.

    `fresh`: seconds for which a model stays that was not used yet, for the requests that wait for it in other threads.
    """

    def __init__(
        self,
        versions: Callable[[], Iterable[ServedVersion]],
        is_pinned: Callable[[str], bool],
        fresh: float = FRESH_SECONDS,
    ) -> None:
        self._versions = versions
        self._is_pinned = is_pinned
        self._fresh = fresh

    def beside(self, version: ServedVersion) -> list[ServedVersion]:
        """Returns the other versions that are in memory."""
        return [each for each in self._versions() if each.loaded is not None and each is not version]

    def staying(self, version: ServedVersion, spared: Sequence[ServedVersion]) -> list[ServedVersion]:
        """Returns the other versions that are never evicted for this one."""
        return [other for other in self.beside(version) if self._stays(other, spared)]

    def leaving(self, version: ServedVersion, spared: Sequence[ServedVersion]) -> list[ServedVersion]:
        """Returns the other versions that can be evicted once they are idle, the least recently used first."""
        return sorted((other for other in self.beside(version) if not self._stays(other, spared)), key=_last_use)

    def is_idle(self, version: ServedVersion) -> bool:
        """Decides whether a version can be evicted now."""
        loaded = version.loaded
        return loaded is not None and not loaded.in_use() and not self._is_fresh(loaded)

    def evict(self, version: ServedVersion) -> bool:
        """Evicts a version, and waits a moment until its model is freed. Returns False if it is in use or fresh."""
        loaded = version.loaded
        if loaded is None or self._is_fresh(loaded) or not version.evict():
            return False
        gone = weakref.ref(loaded.model)
        del loaded
        _await_end(gone)
        LOADS.evict()
        return True

    def _stays(self, other: ServedVersion, spared: Sequence[ServedVersion]) -> bool:
        return other in spared or self._is_pinned(other.name)

    def _is_fresh(self, loaded: Loaded) -> bool:
        return not loaded.last_use and time.monotonic() < loaded.born + self._fresh


def _await_end(gone: "weakref.ref[Model]") -> None:
    """Waits until the model is freed: its last user can be about to release it."""
    until = time.monotonic() + GONE_SECONDS
    while gone() is not None and time.monotonic() < until:
        time.sleep(GONE_SECONDS / 50)


def _last_use(version: ServedVersion) -> int:
    loaded = version.loaded
    return loaded.last_use if loaded is not None else 0
