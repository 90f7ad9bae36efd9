"""A repository in a local or mounted directory. Its files are used in place."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import ENAMETOOLONG
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import finalize

from core.errors import ModelNotLoadable, ModelUnavailable, is_harmless, shown
from handler.settings import Settings
from handler.stores import SMALL, File, Folder, Gone, paths, private
from handler.stores.paths import expanded, path_of
from handler.stores.progress import Progress

if TYPE_CHECKING:
    from datetime import datetime

DEEPEST: Final = 16
WALKS: Final = 4
REPOSITORY: Final = "the repository"
LONGEST_NAME: Final = 255
"""Bytes, which is what file systems count."""
STRAY: Final = frozenset(("__pycache__", "lost+found"))
"""Folders that Python and file systems make beside models. The second one can be read by root only."""


class DirectoryStore:
    def __init__(self, settings: Settings) -> None:
        self.uri = settings.repository
        self._root = root_of(self.uri)

    def check(self, _: Progress | None = None) -> None:
        # The path itself is for the log and the operator, not for clients.
        if not is_folder(self._root):
            raise ModelUnavailable("the repository is not a directory: check DRAGOMAN_REPOSITORY")

    def has(self, model: str) -> bool:
        """Decides whether a model's folder can be listed. That reports the faults of the repository."""
        try:
            return is_folder(self._root / model) or not is_folder(self._root)
        except ModelUnavailable:
            return True

    def models(self, _: Progress | None = None) -> Sequence[str]:
        self.check()
        return [entry.name for entry in entries(self._root) if leads_on(entry)]

    def files(self, model: str, _: Progress | None = None) -> Sequence[File]:
        self.check()
        try:
            return settled(self._root / model)
        except ModelUnavailable as error:
            raise ModelUnavailable(error.message.replace(REPOSITORY, f"model {model!r}", 1)) from error.__cause__

    def flaw(self, model: str) -> str:
        """Returns why a model's folder has less than it seems to have; "" if it does not, is empty or is not there."""
        return next(_flaws(self._root / model, f"{model}/"), "")

    def read(self, model: str, path: str, _: Progress | None = None) -> bytes | None:
        return content(self._root / model / path, model, path)

    def fetch(self, model: str, version: str, _files: Sequence[File], _progress: Progress) -> Folder:
        folder = self._root / model / version
        if not is_folder(folder):
            raise Gone(f"version {version} of model {model!r} was removed from the repository")
        return Folder(folder)


def root_of(uri: str) -> Path:
    """Returns the folder of a repository: of a path, or of file://. Raises InvalidSettings."""
    return expanded(path_of(uri)).absolute()


def settled(folder: Path) -> Sequence[File]:
    """Walks a folder. Walks again if a version came or went meanwhile: the walk can have missed both of two.

    Raises ModelUnavailable.
    """
    names, files = _names(folder), list(_walk(folder, ""))
    for _ in range(WALKS):
        again = _names(folder)
        if again == names:
            break
        names, files = again, list(_walk(folder, ""))
    return files


def content(file: Path, model: str, path: str) -> bytes | None:
    """Returns a small file's content, None if it does not exist. Raises ModelUnavailable, ModelNotLoadable."""
    try:
        with file.open("rb") as opened:
            found = opened.read(SMALL + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelUnavailable(f"{path} of model {model!r} cannot be read: {error.strerror}") from error
    if len(found) > SMALL:
        raise ModelNotLoadable(f"{path} of model {model!r} has more than {SMALL} bytes")
    return found


def _walk(folder: Path, prefix: str) -> Iterator[File]:
    """Yields every file below, except hidden ones. Follows links (Kubernetes mounts volumes by them), not loops."""
    depth = prefix.count("/")
    if depth > DEEPEST:
        return
    for entry in entries(folder):
        if leads_on(entry):
            path = folder / entry.name
            if not entry.is_symlink() or not is_loop(path, depth + 1):
                yield from _walk(path, f"{prefix}{entry.name}/")
        elif entry.is_file() and (file := _file(entry, prefix + entry.name)) is not None:
            yield file


def _flaws(folder: Path, prefix: str) -> Iterator[str]:
    """Yields what a folder has instead of files: empty folders, links that lead nowhere, pipes and devices."""
    depth = prefix.count("/")
    for entry in entries(folder):
        path, name = folder / entry.name, shown(prefix + entry.name)
        if not leads_on(entry):
            if not entry.is_file():
                yield f"{name} {'is a link that leads nowhere' if not paths.exists(path) else 'is not a regular file'}"
        elif not entries(path):
            yield f"{name} is an empty folder"
        elif depth <= DEEPEST and not (entry.is_symlink() and is_loop(path, depth)):
            yield from _flaws(path, f"{prefix}{entry.name}/")


def is_loop(link: Path, depth: int) -> bool:
    """Decides whether a link leads to one of the `depth` folders above it. One that leads nowhere does not."""
    with suppress(OSError):
        target = link.stat()
        return any(os.path.samestat(target, above.stat()) for above in islice(link.parents, depth))
    return False


def is_shown(name: str) -> bool:
    """Decides whether a server looks at a file or folder of this name."""
    return name[0] != "." and name not in STRAY


def is_name(text: str) -> bool:
    """Decides whether a model may have this name.

    Without a path separator and a leading dot a name cannot leave the repository's prefix; nor can it break a log line.
    """
    in_place = 0 < len(text) <= LONGEST_NAME and "/" not in text and "\\" not in text
    return in_place and is_shown(text) and is_harmless(text) and len(text.encode(errors="replace")) <= LONGEST_NAME


def is_folder(path: Path) -> bool:
    """Decides whether a folder is there. Raises ModelUnavailable if that cannot be known."""
    try:
        return paths.is_dir(path)
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise _unlisted(error) from error


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Returns a folder's sorted entries without hidden and STRAY ones, none if it is not a folder.

    Raises ModelUnavailable.
    """
    try:
        return sorted((each for each in os.scandir(folder) if is_shown(each.name)), key=lambda each: each.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unlisted(error) from error


def leads_on(entry: os.DirEntry[str]) -> bool:
    """Decides whether an entry is a folder. A link that cannot be followed counts as one: its listing says why."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in entries(folder)]


def _file(entry: os.DirEntry[str], path: str) -> File | None:
    """Returns the file, None if it was removed since its folder was read. Raises ModelUnavailable."""
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unlisted(error) from error
    return File(path, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_ino}")


def _unlisted(error: OSError) -> ModelUnavailable:
    return ModelUnavailable(f"{REPOSITORY} cannot be listed: {error.strerror}")


def changed(seconds: float) -> "datetime":
    """Returns the time of a file's last change. Disks keep times beyond the year 9999, as a broken clock sets them."""
    from datetime import UTC, datetime  # noqa: PLC0415 - 1 ms of cold start, for commands

    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OSError, OverflowError, ValueError):
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)


def empty() -> Folder:
    """Returns the folder of a version without files. It goes with its version."""
    folder = Folder(private.fresh("dragoman-"))
    finalize(folder, private.remove, folder.path)
    return folder
