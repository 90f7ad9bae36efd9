"""Cached versions whose content this process knows, because it has fetched or read them itself.

What another process has put into the cache is read again, once: it may have run under another policy, as another user,
or on another machine that shares the folder.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from handler.stores import Folder, checksums
from handler.stores.cache import TRASH
from handler.stores.checksums import Checksum

COMPILED: Final = "__pycache__"

Digests = Mapping[str, Checksum]
"""The digests by path in the version's folder."""


class KnownContents:
    """`again`: reads a version each time, because other users may write the cache."""

    def __init__(self, *, again: bool) -> None:
        self._again = again
        self._known: set[tuple[Path, str]] = set()

    def add(self, folder: Folder, digests: Digests) -> Folder:
        """Notes that this process has put these files there."""
        if digests:
            self._known.add((folder.path, _key(digests)))
        return folder

    def has(self, folder: Folder, digests: Digests) -> bool:
        """Decides whether a folder has these files, and no others. Without digests every folder has. Raises OSError."""
        if not digests:
            return True
        if not self._again and (folder.path, _key(digests)) in self._known and _are_there(folder.path, digests):
            return True
        if is_right := _is_whole(folder.path, digests):
            self.add(folder, digests)
        return is_right


def _key(digests: Digests) -> str:
    lines = sorted(f"{path}\0{checksum.algorithm}\0{checksum.value}" for path, checksum in digests.items())
    return of_bytes("\0".join(lines).encode(errors="surrogateescape"))


def of_bytes(text: bytes) -> str:
    """Returns the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text).hexdigest()


def _are_there(folder: Path, digests: Digests) -> bool:
    """Decides whether no file was removed, as machines do with old ones in /tmp."""
    return all((folder / path).is_file() for path in digests)


def _is_whole(folder: Path, digests: Digests) -> bool:
    """Removes what Python has compiled there, which no digest covers, and compares the rest.

    Other processes do the same meanwhile, or compile the modules again. One rename takes away all code that was there
    before the comparison. Later code comes from loads of the same files, or from users that a shared cache trusts.
    """
    paths = set[str]()
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        if COMPILED in folders and COMPILED not in links:
            folders.remove(COMPILED)
            _remove(Path(parent, COMPILED), folder.with_name(f"{TRASH}{os.urandom(8).hex()}"))
        paths.update(Path(parent, name).relative_to(folder).as_posix() for name in (*names, *links))
    return paths == digests.keys() and all(is_same(folder / path, each) for path, each in digests.items())


def _remove(folder: Path, trash: Path) -> None:
    """Takes a folder away by a rename, and removes it. Another process can have done so before. Raises OSError."""
    with suppress(FileNotFoundError):
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def is_same(path: Path, checksum: Checksum) -> bool:
    """Decides whether a file has this content. Raises OSError."""
    return not path.is_symlink() and path.is_file() and checksums.is_of(checksum, path)
