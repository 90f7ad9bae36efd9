"""How a repository lies: folders without a number, versions without a model, names that servers do not find."""

import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from core.errors import nearest
from core.records import NamedTuple
from handler.backends import EXPECTED
from handler.commands.doctor.findings import Finding, error, warning
from handler.commands.doctor.tree import Tree
from handler.lifecycle.repository import MARKERS, VERSION, Version, folders_of
from handler.settings import ALIKE, routing
from handler.settings.model import FILE
from handler.settings.triton import FILE as TRITON
from handler.stores import File
from handler.stores.directory import is_name
from handler.stores.paths import expanded

ONNX: Final = ".onnx"
CONVERT: Final = "`dragoman convert` makes an ONNX model of it: docs/convert.md"
PICKLE: Final = "`dragoman convert --allow-pickle` makes an ONNX model of it: docs/convert.md"
TORCH: Final = "save it with torch.export, for `dragoman convert`, or export it with torch.onnx.export"
KERAS: Final = "save it as .keras or as a SavedModel, for `dragoman convert`"
FOREIGN: Final = {
    ".skops": CONVERT, ".pkl": PICKLE, ".pickle": PICKLE, ".joblib": PICKLE, ".ubj": CONVERT, ".cbm": CONVERT,
    ".bst": "save it as .ubj, for `dragoman convert`", ".keras": CONVERT, ".pb": CONVERT, ".pt2": CONVERT,
    ".pt": TORCH, ".pth": TORCH, ".safetensors": TORCH, ".h5": KERAS, ".tflite": KERAS, ".plan": "give the ONNX file",
}  # fmt: skip
"""Files of models that no runtime here reads, by their ending, with what to do about each."""
SETTINGS: Final = (FILE, TRITON)
NOT_OURS: Final = frozenset(("settings.json", "config.json", "setup.py"))
"""Names near to ours that mean something else: settings.json is MLServer's file for a whole server."""

COPIES: Final = ("~", ".bak", ".orig", ".example")
"""Endings of files that are kept on purpose, or by an editor: the cure would let servers read them."""


class NamedRepository(NamedTuple):
    """The repository whose findings have cures. `uri`: as the user named it, so that commands run where doctor ran."""

    uri: str

    def moved(self, source: str, target: str) -> str:
        """Returns the cure that renames a file or folder. `target`: a free name in the same folder.

        Both paths are relative to the repository.
        """
        if "://" in self.uri:
            return f"move {source} to {target}"
        return f"mv -n {self.path(source)} {self.path(target)}"

    def published(self, source: str, name: str) -> str:
        """Returns the cure that makes a version of a model's file, which has other files beside it, perhaps."""
        if "://" in self.uri:
            return f"move it, and the files of its weights, to {name}/1, or to another number that is free"
        return f"dragoman push {self.path(source)} {self.path(name)}; then remove it"

    def made(self, name: str) -> str:
        """Returns the cure for a model without a version."""
        pushed = f"`dragoman push FOLDER {self.path(name)}`"
        if "://" in self.uri:
            return f"put model.onnx into {name}/1, or {pushed}"
        return f"mkdir {self.path(f'{name}/1')} and put model.onnx there, or {pushed}"

    def path(self, relative: str) -> str:
        """Returns a path in the repository as a shell reads it, which does not expand a `~` in quotes."""
        uri = os.path.expanduser(self.uri)  # noqa: PTH111 - the text, with ./ at its beginning
        return shlex.quote(f"{uri.rstrip('/')}/{relative}")


def of_model(tree: Tree, where: str) -> Finding | None:
    """Returns the finding for a model's folder that was named as a repository; None for a repository."""
    paths = (f"{name}/{file.path}" for name, files in tree.models.items() for file in files)
    marker = next((path for path in paths if _is_version_file(path)), None)
    if marker is None:
        return None
    place = where if "://" in where else os.path.abspath(expanded(where))  # noqa: PTH100 - of `..`, too
    parent, _, name = place.rstrip("/").rpartition("/")
    cure = f"name the folder above it: {parent or '/'}, whose model is {name!r}"
    what = f"this is a model's folder and not a repository: it has {marker}"
    return error("not-a-repository", where, what, f"{cure}, or set DRAGOMAN_MODEL_NAME={shlex.quote(name)}")


def examine(tree: Tree, where: str) -> Iterator[Finding]:
    """Yields the faults of the folders. `where`: the repository, as the user named it."""
    if tree.is_whole and not tree.models and not any(_is_model(file.path) for file in tree.loose):
        cure = f"`dragoman push FOLDER {NamedRepository(where).path('NAME')}` publishes a model"
        yield error("repository-empty", where, "it has no model", cure)
    at = NamedRepository(where)
    for file in tree.loose:
        if _is_model(file.path):
            yield _loose(at, file.path)
    for name, files in tree.models.items():
        yield from _model(at, name, files)


def _is_version_file(path: str) -> bool:
    """Decides whether a path, relative to a folder, shows that the folder is a model's: 1/model.onnx."""
    folder, _, name = path.partition("/")
    return bool(VERSION.fullmatch(folder) and name in MARKERS)


