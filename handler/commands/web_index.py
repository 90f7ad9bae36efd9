"""`dragoman index`: writes the index by which any web server offers a folder of models as a repository."""

import hashlib
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from handler.commands import results
from handler.commands.refused import Refused
from handler.lifecycle.repository import NAME, VERSION
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from handler.stores.web import index
from handler.stores.web.index import IndexedFile


def run(options: Namespace, settings: Settings) -> None:
    """Writes index.json into the folder, whole or not at all. Raises Refused, ServingError."""
    root = Path(options.folder)
    if not root.is_dir():
        raise Refused(f"there is no folder {root}")
    files = list(_files(root, DirectoryStore(settings._replace(repository=str(root)))))
    if not files:
        raise Refused(f"{root} has no model: expected folders such as {root}/iris/1 with model.onnx")
    new = root / f".{index.FILE}.new"
    try:
        new.write_bytes(index.write(files))
        new.replace(root / index.FILE)
    except OSError as error:
        raise Refused(f"{root} cannot be written: {error.strerror}") from None
    models = len({each.path.partition("/")[0] for each in files})
    line = f"{root / index.FILE}: {models} model{'s' * (models > 1)}, {len(files)} files"
    results.tell(options, line, place=str(root / index.FILE), models=models, files=len(files))


def _files(root: Path, store: DirectoryStore) -> Iterator[IndexedFile]:
    """Yields the files that a server of this folder would see, in the order of their paths."""
    names = store.models()
    if any(VERSION.fullmatch(name) for name in names):
        raise Refused(f"{root} is a model, with numbered versions: name the folder above it")
    for name in names:
        for file in store.files(name) if NAME.fullmatch(name) else ():
            yield _indexed(root, f"{name}/{file.path}")


def _indexed(root: Path, path: str) -> IndexedFile:
    try:
        with (root / path).open("rb") as content:
            stat = (root / path).stat()
            modified = datetime.fromtimestamp(int(stat.st_mtime), UTC).isoformat()
            return IndexedFile(path, stat.st_size, hashlib.file_digest(content, "sha256").hexdigest(), modified)
    except OSError as error:
        raise Refused(f"{root / path} cannot be read: {error.strerror}") from None
