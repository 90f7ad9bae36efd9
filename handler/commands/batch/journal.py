"""The output of a batch that may be ended at any moment: which records it has, and whether it is whole.

Three files. OUTPUT.part has a line for each record that is done, in order, and only grows. When it is whole, it is
renamed to OUTPUT. OUTPUT.batch says what it is made of, and stays; its lock excludes other processes.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import numpy as np

from core.encoding import jsonio
from core.records import NamedTuple
from handler.commands.refused import Refused
from handler.edge.batch.runner import Answered

FORM: Final = 1
"""The form of the lines of the output."""
PIECE: Final = 1 << 20
FAILED: Final = re.compile(rb'^\{"index":[0-9]+,"error":', re.MULTILINE)
INDEX: Final = re.compile(rb'\{"index":([0-9]+),')


class OutputOrigin(NamedTuple):
    """What an output is made of. Two with different ones do not belong in one file."""

    input_sha256: str
    format: str
    model: str
    version: str
    signature: str
    form: int = FORM


class OutputProgress(NamedTuple):
    """The progress of an output: its records, and how many of them failed."""

    records: int = 0
    errors: int = 0
    is_whole: bool = False


class OutputFile:
    """Appends answers. Only one process at a time has it, until `close`."""

    def __init__(self, output: Path) -> None:
        """Raises Refused if another process has it, or if it cannot be written."""
        self._output = output
        self._part = output.with_name(output.name + ".part")
        self._journal = output.with_name(output.name + ".batch")
        self._file = -1
        self._made: Callable[[], OutputOrigin] | None = None
        self.standing = OutputProgress()
        try:
            self._lock = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise Refused(f"{self._journal} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.fstat(self._lock).st_ino == self._journal.stat().st_ino
        except OSError:
            is_ours = False
        if not is_ours:  # another one has it, or has just removed it
            self._refuse()

    def _refuse(self) -> NoReturn:
        os.close(self._lock)
        raise Refused(f"another process is writing {self._output}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def version(self) -> str:
        """The version of the model that has answered so far, "" if none has."""
        begun = self._begun()
        return "" if begun is None else str(begun.get("version", ""))

    def open(self, made: Callable[[], OutputOrigin], *, force: bool) -> None:
        """Goes on with an output that was made of the same, or begins one with its first answers. Raises Refused.

        `made`: returns what it is made of. A new output calls it as late as possible, because digests take time.
        `force`: begins anew. An output that is there stays until the new one is complete.
        """
        begun = None if force else self._begun()
        if begun is None:
            if self._output.exists() and not force:
                raise Refused(f"{self._output} exists, and is not the output of a batch; --force replaces it")
            self._made = made
            return
        if (odd := _difference(begun, made())) is not None:
            raise Refused(f"{self._output} was begun with {odd}; --force begins it again")
        is_whole = not self._part.exists()
        self._file = os.open(self._output if is_whole else self._part, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self.standing, size = self._counted()
        if is_whole:
            self.standing = self.standing._replace(is_whole=True)
        else:
            os.ftruncate(self._file, size)

    def _begun(self) -> dict[str, Any] | None:
        """Returns what the output is made of that is there, or that was begun; None if there is none."""
        try:
            entry = json.loads(os.pread(self._lock, PIECE, 0))
        except ValueError:
            return None
        return entry if isinstance(entry, dict) and (self._part.exists() or self._output.exists()) else None

    def _begin(self) -> None:
        """Begins a new output, unless that is done."""
        if self._made is None:
            return
        made, self._made = self._made(), None
        # The part is made before the journal. Without a part, the journal would describe the earlier output.
        self._file = os.open(self._part, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with self._writing():
            os.ftruncate(self._lock, 0)
            os.write(self._lock, json.dumps(made._asdict()).encode())
            os.fsync(self._lock)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Names the output in a failure: the system's calls on a descriptor do not know a name."""
        try:
            yield
        except OSError as error:
            raise Refused(f"{self._output} cannot be written: {error.strerror}") from None

    def _counted(self) -> tuple[OutputProgress, int]:
        """Returns how many lines there are, and their bytes without a last line that is cut off.

        Raises Refused for a file whose lines are not those of a batch.
        """
        records = errors = whole = position = 0
        last = b""
        while piece := os.pread(self._file, PIECE, position):
            position += len(piece)
            text, newline, rest = (last + piece).rpartition(b"\n")
            if newline:
                records += text.count(b"\n") + 1
                errors += len(FAILED.findall(text))
                whole = position - len(rest)
                line = text.rpartition(b"\n")[2]
                found = INDEX.match(line)
                if found is None or int(found[1]) != records - 1:
                    raise Refused(f"{self._output}: line {records} is of another record; --force begins again")
            last = rest
        return OutputProgress(records, errors), whole

    def append(self, answered: Answered) -> None:
        """Appends the answers of the next records. Raises Refused."""
        self._begin()
        start, texts = self.standing.records, answered.texts
        left = memoryview(_lines(start, texts))
        with self._writing():
            while left:
                left = left[os.write(self._file, left) :]
        self.standing = OutputProgress(start + len(texts), self.standing.errors + answered.errors)

    def finish(self) -> None:
        """Gives the output its name. Raises Refused."""
        self._begin()
        with self._writing():
            os.fsync(self._file)
        self._part.rename(self._output)
        self.standing = self.standing._replace(is_whole=True)

    def close(self) -> None:
        if self._file >= 0 and not os.fstat(self._file).st_size and self._part.exists():  # nothing is done yet
            self._part.unlink()
            os.ftruncate(self._lock, 0)
        if not os.fstat(self._lock).st_size:
            self._journal.unlink()
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)


def _lines(start: int, texts: Sequence[bytes]) -> bytes:
    """Returns the lines of some records. `start`: the index of the first one.

    It takes half of the time of a format for each line.
    """
    parts = [b'{"index":', b"", b",", b"", b"}\n"] * len(texts)
    parts[1::5] = jsonio.dumps(np.arange(start, start + len(texts)))[1:-1].split(b",")
    parts[3::5] = texts
    return b"".join(parts)


def digest(path: Path, is_unwanted: Callable[[], bool]) -> str:
    """Returns the SHA-256 of a file, or of its beginning once nobody wants it."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while not is_unwanted() and (piece := file.read(PIECE)):
            found.update(piece)
    return found.hexdigest()


def _difference(begun: dict[str, Any], made: OutputOrigin) -> str | None:
    """Returns the differences in words, None without any."""
    odd = next((name for name, value in made._asdict().items() if begun.get(name) != value), None)
    if odd is None:
        return None
    return (
        "another input" if odd == "input_sha256" else f"{odd} {begun.get(odd)!r}, and now it is {getattr(made, odd)!r}"
    )
