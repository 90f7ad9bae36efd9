"""Fetched versions on this machine's disk, shared by every process that has the same DRAGOMAN_CACHE.

    <place>/lock            held while a process fetches into the place, which is one version's folder in one store
    <place>/parts/          the files of an unfinished fetch (see `journal`)
    <place>/<content>/      a complete version; <content> is a hash of every file's path, size and ETag
    <place>/<content>.lock  held, shared, while its files are in use; its time is the time of the last use

An entry is a whole version, because a version is loaded, kept and dropped as a whole: one lock each, no copies, no hard
links (which not every file system has). One rename makes it appear and one makes it disappear: it is never incomplete.
The locks are flock's. They end with their process, however that ends, and exclude threads as well as processes.
"""

import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from core.errors import ModelNotLoadable
from core.records import NamedTuple
from handler.settings import Settings
from handler.stores import DiskShort, Folder, private
from handler.stores.journal import NEW, Parts
from handler.stores.private import NotPrivate, untrusted, unwritable
from handler.stores.progress import Progress

LOCK: Final = "lock"
PARTS: Final = "parts"
TRASH: Final = "trash-"
POLL: Final = 0.02, 0.2
"""Seconds between two attempts to get a lock that another process holds: the first pause, and the longest."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class CachedFolder(NamedTuple):
    """A folder that can be dropped while `lock` is free. `used`: seconds since the epoch; `size`: bytes on the disk."""

    used: float
    path: Path
    lock: Path
    size: int


class Cache:
    """`cap`: the most bytes to keep, None for as many as the disk has room for.

    `is_shared`: other users may write the folder. `is_default`: the setting does not name a folder, so that another
    one can be used. `trusted`: see `private.check`.
    """

    def __init__(
        self,
        root: Path,
        cap: int | None,
        *,
        is_shared: bool = False,
        is_default: bool = False,
        trusted: Path | None = None,
    ) -> None:
        self._root = self._named = root
        self._cap = cap
        self.is_shared = is_shared
        self._is_default = is_default
        self._is_fresh = False
        self._trusted = trusted

    @classmethod
    def of(cls, settings: Settings) -> "Cache":
        """Returns the cache that the settings name."""
        return cls(
            settings.cache,
            settings.cache_bytes,
            is_shared=settings.cache_shared,
            is_default=settings.cache_is_default,
            trusted=private.exempt(settings.platform),
        )

    def place(self, *names: str) -> "Place":
        """Returns the place of a version with these names. Raises ModelNotLoadable, OSError."""
        if self._is_default or (self._is_fresh and self._root not in private.FRESH):
            self._root, self._is_default = private.default(self._named, self._trusted), False
            self._is_fresh = self._root in private.FRESH
        # The boot's id is in the name: no write is synchronised, so files from before a crash are not trusted.
        path = self._root / digest(_boot(), *names)
        try:
            path.mkdir(0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._root.mkdir(0o700, parents=True, exist_ok=True)
            path.mkdir(0o700, exist_ok=True)
        if not self.is_shared:
            self._check(path)
        return Place(path, is_shared=self.is_shared)

    def check(self) -> None:
        """Raises ModelNotLoadable if the folder is not fit for any version. Makes the folder."""
        if self._is_default:
            return  # another one is used if it is not fit
        try:
            self._root.mkdir(0o700, parents=True, exist_ok=True)
            if not self.is_shared:
                self._check()
            if not os.access(self._root, os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
        except OSError as error:
            raise unwritable(error) from error

    def _check(self, path: Path | None = None) -> None:
        """Raises ModelNotLoadable if another user could change the content of the folder, or of a place in it."""
        try:
            private.check(self._root, self._root.absolute() if self._is_fresh else self._trusted)
            if path is not None:
                private.check_one(path)
        except NotPrivate as reason:
            raise untrusted(reason) from None

    def make_room(self, model: str, size: int, there: int) -> None:
        """Drops the least recently used entries until `size` bytes fit, `there` of which are on the disk already.

        Entries that are in use stay. Raises DiskShort; ModelNotLoadable beyond the cap.
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
            what = f"model {model!r} has {size} bytes, {free} are free: enlarge DRAGOMAN_CACHE (ephemeral storage)"
            raise DiskShort(what, missing - free)

    def _entries(self) -> Iterator[CachedFolder]:
        for path in self._root.glob("*/*"):
            if path.name.startswith(TRASH):
                shutil.rmtree(path, ignore_errors=True)
                continue
            lock = path.with_name(LOCK if path.name == PARTS else f"{path.name}.lock")
            with suppress(OSError):  # removed meanwhile
                if path.is_dir():
                    yield CachedFolder(lock.stat().st_mtime, path, lock, _allocated(path))


class Place:
    """One version's folder in one store."""

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        self._path = path
        self._is_shared = is_shared
        self.parts = path / PARTS

    def held(self, content: str) -> Folder | None:
        """Returns the complete version, which stays as long as the Folder lives. Returns None if it is not there.

        Raises ModelNotLoadable if another user could have made or changed it.
        """
        folder, name = self._path / content, self._path / f"{content}.lock"
        if not folder.is_dir():
            return None
        lock = _lock(name, fcntl.LOCK_SH)
        if lock is None:
            return None
        try:
            if not self._is_shared:
                private.check_below(folder)
            elif not folder.is_dir():
                raise FileNotFoundError  # noqa: TRY301 - as check_below does
        except FileNotFoundError:
            os.close(lock)
            return None
        except NotPrivate as reason:
            os.close(lock)
            raise untrusted(reason) from None
        return _folder(folder, lock)

    def drop(self, content: str) -> None:
        """Removes a complete version with a wrong content. Raises OSError.

        One that is in use gets another name, under which it is dropped later: it must not be taken for the right one.
        """
        folder = self._path / content
        if not _drop(CachedFolder(0.0, folder, self._path / f"{content}.lock", 0)):
            with suppress(FileNotFoundError):
                folder.rename(self._path / digest(content, os.urandom(8).hex()))

    @contextmanager
    def locked(self, progress: Progress, model: str) -> Iterator[None]:
        """Excludes other fetches into this place. Raises StillLoading at the deadline."""
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
            _unlock(lock)

    def publish(self, content: str) -> Folder:
        """Turns the parts into the complete version, and returns it. The caller holds the lock."""
        folder = self._path / content
        while (lock := _lock(self._path / f"{content}.lock", fcntl.LOCK_SH)) is None:
            time.sleep(POLL[0])  # another process drops an equal version
        try:
            if not folder.is_dir():
                (self.parts / NEW).rename(folder)
        except BaseException:
            os.close(lock)
            raise
        Parts.remove(self.parts)
        return _folder(folder, lock)


def digest(*names: str) -> str:
    """Returns the name of a folder for these names: 32 hexadecimal digits."""
    return sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:32]


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
    """Returns an open file that holds the lock, None if another process or thread holds it."""
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
        os.close(file)  # another process removed this name meanwhile


def _unlock(lock: int) -> None:
    """Ends an exclusive lock, also for a process with a copy of the file, which a model's code has forked meanwhile."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _drop(entry: CachedFolder) -> bool:
    """Removes an entry that is not in use. Returns whether it did."""
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
        _unlock(lock)
    return True


def _allocated(folder: Path) -> int:
    """Returns the bytes on the disk of everything below."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*"))
