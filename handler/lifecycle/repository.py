"""The layout of a repository: models, their versions, their settings.

<model>/<version>/model.onnx (or another runtime's file), <model>/model-settings.json, and the same in <version>/.
A version is a folder whose name is a decimal number and that holds a model; versions compare as numbers, and 00000123
is version 123. A folder without any runtime's marker file is not a version yet: publishers put that file last. If two
folders have one number, the shorter name counts: a publisher can put a version beside the one that it replaces.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from core.deadline import NEVER, Deadline
from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, shown
from handler.backends import BACKENDS, found
from handler.settings import model as model_settings
from handler.settings.model import ModelSettings
from handler.stores import File, Folder, Forbidden, Gone, Store
from handler.stores.progress import Progress

NAME: Final = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,254}")
"""No path separator, no control character, no leading dot: a name can never leave the repository's prefix."""
VERSION: Final = model_settings.VERSION
MARKERS: Final = frozenset(backend.marker for backend in BACKENDS.values())
MOVES: Final = 4
"""The number of folders to try. A version that has moved on from each of them counts as being replaced."""


class Version(NamedTuple):
    """One version of a model. `folder`: its directory's name as written."""

    number: int
    folder: str
    files: tuple[File, ...]

    @property
    def paths(self) -> set[str]:
        """The paths of its files, relative to its folder."""
        return {file.path.partition("/")[2] for file in self.files}


class Listing(NamedTuple):
    """A model as the store has it now. `versions`: served ones, ascending; never empty. `said`: its parsed settings.

    `partial`: listing is not permitted, and there may be other versions.
    """

    name: str
    versions: tuple[Version, ...]
    settings: bytes | None
    said: ModelSettings = ModelSettings()
    partial: bool = False


