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
        nobody. `version`: for which they leave. `spared`: versions that stay.
        """
        leaving = self._residents.leaving(version, spared)
        if not self._evicts or sum(map(_size, leaving)) < missing:
            return False
        freed = 0
        for other in leaving:
            if freed < missing and _size(other) and self._residents.evict(other):
                freed += _size(other)
        gc.collect()  # python code, whose functions and globals hold each other, and with them their files
        return freed > 0


def _size(version: ServedVersion) -> int:
    """Returns the bytes of a version's files, as listed."""
    return sum(file.size or 0 for file in version.version.files)
