"""Room on the disk: idle models are evicted, whose files DRAGOMAN_CACHE keeps for as long as they are in memory."""

import gc
from collections.abc import Sequence

from handler.lifecycle.room.residents import Residents
from handler.lifecycle.versions import ServedVersion
from handler.settings import Settings


class Disk:
    """Evicts nothing for one of several workers: the others may hold the same files."""

    def __init__(self, residents: Residents, settings: Settings) -> None:
        self._residents = residents
        self._evicts = settings.workers == 1

    def free(self, missing: int, version: ServedVersion, spared: Sequence[ServedVersion]) -> bool:
        """Evicts the least recently used models until their files have so many bytes. Returns whether it evicted any.

        It evicts fewer if others are in use, and none if all that may be evicted have fewer bytes: that would help
        nobody. After a pipeline was evicted, another call can evict the models of its steps. `version`: for which they
        leave. `spared`: versions that stay.
        """
        leaving = [(each, _size(each)) for each in self._residents.leaving(version, spared)]
        if not self._evicts or sum(size for _, size in leaving) < missing:
            return False
        freed, evicted = 0, False
        for other, size in leaving:
            if freed < missing and self._residents.evict(other):
                freed, evicted = freed + size, True
        gc.collect()  # python code, whose functions and globals hold each other, and with them their files
        return evicted


def _size(version: ServedVersion) -> int:
    """Returns the bytes of a version's files on the disk, 0 if it is no longer in memory."""
    loaded = version.loaded
    if loaded is None:
        return 0
    return sum(file.lstat().st_size for file in loaded.folder.path.rglob("*") if file.is_file())