def _is_model(name: str) -> bool:
    return name.endswith(ONNX) or name in MARKERS or PurePosixPath(name).suffix in FOREIGN


def _loose(at: NamedRepository, path: str) -> Finding:
    stem, suffix = PurePosixPath(path).stem, PurePosixPath(path).suffix
    if suffix == ONNX or path in MARKERS:
        what = "lies beside the models' folders, where no server looks"
        return error("loose-file", path, what, at.published(path, "NAME" if path in MARKERS else stem))
    return error("foreign-model", path, "is a file that no runtime of this server reads", FOREIGN[suffix])


def _model(at: NamedRepository, name: str, files: Sequence[File]) -> Iterator[Finding]:
    if not is_name(name):
        what = "no server serves a folder of this name: control characters and \\ are not for names"
        yield error("model-name", name, what, "rename the folder")
        return
    if not files:
        yield warning("model-empty", name, "the folder is empty", f"remove it, or put a model into {name}/1")
        return
    folders = folders_of(files)
    yield from _misnamed_settings(at, name, files)
    yield from _twice(name, folders)
    numbers = {folder.folder: folder.number for folder in folders}
    for file in files:
        yield from _misplaced(at, name, file.path, numbers)


def _misnamed_settings(at: NamedRepository, name: str, files: Sequence[File]) -> Iterator[Finding]:
    paths = {file.path for file in files}
    for path in sorted(paths):
        folder, _, last = path.rpartition("/")
        prefix = f"{folder}/" if folder else ""
        ours = (FILE,) if folder else SETTINGS  # a server looks for Triton's in the model's folder alone
        if last in SETTINGS or last in NOT_OURS or last.endswith(COPIES) or (folder and not VERSION.fullmatch(folder)):
            continue
        meant = nearest(last.lower(), ours, ALIKE)
        if meant and prefix + meant not in paths:
            cure = at.moved(f"{name}/{path}", f"{name}/{prefix}{meant}")
            yield warning("settings-name", f"{name}/{path}", f"nobody reads it; did you mean {meant}?", cure)


def _twice(name: str, folders: Sequence[Version]) -> Iterator[Finding]:
    by_number: dict[int, list[str]] = {}
    for folder in folders:
        by_number.setdefault(folder.number, []).append(folder.folder)
    for number, same in by_number.items():
        if len(same) > 1:
            first, *others = sorted(same, key=len)
            what = f"{', '.join(sorted(same, key=len))} are all version {number}; {first} is served"
            yield warning("version-twice", name, what, f"remove {name}/{others[0]}, or give it another number")


def _misplaced(at: NamedRepository, name: str, path: str, numbers: dict[str, int]) -> Iterator[Finding]:
    """Yields the finding for a model's file that lies where no server looks.

    `numbers`: of the model's versions, by folder. A misnamed folder gets the next free one.
    """
    folder, slash, rest = path.partition("/")
    where = f"{name}/{path}"
    if not slash and (path in MARKERS or path.endswith(ONNX)):
        what = "a version's folder is missing: servers look for numbered ones"
        yield error("no-version-folder", where, what, at.published(where, name))
    elif slash and not VERSION.fullmatch(folder) and (rest in MARKERS or rest.endswith(ONNX)) and "/" not in rest:
        if folder not in numbers:
            numbers[folder] = _free(folder, numbers.values())
        what = f"the folder {folder!r} is not a version: expected a plain number below 9 * 10**18"
        yield error("version-name", where, what, at.moved(f"{name}/{folder}", f"{name}/{numbers[folder]}"))
    elif not VERSION.fullmatch(folder) and _is_version_file(rest):
        what = f"{name} is a repository itself: its model {folder!r} is one level too deep"
        yield error("nested-repository", where, what, f"move {folder!r} one level up, or name {name} as the repository")


def _free(folder: str, taken: Collection[int]) -> int:
    """Returns the number in a folder's name, or else 1, if it is free; else the one after the highest, if it can be."""
    found = VERSION.search(folder)
    number = int(found[0]) if found else 1
    return number if number not in taken else routing.free(taken)


def incomplete(where: str, name: str, version: Version) -> Finding:
    """Returns the finding for a version's folder without a model. `where`: the repository, as the user named it."""
    paths, folder = sorted(version.paths), f"{name}/{version.folder}"
    what = f"has no {EXPECTED}; its files: {', '.join(paths)[:200]}"
    onnx = next((path for path in paths if path.lower().endswith(ONNX)), None)
    foreign = next((path for path in paths if PurePosixPath(path).suffix in FOREIGN), None)
    if onnx is not None:
        return error(
            "version-incomplete", folder, what, NamedRepository(where).moved(f"{folder}/{onnx}", f"{folder}/model.onnx")
        )
    if foreign is not None:
        return error("foreign-model", folder, what, FOREIGN[PurePosixPath(foreign).suffix])
    cure = f"put {EXPECTED} into {folder}, or remove the folder; other libraries' models: docs/convert.md"
    return error("version-incomplete", folder, what, cure)
