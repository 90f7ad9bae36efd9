"""Fetched versions on this machine's disk, shared by every process that has the same DRAGOMAN_CACHE.

    <place>/lock            held while a process fetches into the place; a place is one version's folder in one store
    <place>/parts/          what there is of an unfinished fetch (see `parts`)
    <place>/<content>/      a complete version; <content> stands for every file's path, size and ETag
    <place>/<content>.lock  held, shared, while its files are in use; its time is that of the last use

An entry is a version as a whole, because that is what is loaded, kept and dropped: one lock each, no copies, no hard
links (which not every file system has). It appears by one rename, and goes by one, so that whoever finds it finds all.
Locks are flock's: they end with their process, however that ends, and exclude threads as well as processes.
"""

import fcntl
import os
import shutil
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from core.errors import ModelNotLoadable
from handler.stores import Folder
from handler.stores.journal import NEW, Parts
from handler.stores.progress import Progress

LOCK: Final = "lock"
PARTS: Final = "parts"
TRASH: Final = "trash-"
POLL: Final = 0.02, 0.2
"""Seconds between two looks at a lock that another process has: the first, and the longest."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Entry(NamedTuple):
    """Something that may be dropped, once `lock` can be had."""

    used: float
    path: Path
    lock: Path
    size: int


class Cache:
    """`cap`: the most bytes to keep, None for what the disk has room for."""

    def __init__(self, root: Path, cap: int | None) -> None:
        self._root = root
        self._cap = cap

    def place(self, *names: str) -> "Place":
        """Where a version of these names goes. Raises ModelNotLoadable, OSError."""
        # Nothing here waits for the disk, so that what was not yet written when a machine went down is not looked at.
        path = self._root / digest(_boot(), *names)
        try:
            path.mkdir(0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._root.mkdir(0o700, parents=True, exist_ok=True)
            path.mkdir(0o700, exist_ok=True)
        shared, own = self._root.parent.stat(), self._root.stat()
        if shared.st_mode & stat.S_ISVTX and own.st_uid not in (os.geteuid(), 0):
            raise ModelNotLoadable(
                "DRAGOMAN_CACHE belongs to another user, who could change models: set another folder"
            )
        return Place(path)

    def make_room(self, model: str, size: int, there: int) -> None:
        """For `size` bytes in all, of which `there` are on the disk already: what is locked stays.

        Raises ModelNotLoadable.
        """
        if self._cap is not None and size > self._cap:
            raise ModelNotLoadable(f"model {model!r} has {size} bytes, DRAGOMAN_CACHE_BYTES is {self._cap}")
        missing = max(0, size - there)
        short = missing - shutil.disk_usage(self._root).free
        if self._cap is None and short <= 0:
            return
        entries = sorted(self._entries())
        if self._cap is not None:
            short = max(short, sum(entry.size for entry in entries) + missing - self._cap)
        for entry in entries:
            if short > 0 and _drop(entry):
                short -= entry.size
        free = shutil.disk_usage(self._root).free
        if missing > free:
            raise ModelNotLoadable(
                f"model {model!r} has {size} bytes, {free} are free: enlarge DRAGOMAN_CACHE (ephemeral storage)"
            )

    def _entries(self) -> Iterator[Entry]:
        for path in self._root.glob("*/*"):
            if path.name.startswith(TRASH):
                shutil.rmtree(path, ignore_errors=True)
                continue
            lock = path.with_name(LOCK if path.name == PARTS else f"{path.name}.lock")
            with suppress(OSError):  # gone meanwhile
                if path.is_dir():
                    yield Entry(lock.stat().st_mtime, path, lock, _allocated(path))


class Place:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.parts = path / PARTS

    def held(self, content: str) -> Folder | None:
        """The complete version, which stays as long as the Folder does; None if it is not there."""
        folder, name = self._path / content, self._path / f"{content}.lock"
        if not folder.is_dir():
            return None
        lock = _lock(name, fcntl.LOCK_SH)
        if lock is None:
            return None
        if not folder.is_dir():
            os.close(lock)
            return None
        return _folder(folder, lock)

    @contextmanager
    def locked(self, progress: Progress, model: str) -> Iterator[None]:
        """Nobody else fetches into this place meanwhile. Raises StillLoading at the deadline."""
        pause, longest = POLL
        while (lock := _lock(self._path / LOCK, fcntl.LOCK_EX)) is None:
            if progress.left <= 0:
                raise progress.out_of_time(model)
            time.sleep(max(0.0, min(pause, progress.left)))
            pause = min(longest, pause * 2)
        try:
            os.utime(lock)
            yield
        finally:
            os.close(lock)

    def publish(self, content: str) -> Folder:
        """Make what lies in parts the complete version. Under the lock."""
        folder = self._path / content
        while (lock := _lock(self._path / f"{content}.lock", fcntl.LOCK_SH)) is None:
            time.sleep(POLL[0])  # its last content is being dropped
        try:
            if not folder.is_dir():
                (self.parts / NEW).rename(folder)
        except BaseException:
            os.close(lock)
            raise
        Parts.remove(self.parts)
        return _folder(folder, lock)


def digest(*names: str) -> str:
    """A folder's name for these."""
    return sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:32]


def unwritable(error: OSError) -> ModelNotLoadable:
    return ModelNotLoadable(f"DRAGOMAN_CACHE cannot be written: {error.strerror}")


@cache
def _boot() -> str:
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _folder(path: Path, lock: int) -> Folder:
    with suppress(OSError):
        os.utime(lock)
    folder = Folder(path)
    weakref.finalize(folder, os.close, lock)
    return folder


def _lock(path: Path, kind: int) -> int | None:
    """An open file that holds the lock, None if it cannot be had now."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # somebody else removed this name meanwhile


def _drop(entry: Entry) -> bool:
    """Whether it could be removed: nobody uses it."""
    try:
        lock = _lock(entry.lock, fcntl.LOCK_EX)
    except OSError:
        return False
    if lock is None:
        return False
    try:
        trash = entry.path.with_name(TRASH + entry.path.name)
        entry.path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
        if entry.path.name != PARTS:
            entry.lock.unlink()
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _allocated(folder: Path) -> int:
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*"))
