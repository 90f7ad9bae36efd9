"""A repository as a publisher sees it: its files, and the versions that servers would find in them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.errors import ModelNotLoadable, ModelUnavailable
from core.records import NamedTuple
from handler.commands.publish import targets
from handler.commands.publish.buckets import opened
from handler.commands.publish.buckets.port import ListedFile
from handler.commands.refused import Refused
from handler.lifecycle.repository import MARKERS, VERSION, Repository, Version, folders_of
from handler.settings import Settings, routing
from handler.settings.model import FILE, ModelSettings, parse
from handler.stores import File, Folder, Forbidden, Store, open_store, paths
from handler.stores.directory import changed
from handler.stores.paths import expanded
from handler.stores.progress import Progress


class Listed:
    """A store with one listing of all its files. It reads each file once."""

    def __init__(self, store: Store, models: dict[str, list[ListedFile]]) -> None:
        self.uri = store.uri
        self._store = store
        self._models = models
        self._read: dict[tuple[str, str], bytes | None] = {}

    def check(self, progress: Progress | None = None) -> None:
        self._store.check(progress)

    def models(self, _: Progress | None = None) -> Sequence[str]:
        return sorted(self._models)

    def files(self, model: str, _: Progress | None = None) -> Sequence[File]:
        return [File(item.path, item.size) for item in self._models[model]]

    def read(self, model: str, path: str, progress: Progress | None = None) -> bytes | None:
        key = model, path
        if key not in self._read:
            self._read[key] = self._store.read(model, path, progress)
        return self._read[key]

    def fetch(self, *asked: Any) -> Folder:
        return self._store.fetch(*asked)


class RepositoryModel(NamedTuple):
    """A model in a repository. `versions`: its complete folders. `settings`: the model's own file.

    `models`: the models in the folder, if it is a repository itself. `foreign`: a file that no push has put, by its
    folder's number. Such a folder is not a version: it has another server's model, or somebody is copying one there.
    """

    versions: Sequence[Version]
    settings: bytes | None
    models: Sequence[str] = ()
    foreign: Mapping[int, str] = MappingProxyType({})

    @property
    def complete(self) -> frozenset[int]:
        """The numbers of the versions."""
        return frozenset(version.number for version in self.versions)

    @property
    def taken(self) -> frozenset[int]:
        """The numbers that a new version cannot have."""
        return self.complete.union(self.foreign)

    def next(self, target: targets.Target) -> int:
        """Returns the number for a new version. Raises Refused after the highest number that servers accept."""
        number = routing.free(self.taken)
        if (highest := max(self.taken, default=0)) > number:
            raise Refused(
                f"{target}/{highest} has the highest number of a version; expected one below 9 * 10**18: "
                f"--version {number} is free; version_policy names the versions to serve"
            )
        return number

    def check_free(self, number: int, target: targets.Target, more: str = "") -> None:
        """Raises Refused for a number whose files a push would replace. `more`: a further cure."""
        if number in self.complete:
            raise Refused(f"{target}/{number} exists already: --force replaces it{more}")
        if (path := self.foreign.get(number)) is not None:
            raise Refused(
                f"{target}/{number} has {path}, which no push has put there: --version {routing.free(self.taken)} "
                "leaves it, and --force removes everything in that folder"
            )


def model(settings: Settings, target: targets.Target) -> RepositoryModel:
    """Returns a model as the repository has it. Raises Refused, ServingError."""
    store = open_store(settings._replace(repository=target.repository))
    try:
        files = _files(store, target)
    except Forbidden:
        grant = opened(settings, target.repository).listing
        raise Refused(f"listing {target.repository} is not permitted: grant {grant}") from None
    text = store.read(target.name, FILE) if any(file.path == FILE for file in files) else None
    folders = folders_of(files)
    complete = [folder for folder in folders if is_complete(store, target.name, folder, text)]
    numbers = {folder.number for folder in complete}
    foreign = dict(_foreign(settings, target, [folder for folder in folders if folder.number not in numbers]))
    has_versions = any(MARKERS & folder.paths for folder in folders)  # else a number is the name of a model
    return RepositoryModel(complete, text, () if has_versions else _models_in(files), foreign)


def _foreign(settings: Settings, target: targets.Target, folders: Sequence[Version]) -> Iterator[tuple[int, str]]:
    """Yields the numbers of folders with a file that no push has put, and the file's path.

    A push into a folder on a disk leaves nothing in it. Objects of a push have their SHA-256 beside them.
    """
    if not folders or not targets.is_remote(target.repository):
        yield from ((folder.number, min(folder.paths)) for folder in folders)
        return
    bucket = opened(settings, target.repository)
    for folder in folders:
        for path in sorted(folder.paths):
            head = bucket.head(f"{target.name}/{folder.folder}/{path}")
            if head is not None and head.sha256 is None:
                yield folder.number, path
                break


def above(settings: Settings, target: targets.Target) -> targets.Target | None:
    """Returns the model of which the target would be a version, None without one. Raises Refused, ServingError.

    A number is a model's name only beside other models, and in DRAGOMAN_REPOSITORY.
    """
    if not VERSION.fullmatch(target.name) or targets.is_same(target.repository, settings.repository):
        return None
    try:
        found = targets.model(target.repository)
    except Refused:  # a bucket's root
        return None
    return None if model(settings, found).models else found


def _models_in(files: Sequence[File]) -> list[str]:
    """Returns the names of folders with a version's files. A model has none: its versions lie one level above."""
    return sorted({each.path.partition("/")[0] for each in files if is_below_model(each.path)})


def is_below_model(path: str) -> bool:
    """Decides whether this file lies in the folder of one of a repository's models: wine/1/model.onnx."""
    folder, _, rest = path.partition("/")
    return not VERSION.fullmatch(folder) and is_of_model(rest)


def is_of_model(path: str) -> bool:
    """Decides whether this file lies in a model's folder, not in a repository's: 1/model.onnx belongs to a version."""
    folder, _, name = path.partition("/")
    return path == FILE or bool(VERSION.fullmatch(folder) and name in MARKERS)


def is_complete(store: Store, name: str, version: Version, text: bytes | None) -> bool:
    """Decides whether a server would take these files for a version. `text`: the model's own settings."""
    try:
        said = parse(name, text)
    except ModelNotLoadable:
        said = ModelSettings()  # the code that needs them reports the mistake
    return Repository(store).is_complete(name, version, said)


def _files(store: Store, target: targets.Target) -> Sequence[File]:
    if not targets.is_remote(target.repository) and not paths.exists(expanded(target.repository)):
        return ()  # a first push makes the repository
    return store.files(target.name)


def items(settings: Settings, repository: str, prefix: str) -> list[ListedFile]:
    """Returns every file below a folder of the repository, except hidden ones. Paths are relative to the folder."""
    if targets.is_remote(repository):
        return [item for item in opened(settings, repository).items(prefix) if not item.path.endswith("/")]
    root = expanded(repository) / prefix
    if not paths.is_dir(root):
        raise Refused(f"the folder {root} does not exist")
    return list(_walk(settings, root))


def _walk(settings: Settings, root: Path) -> Iterator[ListedFile]:
    store = open_store(settings._replace(repository=str(root.absolute().parent)))
    try:
        files = store.files(root.absolute().name)
    except ModelUnavailable as error:
        if not isinstance(cause := error.__cause__, OSError):
            raise
        raise Refused(f"{cause.filename} cannot be listed: {cause.strerror}") from None
    for file in files:
        modified = (root / file.path).stat().st_mtime
        yield ListedFile(file.path, file.size or 0, changed(modified))
