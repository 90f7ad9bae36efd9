"""A place that a platform names, above all a directory that it mounts: one model's folder, or models without versions.

A folder is one version if a model's file is in it (`OWN`), and a model with versions if it has numbered folders. A
folder that holds no other folder than one stands for that one: archives are unpacked so. Any other is a repository.
A folder that is one version is version 1 of its model.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from core.encoding import jsonio
from core.errors import InvalidInput
from core.records import NamedTuple
from handler.settings import InvalidSettings, Settings, routing
from handler.settings.model import FILE as SETTINGS
from handler.settings.triton import FILE as TRITON
from handler.stores import File, Folder, Gone, paths
from handler.stores.directory import DirectoryStore, content, entries, is_folder, is_name, leads_on, root_of, settled
from handler.stores.progress import Progress

OWN: Final = re.compile(r"(?:model|pipeline)\.[a-z0-9]+|model-settings\.json|config\.pbtxt")
"""The files of a version, and the settings that may stand alone where another package runs the model."""
OF_THE_MODEL: Final = (SETTINGS, TRITON)
"""Files that a repository has beside the folders of versions."""
ONLY: Final = "1/"
"""The version that a folder without versions is."""
DEEPEST: Final = 3


Names = tuple[Sequence[str], Sequence[str]]
"""The names of the files in a folder, and those of its folders."""


class LoosePlace(NamedTuple):
    """Where a model is. `path`: "", or one that ends in a slash. `is_version`: that folder is its only version."""

    path: str
    is_version: bool


def is_version(files: Sequence[str], folders: Sequence[str]) -> bool | None:
    """Decides by the names in a folder: it is a version, or a model with versions (False), or neither (None)."""
    if any(map(OWN.fullmatch, files)):
        return not folders or any(name.startswith(("model.", "pipeline.")) for name in (*files, *folders))
    return False if any(map(routing.VERSION.fullmatch, folders)) else None


def as_only_version(files: Sequence[File]) -> Sequence[File]:
    """Returns the files of a folder that is a version under the paths that a repository would have for them."""
    return [file if file.path in OF_THE_MODEL else file._replace(path=ONLY + file.path) for file in files]


def place_of(folder: Path) -> LoosePlace | None:
    """Returns where the one model of a folder is, None if the folder is a repository. Raises ModelUnavailable."""

    def named(path: str) -> Names:
        found = entries(folder / path)
        files = [entry.name for entry in found if not leads_on(entry) and entry.is_file()]
        return files, [entry.name for entry in found if leads_on(entry)]

    return _place(named)


def found_in(paths: Sequence[str]) -> LoosePlace | None:
    """Returns where the one model of a listing is, None if the paths are those of a repository."""

    def named(prefix: str) -> Names:
        parts = [path[len(prefix) :].partition("/") for path in paths if path.startswith(prefix)]
        return [name for name, slash, _ in parts if not slash], sorted({name for name, slash, _ in parts if slash})

    return _place(named)


def _place(named: Callable[[str], Names]) -> LoosePlace | None:
    path = ""
    for _ in range(DEEPEST):
        files, folders = named(path)
        kind = is_version(files, folders)
        if kind is not None:
            return LoosePlace(path, kind)
        if len(folders) != 1:
            return None
        path += f"{folders[0]}/"
    return None


def said_name(text: bytes | None) -> str:
    """Returns the name that a model's settings state, "" if they state none, or cannot be read: the load says why."""
    try:
        members = {} if text is None else jsonio.loads(text)
    except InvalidInput:
        return ""
    name = members.get("name") if isinstance(members, dict) else None
    return name if isinstance(name, str) else ""


def given_name(settings: Settings) -> str:
    """Returns the name that the operator gives the only model, "" without one. Raises InvalidSettings."""
    name = settings.model_name
    if name and not is_name(name):
        expected = "expected a model's name, without a slash or a dot in front"
        raise InvalidSettings(f"DRAGOMAN_MODEL_NAME is {name[:256]!r}; {expected}", f"DRAGOMAN_MODEL_NAME: {expected}")
    return name


class LooseStore:
    """Uses the files in place, as DirectoryStore does. A folder that is a repository is left to DirectoryStore."""

    def __init__(self, settings: Settings) -> None:
        self._inner = DirectoryStore(settings)
        self.uri = self._inner.uri
        self._root = root_of(self.uri)
        self._name = given_name(settings)
        self._each = settings.contract.layout == "each"

    @property
    def _awaits(self) -> bool:
        """Whether the platform makes the directory with the first model that it puts there."""
        return self._each and not paths.exists(self._root)

    def check(self, _: Progress | None = None) -> None:
        if not self._awaits:
            self._inner.check()

    def has(self, model: str) -> bool:
        """Decides whether a model's folder can be listed."""
        return self._place(model) is not None or (not self._awaits and self._inner.has(model))

    def models(self, _: Progress | None = None) -> Sequence[str]:
        if self._awaits:
            return []
        only = self._only()
        return self._inner.models() if only is None else [only[0]]

    def files(self, model: str, _: Progress | None = None) -> Sequence[File]:
        place = self._place(model)
        if place is None:
            return () if self._awaits or self._only() is not None else self._inner.files(model)
        self.check()
        files = settled(self._root / place.path)
        return as_only_version(files) if place.is_version else files

    def read(self, model: str, path: str, _: Progress | None = None) -> bytes | None:
        place = self._place(model)
        if place is None:
            return self._inner.read(model, path)
        folder = self._root / place.path
        return content(folder / (path.removeprefix(ONLY) if place.is_version else path), model, path)

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        place = self._place(model)
        if place is None:
            return self._inner.fetch(model, version, files, progress)
        folder = self._root / place.path / ("" if place.is_version else version)
        if not is_folder(folder):
            raise Gone(f"version {version} of model {model!r} was removed from the repository")
        return Folder(folder)

    def _only(self) -> tuple[str, LoosePlace] | None:
        """Returns the one model that the whole directory is, with its name; None for a repository."""
        place = None if self._each else place_of(self._root)
        if place is None:
            return None
        folder = self._root / place.path
        said = said_name(content(folder / SETTINGS, folder.name, SETTINGS))
        return self._name or said or folder.name, place

    def _place(self, model: str) -> LoosePlace | None:
        only = self._only()
        if only is not None:
            return only[1] if model == only[0] else None
        place = place_of(self._root / model) if self._each else None
        return None if place is None else place._replace(path=f"{model}/{place.path}")
