"""Makes files and folders of a local repository appear by one rename: complete, or not at all."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from typing import Final

from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION

ABANDONED_SECONDS: Final = 24 * 60 * 60
"""From the last write in a folder until it counts as left. A mounted disk's clock can differ from this machine's."""
NEW, OLD = "new", "old-"
"""The names in a hidden folder of the version that is to appear, and of those whose place it takes."""


def of_number(model: Path, number: int) -> list[Path]:
    """Returns a model's folders of that number: 1 and 001 are both number 1."""
    if not model.is_dir():
        return []
    return [entry for entry in model.iterdir() if VERSION.fullmatch(entry.name) and int(entry.name) == number]


def has_files(folder: Path) -> bool:
    """Decides whether a listing would show anything of a folder, or of a file of its name."""
    return not folder.is_dir() or any(not entry.name.startswith(".") for entry in folder.iterdir())


@contextmanager
def staged(parent: Path, prefix: str) -> Iterator[Path]:
    """Yields a folder on the target's file system, for NEW. Servers skip its name, which has a leading dot.

    Removes those that killed commands have left. Raises Refused.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _clear(parent, prefix)
        stage = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise _refused(parent, error) from None
    try:
        yield stage
    except OSError as error:
        raise _refused(parent, error) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _clear(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}????????"):  # as mkdtemp names them
        with suppress(OSError):
            if time.time() - _last_write(left) > ABANDONED_SECONDS and not _is_half_replaced(left):
                shutil.rmtree(left)


def _last_write(folder: Path) -> float:
    return max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))


def _is_half_replaced(stage: Path) -> bool:
    """Decides whether a command was killed between the renames of `appear`: no other place has the old version then."""
    return (stage / NEW).exists() and any(stage.glob(f"{OLD}*"))


def _refused(parent: Path, error: OSError) -> Refused:
    if isinstance(error, FileExistsError):  # of a mkdir
        return Refused(f"{error.filename} is not a folder")
    return Refused(f"{parent} cannot be written: {error.strerror}")


def appear(new: Path, target: Path, old: Sequence[Path], stage: Path) -> None:
    """Renames `new` to `target`, in the place of the `old` folders. Raises Refused if another publisher was first."""
    aside = {stage / f"{OLD}{index}": each for index, each in enumerate(old)}
    try:
        for place, each in aside.items():
            each.rename(place)
        new.rename(target)
    except BaseException as error:
        for place, each in aside.items():
            with suppress(OSError):
                place.rename(each)
        if isinstance(error, OSError) and error.errno in (EEXIST, ENOTEMPTY):
            raise Refused(f"{target} has been written by somebody else meanwhile") from None
        raise
    sync(target.parent)


def write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, without a rest, also after a power failure. Raises Refused."""
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")  # two commands can write one file at a time
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            raise Refused(f"{path.parent} cannot be written: {error.strerror}") from None
        raise


def sync(folder: Path) -> None:
    """Writes the folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