class Repository:
    """The models in a store. Every method raises StillLoading soon after the deadline."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, deadline: Deadline) -> None:
        """Raises ServingError if the store does not answer."""
        self._store.check(_progress(deadline))

    def models(self, deadline: Deadline) -> Sequence[str]:
        """Returns the names of the models' folders, sorted."""
        return [name for name in self._store.models(_progress(deadline)) if NAME.fullmatch(name)]

    def look(self, name: str, wanted: int | None, deadline: Deadline = NEVER) -> Listing:
        """Returns a model's listing. `wanted`: a version to try where listing is not permitted.

        Raises ModelNotFound, ModelNotLoadable, ModelUnavailable.
        """
        if not NAME.fullmatch(name):
            raise ModelNotFound(f"there is no model {shown(name)}: that is not a model's name")
        try:
            files = self._store.files(name, _progress(deadline))
        except Forbidden:
            return self._look_blind(name, wanted, deadline)
        if not files:
            raise ModelNotFound(f"there is no model {shown(name)} in the repository")
        text = self._read_settings(name, "", files, deadline)
        said = model_settings.parse(name, text)
        folders = folders_of(files)
        versions = _versions(version for version in folders if self.is_complete(name, version, said, deadline))
        if not versions:
            raise ModelNotLoadable(_no_version(name, folders))
        # The policy chooses among the other versions. Canaries are served beside them.
        stable = said.version_policy.choose(sorted(versions.keys() - said.canary.keys()))
        served = sorted({*stable, *(said.canary.keys() & versions.keys())})
        if not served:
            raise ModelNotLoadable(f"model {name!r} has versions {sorted(versions)}, none of which its policy serves")
        return Listing(name, tuple(versions[number] for number in served), text, said)

    def _look_blind(self, name: str, wanted: int | None, deadline: Deadline) -> Listing:
        """Returns the versions that the settings or the request name, as ONNX models: listing is not permitted."""
        text = self._store.read(name, model_settings.FILE, _progress(deadline))
        said = model_settings.parse(name, text)
        numbers = {*said.version_policy.specific, *said.canary} or ({wanted} if wanted is not None else set())
        if not numbers:
            raise ModelUnavailable(
                f"model {name!r} is missing or forbidden: listing is not permitted. Grant s3:ListBucket, "
                "name a version in the request, or set version_policy.specific in its settings"
            )
        marker = next(iter(BACKENDS.values())).marker
        versions = tuple(Version(number, str(number), (File(f"{number}/{marker}"),)) for number in sorted(numbers))
        return Listing(name, versions, text, said, partial=True)

    def is_complete(self, name: str, version: Version, said: ModelSettings, deadline: Deadline = NEVER) -> bool:
        """Decides whether the folder has a model. Reads its own settings only where no marker decides."""
        paths = version.paths
        if found(paths, said.implementation):
            return True
        if model_settings.FILE not in paths:
            return False
        own = self._read_settings(name, f"{version.folder}/", version.files, deadline)
        try:
            return found(paths, model_settings.parse(name, own).implementation)
        except ModelNotLoadable:
            return False

    def settings(
        self, listing: Listing, version: Version, deadline: Deadline = NEVER, folder: Folder | None = None
    ) -> ModelSettings:
        """Returns the model's settings with the version's own keys over them. `folder`: the fetched version.

        A push may have replaced the version, with its own settings, since they were read from the store.
        """
        if folder is None:
            own = self._read_settings(listing.name, f"{version.folder}/", version.files, deadline)
        else:
            path = folder.path / model_settings.FILE
            own = path.read_bytes() if path.is_file() else None
        return listing.said if own is None else model_settings.parse(listing.name, listing.settings, own)

    def fetch(self, listing: Listing, version: Version, progress: Progress) -> Folder:
        """Returns the version's files: the listed ones, or all those that have replaced them since.

        A push that replaces a version removes it from its folder, the marker first. Another folder has it by then.
        """
        for _ in range(MOVES):
            try:
                folder = self._store.fetch(listing.name, version.folder, version.files, progress)
            except Gone:
                if (moved := self._again(listing, version, progress.deadline)) in (None, version):
                    raise
            else:
                if not MARKERS & version.paths or any((folder.path / marker).is_file() for marker in MARKERS):
                    return folder
                moved = self._again(listing, version, progress.deadline)
            version = moved or version
        raise ModelUnavailable(
            f"version {version.number} of model {listing.name!r} is being replaced: try again when it is complete"
        )

    def _again(self, listing: Listing, version: Version, deadline: Deadline) -> Version | None:
        """Returns the version as the store has it now, None if it has gone."""
        with suppress(ModelNotFound, ModelNotLoadable):
            found = self.look(listing.name, version.number, deadline).versions
            return next((each for each in found if each.number == version.number), None)
        return None

    def disconnect(self) -> None:
        """Ends the store's open connections. The store opens new ones when it needs them."""
        getattr(self._store, "disconnect", lambda: None)()  # a directory keeps nothing open

    def _read_settings(self, name: str, prefix: str, files: Iterable[File], deadline: Deadline) -> bytes | None:
        path = prefix + model_settings.FILE
        if any(file.path == path for file in files):
            return self._store.read(name, path, _progress(deadline))
        return None


def _progress(deadline: Deadline) -> Progress | None:
    return None if deadline is NEVER else Progress(deadline)


def folders_of(files: Iterable[File]) -> list[Version]:
    """Returns a model's numbered folders, complete or not."""
    folders: dict[str, list[File]] = {}
    for file in files:
        folder, separator, _ = file.path.partition("/")
        if separator and VERSION.fullmatch(folder):
            folders.setdefault(folder, []).append(file)
    return [Version(int(folder), folder, tuple(members)) for folder, members in folders.items()]


def _versions(folders: Iterable[Version]) -> dict[int, Version]:
    # The plain name comes last, and wins: 1 before 001.
    return {version.number: version for version in sorted(folders, key=lambda each: len(each.folder), reverse=True)}


def _no_version(name: str, folders: Sequence[Version]) -> str:
    if not folders:
        return f"model {name!r} has no version: expected a folder such as {name}/1 with model.onnx"
    expected = " or ".join(backend.marker for backend in BACKENDS.values())
    last = max(folders)
    files = ", ".join(sorted(last.paths))[:256]
    return f"model {name!r} has no version: {name}/{last.folder} has no {expected}; its files: {files}"
