"""Files on this machine on their way into a repository, and the checksums of their content."""

import hashlib
import io
import mmap
import os
import stat
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from core.records import NamedTuple
from handler.commands.meter import Meter
from handler.commands.refused import Refused

CHUNK: Final = 1024 * 1024


class LocalFile(NamedTuple):
    """A file. `path`: in the version's folder, with slashes. `source`: its local path. `size`: bytes at its listing."""

    path: str
    source: Path
    size: int


class Content(NamedTuple):
    """Checksums of a file. `sha256`: of the whole. `md5s`: in base64, of each part. `stamp`: changes with the file."""

    sha256: str
    md5s: tuple[str, ...]
    part_size: int
    stamp: tuple[int, int]


def local_file(path: str, source: Path) -> LocalFile:
    """Returns the file with its size. Raises Refused, also for a pipe, which would be read without end."""
    try:
        found = source.stat()
    except OSError as error:
        raise Refused(f"{source} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{source} is neither a file nor a folder: remove it")
    return LocalFile(path, source, found.st_size)


def stamp(source: Path) -> tuple[int, int]:
    found = source.stat()
    return found.st_size, found.st_mtime_ns


def digest(file: LocalFile) -> str:
    """Returns the SHA-256 of a file. Raises Refused."""
    try:
        with file.source.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise Refused(f"{file.source} cannot be read: {error.strerror}") from None


def content(source: Path, part_size: int, meter: Meter) -> Content:
    """Reads the file once for all its checksums. Raises Refused."""
    whole, md5s = hashlib.sha256(), []
    try:
        before = stamp(source)
        with source.open("rb") as file:
            for part in _parts(file, part_size):
                md5 = hashlib.md5(usedforsecurity=False)
                for chunk in part:
                    whole.update(chunk)
                    md5.update(chunk)
                    meter.add(len(chunk))
                md5s.append(b64encode(md5.digest()).decode())
    except OSError as error:
        raise Refused(f"{source} cannot be read: {error.strerror}") from None
    return Content(whole.hexdigest(), tuple(md5s), part_size, before)


def _parts(file: io.BufferedReader, part_size: int) -> Iterator[Iterator[bytes]]:
    """Yields the file's parts: at least one, which can be empty."""
    size = os.fstat(file.fileno()).st_size
    for start in range(0, max(size, 1), part_size):
        yield _chunks(file, min(part_size, size - start))


def _chunks(file: io.BufferedReader, left: int) -> Iterator[bytes]:
    while left and (chunk := file.read(min(CHUNK, left))):
        left -= len(chunk)
        yield chunk


class CommandStopped(BaseException):
    """The command ends. botocore would retry an Exception, but does not retry this."""


class Section(io.RawIOBase):
    """`size` bytes of a file from `start` on, as the body of a request. The meter counts the bytes that are sent.

    `counting`: whether a read is for sending. Signing reads the bytes, too.
    """

    def __init__(self, source: Path, start: int, size: int, meter: Meter, stop: threading.Event) -> None:
        super().__init__()
        self._file = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        self._start, self._size = start, size
        self._at = self._told = 0
        self._meter, self._stop = meter, stop
        self.counting = False

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()

    def mapped(self) -> bytes | mmap.mmap:
        """Returns all bytes without reading them: the system reads each when it is sent. Only for whole files."""
        return mmap.mmap(self._file, self._size, access=mmap.ACCESS_READ) if self._size else b""

    def check(self) -> None:
        """Raises CommandStopped after Ctrl-C, or once another file has failed."""
        if self._stop.is_set():
            raise CommandStopped

    def sent(self) -> None:
        """Counts all bytes, where the client reads them by itself."""
        self._meter.add(self._size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves, and takes back the count of bytes that will be sent again."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        if self._at < self._told:
            self._meter.add(self._at - self._told)
            self._told = self._at
        return self._at

    def readinto(self, buffer: Any) -> int:
        self.check()
        view = memoryview(buffer)[: max(0, self._size - self._at)]
        read = os.preadv(self._file, [view], self._start + self._at)
        self._at += read
        if self.counting and self._at > self._told:
            self._meter.add(self._at - self._told)
            self._told = self._at
        return read
