"""Decides which folders other users cannot write, from the root of the file system down.

A folder is private if no other user can change what it holds, or put another folder in its place:

- It belongs to this process's user or to root, and neither its group nor others may write it.
- The same is true of each folder above it. There, one that others may write is accepted if it is sticky, as /tmp is:
  in a sticky folder a user can replace no entry of another user.
- Each symbolic link on the way belongs to this process's user or to root, and leads to such a folder.
"""

import atexit
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import ModelNotLoadable

log = logging.getLogger(__name__)
LINKS: Final = 40
"""Symbolic links on the way. More of them are a loop, as for the kernel."""
LAMBDA: Final = Path("/tmp")  # noqa: S108 - Lambda's own
"""Lambda's only folder that can be written. An execution environment is a machine with one user, whatever its mode."""
FRESH: Final[dict[Path, int]] = {}
"""The folders that a process, by its number, has made for itself under secret names: those above are not checked."""
OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(Exception):
    """Another user could change a folder. The message has no path: it is for clients, too."""


def untrusted(reason: NotPrivate) -> ModelNotLoadable:
    """Returns the error for a client whose model is not fetched, because another user could change it."""
    return ModelNotLoadable(
        f"DRAGOMAN_CACHE {reason}: set a folder that only this user can write, or DRAGOMAN_CACHE_SHARED=true"
    )


def unwritable(error: OSError) -> ModelNotLoadable:
    """Returns the error for a client whose model cannot be written to the disk."""
    return ModelNotLoadable(f"DRAGOMAN_CACHE cannot be written: {error.strerror}")


def exempt(platform: str) -> Path | None:
    """Returns the folder of a platform without other users."""
    return LAMBDA if platform == "lambda" else None


def check(folder: Path, trusted: Path | None = None) -> None:
    """Raises NotPrivate, or FileNotFoundError where the folder does not exist.

    `trusted`: a folder that nobody else uses, so that it and those above it are not checked.
    """
    *above, last = _levels(folder)
    _check_above(above, trusted)
    if last != trusted:
        _check_level(last)


def check_parent(folder: Path, trusted: Path | None = None) -> None:
    """Raises NotPrivate if no private folder can be made in a folder. `trusted`: as above."""
    _check_above(_levels(folder), trusted)


def is_private(folder: Path, trusted: Path | None = None) -> bool:
    """Makes the folder if it does not exist, and decides whether it is private. Raises OSError."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    try:
        check(folder, trusted)
    except NotPrivate:
        return False
    return True


def own(folder: Path, platform: str) -> Path:
    """Returns the folder if it is private, else one that cannot exist."""
    with suppress(OSError):
        if is_private(folder, exempt(platform)):
            return folder
    return Path(os.devnull, "none")


def default(root: Path, trusted: Path | None) -> Path:
    """Returns the usual folder if it is private, else one with the user's number, else a new one for this process."""
    for choice in (root, root.with_name(f"{root.name}-{os.geteuid()}")):
        with suppress(OSError):
            if is_private(choice, trusted):
                return choice
    made = fresh(f"{root.name}-", root.parent)
    log.warning(
        "the usual folders for downloads can be changed by other users: %s is used, until this process ends", made
    )
    return made


def fresh(prefix: str, parent: Path | None = None) -> Path:
    """Makes a folder for this process, which `forget` removes. `parent`: default: that of temporary files."""
    from tempfile import mkdtemp  # noqa: PLC0415 - 5 ms of cold start, for rare cases

    made = Path(mkdtemp(prefix=prefix, dir=parent))
    FRESH[made] = os.getpid()
    return made


def remove(made: Path) -> None:
    """Removes a folder of this process; a fork of it leaves the folder alone."""
    import shutil  # noqa: PLC0415 - 5 ms of cold start

    if FRESH.pop(made, None) == os.getpid():
        shutil.rmtree(made, ignore_errors=True)


@atexit.register
def forget() -> None:
    """Removes the folders of this process. A server calls it, because a signal ends that before the interpreter can."""
    for made in [*FRESH]:
        remove(made)


def make_below(folder: Path, path: str) -> None:
    """Makes the private folders for a file. `path`: the file's, relative to a folder that exists."""
    for name in Path(path).parent.parts:
        folder /= name
        folder.mkdir(0o700, exist_ok=True)


def check_one(folder: Path) -> None:
    """Checks a folder in a private one, and nothing above or below it. Raises NotPrivate, OSError."""
    _check_level(folder, "holds a folder that")


def check_below(folder: Path) -> None:
    """Checks everything in a folder, and the folder itself. Raises NotPrivate, OSError."""
    _check_level(folder)
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink():
                raise NotPrivate("has a symbolic link in it")
            _check_level(path, "holds a file that")


def _check_above(levels: Iterable[Path], trusted: Path | None) -> None:
    for level in levels:
        if trusted is None or not trusted.is_relative_to(level):
            _check_level(level, "is below a folder that", sticky=True)


def _levels(folder: Path) -> Iterator[Path]:
    """Yields each folder on the way, resolved, from the root on. Checks the links on the way."""
    left = LINKS
    done, rest = Path("/"), list(folder.absolute().parts[1:])
    yield done
    while rest:
        name = rest.pop(0)
        if name == "..":
            done = done.parent
            continue
        step = done / name
        found = step.lstat()
        if not stat.S_ISLNK(found.st_mode):
            done = step
            yield done
            continue
        _check_owner(found, "is below a link that")
        left -= 1
        if left < 0:
            raise NotPrivate("is below a loop of symbolic links")
        target = Path(os.readlink(step))  # noqa: PTH115 - the text, and not a path
        done = Path("/") if target.is_absolute() else done
        rest = [*(part for part in target.parts if part != "/"), *rest]


def _check_level(level: Path, what: str = "", *, sticky: bool = False) -> None:
    found = level.lstat()
    _check_owner(found, what)
    if found.st_mode & OTHERS and not (sticky and found.st_mode & stat.S_ISVTX):
        raise NotPrivate(f"{what} can be written by other users, who could change models".strip())


def _check_owner(found: os.stat_result, what: str) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise NotPrivate(f"{what} belongs to another user, who could change models".strip())
