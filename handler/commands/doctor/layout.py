"""How a repository lies: folders without a number, versions without a model, names that servers do not find."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from core.errors import nearest
from handler.backends import EXPECTED
from handler.commands.doctor.findings import Finding, error, warning
from handler.commands.doctor.tree import Tree
from handler.lifecycle.repository import MARKERS, TRITON, VERSION, Version, folders_of
from handler.settings import ALIKE
from handler.settings.model import FILE
from handler.stores import File
from handler.stores.directory import is_name

ONNX: Final = ".onnx"
LOAD: Final = "load it in a model.py beside it (DRAGOMAN_ALLOW_CODE=true)"
SKLEARN: Final = f"convert it with skl2onnx.to_onnx, or {LOAD}"
TORCH: Final = f"export it with torch.onnx.export(model, args, 'model.onnx'), or {LOAD}"
KERAS: Final = "save it as a SavedModel and run `dragoman convert SAVED_MODEL REPOSITORY/NAME`"
FOREIGN: Final = {
    ".pkl": SKLEARN, ".pickle": SKLEARN, ".joblib": SKLEARN, ".pt": TORCH, ".pth": TORCH, ".safetensors": TORCH,
    ".h5": KERAS, ".keras": KERAS, ".pb": KERAS, ".tflite": KERAS, ".ubj": SKLEARN, ".plan": "give the ONNX file",
}  # fmt: skip
"""Files of models that no runtime here reads, by their ending, with what to do about each."""
SETTINGS: Final = (FILE, TRITON)
NOT_OURS: Final = frozenset(("settings.json", "config.json", "setup.py"))
"""Names near to ours that mean something else: settings.json is MLServer's file for a whole server."""


def of_model(tree: Tree, where: str) -> Finding | None:
    """Returns the finding for a model's folder that was named as a repository; None for a repository."""
    paths = (f"{name}/{file.path}" for name, files in tree.models.items() for file in files)
    marker = next((path for path in paths if _is_version_file(path)), None)
    if marker is None:
        return None
    parent, _, name = where.rstrip("/").rpartition("/")
    cure = f"name the folder above it: {parent or '.'}, whose model is {name!r}"
    what = f"this is a model's folder and not a repository: it has {marker}"
    return error("not-a-repository", where, what, f"{cure}, or set DRAGOMAN_MODEL_NAME={name}")


def examine(tree: Tree, where: str) -> Iterator[Finding]:
    """Yields the faults of the folders. `where`: the repository, as the user named it."""
    if not tree.models and not any(_is_model(file.path) for file in tree.loose):
        cure = f"`dragoman push FOLDER {where.rstrip('/')}/NAME` publishes a model"
        yield error("repository-empty", where, "it has no model", cure)
    for file in tree.loose:
        if _is_model(file.path):
            yield _loose(file.path)
    for name, files in tree.models.items():
        yield from _model(name, files)


def _is_version_file(path: str) -> bool:
    """Decides whether a path, relative to a folder, shows that the folder is a model's: 1/model.onnx."""
    folder, _, name = path.partition("/")
    return bool(VERSION.fullmatch(folder) and name in MARKERS)


def _is_model(name: str) -> bool:
    return name.endswith(ONNX) or name in MARKERS or PurePosixPath(name).suffix in FOREIGN


def _loose(path: str) -> Finding:
    stem, suffix = PurePosixPath(path).stem, PurePosixPath(path).suffix
    what = "lies beside the models' folders, where no server looks"
    if suffix == ONNX:
        name = "NAME" if path in MARKERS else stem
        return error("loose-file", path, what, f"mkdir -p {name}/1 && mv {path} {name}/1/model.onnx")
    if path in MARKERS:
        return error("loose-file", path, what, f"mkdir -p NAME/1 && mv {path} NAME/1/")
    return error("foreign-model", path, "is a file that no runtime of this server reads", FOREIGN[suffix])


def _model(name: str, files: Sequence[File]) -> Iterator[Finding]:
    if not is_name(name):
        what = "no server serves a folder of this name: control characters and \\ are not for names"
        yield error("model-name", name, what, "rename the folder")
        return
    if not files:
        yield warning("model-empty", name, "the folder is empty", f"remove it, or put a model into {name}/1")
        return
    yield from _misnamed_settings(name, files)
    yield from _twice(name, folders_of(files))
    for file in files:
        yield from _misplaced(name, file.path)


def _misnamed_settings(name: str, files: Sequence[File]) -> Iterator[Finding]:
    paths = {file.path for file in files}
    for path in sorted(paths):
        folder, _, last = path.rpartition("/")
        prefix = f"{folder}/" if folder else ""
        if last in SETTINGS or last in NOT_OURS or (folder and not VERSION.fullmatch(folder)):
            continue
        meant = nearest(last.lower(), SETTINGS, ALIKE)
        if meant and prefix + meant not in paths:
            cure = f"mv {name}/{path} {name}/{prefix}{meant}"
            yield error("settings-name", f"{name}/{path}", f"nobody reads it; did you mean {meant}?", cure)


def _twice(name: str, folders: Sequence[Version]) -> Iterator[Finding]:
    by_number: dict[int, list[str]] = {}
    for folder in folders:
        by_number.setdefault(folder.number, []).append(folder.folder)
    for number, same in by_number.items():
        if len(same) > 1:
            first, *others = sorted(same, key=len)
            what = f"{', '.join(sorted(same, key=len))} are all version {number}; {first} is served"
            yield warning("version-twice", name, what, f"remove {name}/{others[0]}, or give it another number")


def _misplaced(name: str, path: str) -> Iterator[Finding]:
    """Yields the finding for a model's file that lies where no server looks."""
    folder, slash, rest = path.partition("/")
    where = f"{name}/{path}"
    if not slash and (path in MARKERS or path.endswith(ONNX)):
        target = f"{name}/1/{'model.onnx' if path.endswith(ONNX) else path}"
        what = "a version's folder is missing: servers look for numbered ones"
        yield error("no-version-folder", where, what, f"mkdir -p {name}/1 && mv {where} {target}")
    elif slash and not VERSION.fullmatch(folder) and (rest in MARKERS or rest.endswith(ONNX)) and "/" not in rest:
        number = VERSION.search(folder)
        what = f"the folder {folder!r} is not a version: expected a plain number below 9 * 10**18"
        yield error("version-name", where, what, f"mv {name}/{folder} {name}/{int(number[0]) if number else 1}")
    elif not VERSION.fullmatch(folder) and _is_version_file(rest):
        what = f"{name} is a repository itself: its model {folder!r} is one level too deep"
        yield error("nested-repository", where, what, f"mv {name}/{folder} . or name {name} as the repository")


def incomplete(name: str, version: Version) -> Finding:
    """Returns the finding for a version's folder without a model."""
    paths, where = sorted(version.paths), f"{name}/{version.folder}"
    what = f"has no {EXPECTED}; its files: {', '.join(paths)[:200]}"
    onnx = next((path for path in paths if path.lower().endswith(ONNX)), None)
    foreign = next((path for path in paths if PurePosixPath(path).suffix in FOREIGN), None)
    if onnx is not None:
        return error("version-incomplete", where, what, f"mv {where}/{onnx} {where}/model.onnx")
    if foreign is not None:
        return error("foreign-model", where, what, FOREIGN[PurePosixPath(foreign).suffix])
    return error("version-incomplete", where, what, f"put the model's file into {where}, or remove the folder")
