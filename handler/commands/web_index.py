"""`dragoman index`: writes the index by which any web server offers a folder of models as a repository."""

import hashlib
from pathlib import Path

from core.errors import counted
from handler.commands import results, staging
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION
from handler.settings import Settings
from handler.stores import paths
from handler.stores.directory import DirectoryStore, changed, is_name, settled
from handler.stores.loose import place_of
from handler.stores.web import index
from handler.stores.web.index import IndexedFile


def run(options: CommandOptions, settings: Settings) -> None:
    """Writes index.json into the folder, whole or not at all. Raises Refused, ServingError."""
    root = paths.local(options.folder)
    if not paths.is_dir(root):
        raise Refused(f"the folder {root} does not exist")
    is_one, found = _paths(root, DirectoryStore(settings._replace(repository=str(root))))
    files = [_indexed(root, path) for path in found]
    if not files:
        raise Refused(f"{root} has no model: expected folders such as {root}/iris/1 with model.onnx")
    staging.write(root / index.FILE, index.write(files))
    models = 1 if is_one else len({each.path.partition("/")[0] for each in files})
    line = f"{root / index.FILE}: {counted(models, 'model')}, {counted(len(files), 'file')}"
    told = f"{line}; its servers need --model-name" if is_one else line
    results.tell(options, told, place=str(root / index.FILE), models=models, files=len(files))


def _paths(root: Path, store: DirectoryStore) -> tuple[bool, list[str]]:
    """Returns whether a folder is one model's own, and the files that its servers would see, in their order."""
    names = store.models()
    place = place_of(root)
    is_one = place is not None and not place.path and (place.is_version or any(map(VERSION.fullmatch, names)))
    if is_one:
        return True, [file.path for file in settled(root) if file.path != index.FILE]
    names = [name for name in names if is_name(name)]
    return False, [f"{name}/{file.path}" for name in names for file in store.files(name)]


def _indexed(root: Path, path: str) -> IndexedFile:
    try:
        with (root / path).open("rb") as content:
            stat = (root / path).stat()
            modified = changed(int(stat.st_mtime)).isoformat()
            return IndexedFile(path, stat.st_size, hashlib.file_digest(content, "sha256").hexdigest(), modified)
    except OSError as error:
        raise Refused(f"{root / path} cannot be read: {error.strerror}") from None
