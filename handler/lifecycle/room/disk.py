"""Room on the disk: idle models are evicted, whose files DRAGOMAN_CACHE keeps for as long as they are in memory."""

import gc
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from handler.lifecycle.room.residents import Residents
from handler.lifecycle.versions import ServedVersion
from handler.settings import Settings

PIPELINES: Final = ("ensemble", "pipeline")
"""The platforms of pipelines, as their metadata has them."""


class Disk:
    """Evicts nothing for one of several workers: the others may hold the same files."""

    def __init__(self, residents: Residents, settings: Settings) -> None:
        self._residents = residents
        self._evicts = settings.workers == 1

    def free(self, missing: int, version: ServedVersion, spared: Sequence[ServedVersion]) -> bool:
        """Evicts the least recently used models until their files have so many bytes. Returns whether it evicted any.

        It evicts none if all idle ones have fewer: evicting them would not make enough room. The models of a pipeline's
        steps are in use until it is evicted: after that, another call can evict them. `version`: the one that needs
        the bytes. `spared`: versions that stay.
        """
        leaving = [(each, _size(each)) for each in self._residents.leaving(version, spared)] if self._evicts else []
        idle = [(each, size) for each, size in leaving if self._residents.is_idle(each)]
        if _sum(idle) < missing:
            idle = [(each, missing) for each, _ in idle if _is_pipeline(each)] if _sum(leaving) >= missing else []
        freed, evicted = 0, False
        for other, size in idle:
            if freed < missing and self._residents.evict(other):
                freed, evicted = freed + size, True
        if evicted:
            gc.collect()  # python code, whose functions and globals hold each other, and with them their files
        return evicted


def _sum(sized: Sequence[tuple[ServedVersion, int]]) -> int:
    return sum(size for _, size in sized)


def _is_pipeline(version: ServedVersion) -> bool:
    loaded = version.loaded
    return loaded is not None and loaded.model.spec.platform in PIPELINES


def _size(version: ServedVersion) -> int:
    """Returns the size of a version's files on the disk, in bytes; 0 if the version is not in memory."""
    loaded, size = version.loaded, 0
    for file in loaded.folder.path.rglob("*") if loaded is not None else ():
        with suppress(OSError):  # the model may remove its files
            size += file.lstat().st_size if file.is_file() else 0
    return size
