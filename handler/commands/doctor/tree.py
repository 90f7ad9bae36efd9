"""The files of a repository as they lie there: those of each model, and those that lie beside the models."""

import os
import shlex
from collections.abc import Iterator, Sequence
from errno import ELOOP
from pathlib import Path
from typing import Final

from core.records import NamedTuple
from handler.commands.doctor.findings import Finding, error, warning
from handler.stores import File
from handler.stores.directory import DEEPEST, is_shown, leads_on

REPAIR: Final = "remove it, or repair the link"


class Tree(NamedTuple):
    """`models`: the files of each folder by its name, with paths relative to it. `loose`: the files beside them.

    `is_whole`: the repository has no other ones.
    """

    models: dict[str, list[File]]
    loose: list[File]
    is_whole: bool = True


def grouped(files: Sequence[File]) -> Tree:
    """Groups files, whose paths are relative to the repository, by the folder below which they lie."""
    tree = Tree({}, [])
    for file in files:
        name, slash, path = file.path.partition("/")
        if not slash:
            tree.loose.append(file)
        elif is_shown(name):
            own = tree.models.setdefault(name, [])
            if path:
                own.append(file._replace(path=path))
    return tree


def of_folder(root: Path) -> tuple[list[Finding], Tree]:
    """Walks a folder. Finds what this user cannot read, and links that lead nowhere."""
    found: list[Finding] = []
    tree = grouped(sorted(_walk(root, "", found)))
    for finding in found:  # what cannot be listed is not empty
        tree.models.pop(finding.where.removesuffix("/") if finding.where.endswith("/") else "", None)
    return found, tree


def _walk(folder: Path, prefix: str, found: list[Finding]) -> Iterator[File]:
    try:
        entries = [entry for entry in os.scandir(folder) if is_shown(entry.name)]
    except OSError as wrong:
        cure = (
            f"let the server's user read it: chmod -R u+rX {shlex.quote(str(folder))}"
            if wrong.errno != ELOOP
            else REPAIR
        )
        found.append(error("unreadable", prefix or str(folder), f"cannot be listed: {wrong.strerror}", cure))
        return
    for entry in entries:
        path = prefix + entry.name
        if leads_on(entry):
            if prefix == "":
                yield File(f"{path}/")
            if prefix.count("/") < DEEPEST:
                yield from _walk(folder / entry.name, f"{path}/", found)
        elif not entry.is_file():
            what = "is a link that leads nowhere" if entry.is_symlink() else "is neither a file nor a folder"
            found.append(warning("broken-link", path, f"{what}; servers skip it", REPAIR))
        elif not os.access(entry.path, os.R_OK):
            cure = f"let the server's user read it: chmod u+r {shlex.quote(str(folder / entry.name))}"
            found.append(error("unreadable", path, "cannot be read by this user", cure))
        else:
            yield File(path, entry.stat().st_size)
