"""Finds the files to push: a version's files, or a model's folder of numbered versions."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.records import NamedTuple
from handler.backends import BACKENDS, PIPELINE
from handler.commands.publish import external
from handler.commands.publish.files import LocalFile, local_file
from handler.commands.refused import Refused, WrongOption
from handler.lifecycle.repository import VERSION
from handler.settings.checked import Wrong, members_of
from handler.settings.model import FILE
from handler.settings.triton import FILE as TRITON
from handler.stores import paths

MARKERS: Final = tuple(backend.marker for backend in BACKENDS.values())
BY_SUFFIX: Final = {Path(marker).suffix: marker for marker in MARKERS}
SKIPPED: Final = "__pycache__"


class LocalVersion(NamedTuple):
    """A version on this machine. `number`: its folder's, None if that has none. `folder`: None for a single file."""

    number: int | None
    files: tuple[LocalFile, ...]
    folder: Path | None

    @property
    def last(self) -> str:
        """The file that completes the version: its marker, or the settings that name a third party's runtime."""
        paths = [file.path for file in self.files]
        return next((path for path in (*MARKERS, FILE) if path in paths), paths[-1])

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def source(self, path: str) -> Path | None:
        return next((file.source for file in self.files if file.path == path), None)


class PushJob(NamedTuple):
    """A version to push. `settings`: the model's own, if they are pushed with this version."""

    model: str
    number: int
    version: LocalVersion
    settings: Path | None
    force: bool

    def has(self, path: str) -> bool:
        """Decides whether a path in the model's folder is a file of this version. Its folder can be 1 or 01."""
        folder, _, name = path.partition("/")
        return bool(VERSION.fullmatch(folder)) and int(folder) == self.number and name[-1:] not in ("", "/")

    @property
    def refusal(self) -> Refused:
        """The refusal of the second of two pushes."""
        what = f"version {self.number} of {self.model!r}"
        return Refused(f"{what} is being pushed by somebody else, or just was; this push stops")


class Found(NamedTuple):
    """The versions to push. `settings`: the model's own, beside its versions."""

    versions: tuple[LocalVersion, ...]
    settings: Path | None


def find(path: Path, wanted: int | None) -> Found:
    """Finds the versions in a file or folder. `wanted`: --version. Raises Refused."""
    if paths.is_file(path):
        return Found((LocalVersion(None, _single(path), None),), None)
    if not paths.is_dir(path):
        raise Refused(f"there is no file or folder {path}")
    numbered = _numbered(path)
    if not numbered or any((path / marker).is_file() for marker in MARKERS):
        return Found((LocalVersion(None, _files(path), path),), None)
    if wanted is not None:
        numbered = [each for each in numbered if each.number == wanted]
        if not numbered:
            raise Refused(f"{path} has no version {wanted}")
    settings = path / FILE
    return Found(tuple(numbered), settings if settings.is_file() else None)


def number(text: str | None) -> int | None:
    """Parses --version. Raises WrongOption."""
    if text is None:
        return None
    if not VERSION.fullmatch(text):
        raise WrongOption(f"--version is {text!r}; expected a whole number below 9 * 10**18")
    return int(text)


def _numbered(path: Path) -> list[LocalVersion]:
    """Returns the versions in ascending order. Prefers the plain name, 1 before 001, as servers do."""
    folders = [entry for entry in path.iterdir() if VERSION.fullmatch(entry.name) and entry.is_dir()]
    chosen = {int(folder.name): folder for folder in sorted(folders, key=lambda each: len(each.name), reverse=True)}
    return [LocalVersion(each, _files(chosen[each]), chosen[each]) for each in sorted(chosen)]


def _single(path: Path) -> tuple[LocalFile, ...]:
    marker = BY_SUFFIX.get(path.suffix)
    if marker is None:
        raise Refused(
            f"{path} is not a model file; expected *.onnx, *.py or pipeline.json. `dragoman convert` makes an ONNX "
            "model of other libraries' files"
        )
    beside = external.locations(path) if marker.endswith(".onnx") else ()
    return (local_file(marker, path), *(local_file(each, path.parent / each) for each in beside))


def _files(folder: Path) -> tuple[LocalFile, ...]:
    files = tuple(local_file(each, folder / each) for each in _paths(folder))
    if not files:
        outside = pipeline_outside(folder.absolute().parent)
        cure = f": put the pipeline of {outside} into {folder / PIPELINE}" if outside is not None else ""
        raise Refused(f"{folder} is empty{cure}")
    return files


def pipeline_outside(model: Path) -> Path | None:
    """Returns the file of a model's own settings that has its pipeline or ensemble, None without one."""
    said, triton = model / FILE, model / TRITON
    if said.is_file():
        with suppress(Wrong):
            if members_of(said.read_bytes()).get("pipeline") is not None:
                return said
    return triton if triton.is_file() and b"ensemble_scheduling" in triton.read_bytes() else None


def _paths(folder: Path) -> Iterator[str]:
    """Yields the paths of all files below, except hidden ones and compiled Python. Follows links to files.

    Raises Refused for a link to a folder, which can lead back.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each != SKIPPED)
        for each in folders:
            if (link := Path(parent) / each).is_symlink():
                raise Refused(f"{link} is a symbolic link to a folder: put the folder itself there")
        for name in sorted(names):
            if not name.startswith("."):
                yield _plain((Path(parent) / name).relative_to(folder).as_posix())


def _plain(path: str) -> str:
    if "\\" in path or not path.isprintable():
        raise Refused(f"{path!r} has a backslash or a control character in its name, which servers do not fetch")
    return path


def missing(version: LocalVersion, paths: Sequence[str]) -> list[str]:
    present = {file.path for file in version.files}
    return [path for path in paths if path not in present]
