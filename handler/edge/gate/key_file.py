"""A file of keys: read at the start, and again when it has changed."""

import time
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the file."""


class KeyFile:
    """`largest`: the most bytes that are read. Its methods raise OSError, ValueError."""

    def __init__(self, path: Path, largest: int) -> None:
        self._path = path
        self._largest = largest
        self._known: tuple[int, int, int] | None = None
        self._look = 0.0

    def read(self) -> bytes:
        """Returns the content. If that fails, the next look tries again."""
        facts = self._facts()
        size = facts[1]
        if size > self._largest:
            raise ValueError(f"the file has {size} bytes; at most {self._largest} are read")
        content = self._path.read_bytes()
        self._known = facts  # which are older than the content
        return content

    def changed(self) -> bytes | None:
        """Returns the content if it is time to look, and the file is not the one that was read last."""
        now = time.monotonic()
        if now < self._look:
            return None
        self._look = now + LOOK_SECONDS
        return None if self._facts() == self._known else self.read()

    def _facts(self) -> tuple[int, int, int]:
        """Returns what tells a file from the one before it. Files that a build has made all have the same time."""
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
