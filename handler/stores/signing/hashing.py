"""Compares the files of a folder with a manifest, and copies them while it reads them."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from core.errors import shown
from handler.stores import Gone, checksums
from handler.stores.signing.documents import SHOWN, Unverified
from handler.stores.signing.envelope import FILE
from handler.stores.signing.statement import Manifest

CHUNK: Final = 1024 * 1024
DEEPEST: Final = 16
"""Folders inside each other. More of them are a loop of symbolic links."""


def another(path: str) -> Unverified:
    """Returns the refusal of a file whose content is not the listed one."""
    return Unverified(f"{shown(path, SHOWN)} differs from {FILE}")


def check_names(manifest: Manifest, paths: Iterable[str]) -> None:
    """Raises Unverified for a path that the manifest neither lists nor ignores, and for one that is missing."""
    there = set(paths)
    for path in sorted(there - manifest.files.keys()):
        if not manifest.ignores(path):
            raise Unverified(f"{shown(path, SHOWN)} is not listed in {FILE}")
    for path in manifest.files:
        if path not in there:
            raise Unverified(f"{shown(path, SHOWN)} is missing, and is listed in {FILE}")


def walk(folder: Path, *, links: bool) -> Iterator[str]:
    """Yields the paths of everything below that is not a folder, hidden ones, too.

    Raises Unverified for a symbolic link, unless `links` are permitted.
    """
    for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=links):
        for name in sorted((*folders, *names)):
            path = Path(parent, name)
            if not links and path.is_symlink():
                raise Unverified(f"{shown(path.relative_to(folder).as_posix(), SHOWN)} is a symbolic link")
        if len(Path(parent).relative_to(folder).parts) >= DEEPEST:
            raise Unverified(f"the folder has more than {DEEPEST} folders inside each other")
        folders.sort()
        for name in sorted(names):
            yield Path(parent, name).relative_to(folder).as_posix()


def _raise(error: OSError) -> None:
    raise Unverified(f"a folder of the version cannot be read: {error.strerror}") from None


@contextmanager
def opened(path: Path, shown_as: str, *, links: bool) -> Iterator[int]:
    """Yields a descriptor of a regular file. Raises Unverified for anything else, Gone."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise Gone(f"{shown_as} was removed from the repository, or is being replaced") from None
    except OSError as error:
        raise Unverified(f"{shown(shown_as, SHOWN)} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unverified(f"{shown(shown_as, SHOWN)} is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def read(folder: Path, manifest: Manifest, take: Callable[[str, bytes], None]) -> None:
    """Reads every listed file once, hands each piece to `take`, and compares the digests.

    Raises Unverified for files that are missing, not listed, not files, or of another content; Gone.
    """
    check_names(manifest, walk(folder, links=manifest.links))
    for path, checksum in manifest.files.items():
        with opened(folder / path, path, links=manifest.links) as descriptor:
            pieces = _pieces(descriptor, path, take)
            if checksums.of_content(checksum, pieces) != checksum.value:
                raise another(path)


def _pieces(descriptor: int, path: str, take: Callable[[str, bytes], None]) -> Iterator[bytes]:
    take(path, b"")  # an empty file is one, too
    while piece := os.read(descriptor, CHUNK):
        take(path, piece)
        yield piece
