"""The files of a version that is being fetched. Bytes that have arrived survive the end of the process.

    journal           one JSON array a line: ["object", path, size, ETag, algorithm, checksum] begins a file anew;
                      ["checksum", path, algorithm, checksum] adds what the store sent later;
                      ["range", path, start, end] records that these bytes are there
    <hash>.partial    an unfinished file: it has its full length from the beginning, and is filled in any order
    new/<path>        a complete and verified file

The journal is written after the data, so that it never records too much. A line that is cut short is ignored, and its
bytes are fetched again. No write waits for the disk: after a crash of the machine another cache is used. One process
at a time uses a folder (see `cache`), with any number of threads.
"""

import json
import os
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from core.errors import ModelNotLoadable
from core.records import NamedTuple
from handler.stores import checksums
from handler.stores.checksums import Checksum
from handler.stores.private import make_below

JOURNAL: Final = "journal"
NEW: Final = "new"


class Identity(NamedTuple):
    """The content that a partial file belongs to. `size`: in bytes. `etag`: empty if the store has none."""

    size: int
    etag: str
    checksum: Checksum | None


class Parts:
    """The files of one version. Raises OSError, ModelNotLoadable if the disk is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[Identity, list[tuple[int, int]]]] = {}
        self._lock = threading.Lock()
        self.is_new = True
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            self.is_new = False
        (folder / NEW).mkdir(0o700, exist_ok=True)
        self._journal = os.open(folder / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._replay()

    def _replay(self) -> None:
        size = os.fstat(self._journal).st_size
        content = os.pread(self._journal, size, 0)
        for line in content.splitlines():
            try:
                self._read(json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError):
                continue  # cut short
        if content and not content.endswith(b"\n"):
            _write(self._journal, b"\n")

    def _read(self, line: list[Any]) -> None:
        kind, path, *rest = line
        if kind == "object":
            size, etag, algorithm, value = rest
            checksum = Checksum(algorithm, value) if algorithm else None
            self._known[path] = Identity(size, etag, checksum), []
        elif kind == "checksum":
            identity, ranges = self._known[path]
            self._known[path] = identity._replace(checksum=Checksum(*rest)), ranges
        else:
            start, end = rest
            self._known[path][1].append((int(start), int(end)))

    def part(self, path: str, size: int, etag: str) -> "Part":
        """Returns a file with the bytes of this content that have arrived. `path`: relative to the version's folder."""
        identity, ranges = self._known.get(path, (None, []))
        same = identity is not None and identity[:2] == (size, etag) and etag
        return Part(self, path, identity if same else None, ranges)

    def keep(self, parts: Iterable["Part"]) -> None:
        """Removes everything but these: other files, and other contents of these files."""
        if self.is_new:
            return
        kept = {self.folder / JOURNAL, self.folder / NEW, *(part.there for part in parts)}
        for path in sorted(self.folder.rglob("*"), reverse=True):  # a folder's entries come before it
            if path in kept:
                continue
            if path.is_dir():
                with suppress(OSError):  # it is not empty
                    path.rmdir()
            else:
                path.unlink()

    def record(self, *line: Any) -> None:
        """Appends a line to the journal."""
        with self._lock:
            _write(self._journal, json.dumps(line).encode() + b"\n")

    def allocated(self) -> int:
        """Returns the bytes on the disk of all files."""
        if not self._known:
            return 0
        return sum(file.lstat().st_blocks * 512 for file in self.folder.rglob("*") if file.is_file())

    def close(self) -> None:
        os.close(self._journal)

    @staticmethod
    def remove(folder: Path) -> None:
        """Removes the folder, after `new` was renamed."""
        try:
            (folder / JOURNAL).unlink()
            folder.rmdir()
        except OSError:  # it has other entries
            shutil.rmtree(folder, ignore_errors=True)


class Part:
    """One file. `identity`: None if nothing of it is there. `ranges`: the bytes that are there, merged."""

    def __init__(self, parts: Parts, path: str, identity: Identity | None, ranges: list[tuple[int, int]]) -> None:
        self._parts = parts
        self._path = path
        self._file = -1
        self._partial = parts.folder / f"{sha256(path.encode(errors='surrogateescape')).hexdigest()[:32]}.partial"
        self._final = parts.folder / NEW / path
        self.identity = identity
        self.complete = False
        self.ranges: list[tuple[int, int]] = []
        if identity is not None:
            self.complete = _size(self._final) == identity.size
            there = _size(self._partial) == identity.size and not self.complete
            self.ranges = merged(ranges, identity.size) if there else []

    @property
    def there(self) -> Path | None:
        """Returns the file with the bytes that have arrived, None if there are none."""
        if self.complete:
            return self._final
        return self._partial if self.ranges else None

    def begin(self, identity: Identity) -> None:
        """Begins the file anew, whatever was there."""
        self.close()
        if self.identity is not None or not self._parts.is_new:
            self._final.unlink(missing_ok=True)
            self._partial.unlink(missing_ok=True)
        self.identity, self.complete, self.ranges = identity, False, []
        checksum = identity.checksum or (None, None)
        self._parts.record("object", self._path, identity.size, identity.etag, *checksum)
        self._open()
        os.ftruncate(self._file, identity.size)

    def forget(self) -> None:
        """Drops the bytes that have arrived, because they are wrong."""
        self.close()
        self._partial.unlink()

    def doubt(self, wanted: Checksum) -> None:
        """Drops a complete file that does not have this checksum: perhaps it was fetched without one."""
        if self.complete and self.there is not None:
            self.complete = checksums.is_of(wanted, self.there)
            if not self.complete:
                self._final.unlink()
                self.identity = None

    def learn(self, checksum: Checksum) -> None:
        """Records the checksum that the content must have."""
        if self.identity is not None:
            self.identity = self.identity._replace(checksum=checksum)
            self._parts.record("checksum", self._path, *checksum)

    def resume(self) -> None:
        """Opens the file, to go on with it."""
        if self._file < 0 and not self.complete:
            self._open()

    def _open(self) -> None:
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: memoryview, position: int) -> None:
        """Writes all bytes, from `position` of the file on. `save` records them."""
        while data:
            written = os.pwrite(self._file, data, position)
            data, position = data[written:], position + written

    def save(self, start: int, end: int) -> None:
        """Records that these bytes have been written."""
        self._parts.record("range", self._path, start, end)

    def read(self, count: int, position: int) -> bytes:
        return os.pread(self._file, count, position)

    def finish(self) -> None:
        """Renames the file to its final name. Every byte is there and has been verified."""
        self.close()
        try:
            self._partial.rename(self._final)
        except FileNotFoundError:
            make_below(self._parts.folder / NEW, self._path)
            self._partial.rename(self._final)
        self.complete = True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def merged(ranges: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Returns the same bytes in ascending ranges that do not touch, without ranges outside of the file."""
    together: list[tuple[int, int]] = []
    for start, end in sorted(span for span in ranges if 0 <= span[0] < span[1] <= size):
        if together and start <= together[-1][1]:
            together[-1] = together[-1][0], max(end, together[-1][1])
        else:
            together.append((start, end))
    return together


def gaps(ranges: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Returns the bytes that are missing between merged ranges."""
    edges = [0, *(edge for span in ranges for edge in span), size]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _write(file: int, data: bytes) -> None:
    if os.write(file, data) != len(data):
        raise ModelNotLoadable("DRAGOMAN_CACHE is full: enlarge it (ephemeral storage)")
