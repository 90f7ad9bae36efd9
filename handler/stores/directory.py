"""A repository in a local or mounted directory; its files are used where they are."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from core.errors import ModelUnavailable
from handler.progress import Progress
from handler.settings import Settings
from handler.stores import File, Folder

DEEPEST: Final = 16


class DirectoryStore:
    def __init__(self, settings: Settings) -> None:
        self.uri = settings.repository
        path = unquote(urlsplit(self.uri).path) if self.uri.startswith("file://") else self.uri
        self._root = Path(path).expanduser().absolute()

    def check(self, _: Progress | None = None) -> None:
        # The path itself is for the log and the operator, not for clients.
        if not self._root.is_dir():
            raise ModelUnavailable("the repository is no directory: check DRAGOMAN_REPOSITORY")

    def models(self, _: Progress | None = None) -> Sequence[str]:
        self.check()
        return sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir() and entry.name[0] != ".")

    def files(self, model: str, _: Progress | None = None) -> Sequence[File]:
        self.check()
        return list(_walk(self._root / model, ""))

    def read(self, model: str, path: str, _: Progress | None = None) -> bytes | None:
        try:
            return (self._root / model / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModelUnavailable(f"{path} of model {model!r} cannot be read: {error.strerror}") from error

    def fetch(self, model: str, version: str, _files: Sequence[File], _progress: Progress) -> Folder:
        folder = self._root / model / version
        if not folder.is_dir():
            raise ModelUnavailable(f"version {version} of model {model!r} has gone from the repository")
        return Folder(folder)


def _walk(folder: Path, prefix: str) -> Iterator[File]:
    """Every file below, hidden ones apart. Links are followed (Kubernetes mounts volumes through them), not loops."""
    if prefix.count("/") > DEEPEST:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ModelUnavailable(f"the repository cannot be listed: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(folder / entry.name, f"{prefix}{entry.name}/")
        elif entry.is_file():
            stat = entry.stat()
            yield File(prefix + entry.name, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_ino}")
