"""The layout of a repository: models, their versions, their settings.

<model>/<version>/model.onnx (or another runtime's file), <model>/model-settings.json, and the same in <version>/;
Triton's <model>/config.pbtxt is read as settings.
A version is a folder whose name is a decimal number and that holds a model; versions compare as numbers, and 00000123
is version 123. A folder without any runtime's marker file is not a version yet: publishers put that file last. If two
folders have one number, the shorter name counts: a publisher can put a version beside the one that it replaces.

Where the model's settings are a pipeline, its versions need no files: each numbered folder is one, and version 1 is
there without a folder.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import (
    ModelNotFound,
    ModelNotLoadable,
    ModelUnavailable,
    ServingError,
    located,
    shown,
)
from core.records import NamedTuple
from handler.backends import BACKENDS, found
from handler.lifecycle.inventory.bounds import Texts
from handler.lifecycle.inventory.looks import Files, Inventory, progress_of
from handler.lifecycle.inventory.refusals import absent, incomplete, misnamed
from handler.settings import model as model_settings
from handler.settings import routing
from handler.settings.model import ModelSettings
from handler.settings.triton import FILE as TRITON
from handler.stores import File, Folder, Forbidden, Gone, Store, paths
from handler.stores.directory import empty, is_name
from handler.stores.progress import Progress

VERSION: Final = routing.VERSION
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
    """The models in a store. Every method raises StillLoading soon after the deadline.

    `direct`: see Inventory. `is_renamed`: see `model_settings.parse`.
    """

    def __init__(self, store: Store, *, direct: bool = False, is_renamed: bool = False) -> None:
        self._store = store
        self._parse = partial(model_settings.parse, is_renamed=is_renamed)
        self._texts = Texts()
        self.inventory = Inventory(store, direct=direct)

    def models(self, deadline: Deadline) -> Sequence[str]:
        """Returns the names of the models' folders, sorted."""
        return [name for name in self.inventory.names(deadline) if is_name(name)]

    def files(self, deadline: Deadline) -> Files:
        """Returns all models with their files, as one look finds them."""
        return {name: files for name, files in self.inventory.files(deadline).items() if is_name(name)}

    def admits(self, name: str, wanted: int | None) -> bool | None:
        """Decides, without a request, whether a model can be listed; None if that takes a look at all names."""
        return is_name(name) and self.inventory.admits(name, wanted)

    def refusal(self, name: str, wanted: int | None) -> ServingError:
        """Returns the error of a name that is not admitted."""
        return self.inventory.refusal(name, wanted) if is_name(name) else misnamed(name)

    def require(self, name: str, wanted: int | None, deadline: Deadline) -> None:
        """Raises ServingError unless the model can be listed by itself."""
        if not is_name(name):
            raise misnamed(name)
        self.inventory.require(name, wanted, deadline)

    def look(
        self, name: str, wanted: int | None, deadline: Deadline = NEVER, files: Sequence[File] | None = None
    ) -> Listing:
        """Returns a model's listing. `wanted`: a version to try where listing is not permitted. `files`: if known.

        Raises ModelNotFound, ModelNotLoadable, ModelUnavailable.
        """
        if not is_name(name):
            raise misnamed(name)
        try:
            files = files or self.inventory.files_of(name) or self._store.files(name, progress_of(deadline))
        except Forbidden:
            return self._look_blind(name, wanted, deadline)
        flaw = "" if files else self._flaw(name)
        if not files and not flaw:
            raise absent(name)
        self.inventory.found(name)
        text = self.settings_text(name, files, deadline)
        said = self._parse(name, text)
        folders = folders_of(files)
        versions = _versions(version for version in folders if self.is_complete(name, version, said, deadline))
        if not folders and said.pipeline is not None:
            versions = {1: Version(1, "1", ())}
        if not versions:
            newest = max(folders, default=Version(0, "", ()))
            raise incomplete(name, newest.folder, newest.paths, flaw or self._flaw(name))
        # The policy chooses among the other versions. Canaries are served beside them.
        stable = said.version_policy.choose(sorted(versions.keys() - said.canary.keys()))
        served = sorted({*stable, *(said.canary.keys() & versions.keys())})
        if not served:
            raise ModelNotLoadable(f"model {name!r} has versions {sorted(versions)}, none of which its policy serves")
        return Listing(name, tuple(versions[number] for number in served), text, said)

    def _flaw(self, name: str) -> str:
        """Returns why a model's folder has less than it seems to have; "" if it does not, or in a remote store."""
        flaw: Callable[[str], str] = getattr(self._store, "flaw", lambda _: "")
        return flaw(name)

    def _look_blind(self, name: str, wanted: int | None, deadline: Deadline) -> Listing:
        """Returns the versions that the settings or the request name, as ONNX models: listing is not permitted."""
        text = self._store.read(name, model_settings.FILE, progress_of(deadline))
        said = self._parse(name, text)
        numbers = {*said.version_policy.specific, *said.canary} or ({wanted} if wanted is not None else set())
        if said.pipeline is not None:
            versions = tuple(Version(number, str(number), ()) for number in sorted(numbers or {1}))
            return Listing(name, versions, text, said, partial=True)
        if not numbers:
            raise ModelUnavailable(
                f"model {name!r} is missing or forbidden: listing is not permitted. Grant that (in S3 s3:ListBucket), "
                "name a version in the request, or set version_policy.specific in its settings"
            )
        marker = next(iter(BACKENDS.values())).marker
        versions = tuple(Version(number, str(number), (File(f"{number}/{marker}"),)) for number in sorted(numbers))
        return Listing(name, versions, text, said, partial=True)

    def is_complete(self, name: str, version: Version, said: ModelSettings, deadline: Deadline = NEVER) -> bool:
        """Decides whether the folder has a model. Reads its own settings only where no marker decides."""
        paths = version.paths
        if found(paths, said.implementation) or said.pipeline is not None:
            return True
        if model_settings.FILE not in paths:
            return False
        own = self._read_settings(name, f"{version.folder}/", version.files, deadline)
        try:
            its = self._parse(name, own)
            return its.pipeline is not None or found(paths, its.implementation)
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
            own = path.read_bytes() if paths.is_file(path) else None
            if folder.proof is not None and folder.proof.signer:
                _check_signed(listing, version, own)
        if own is None:
            return listing.said
        return self._parse(listing.name, listing.settings, own, folder=version.folder)

    def fetch(self, listing: Listing, version: Version, progress: Progress) -> Folder:
        """Returns the version's files: the listed ones, or all those that have replaced them since.

        A push that replaces a version removes it from its folder, the marker first. Another folder has it by then.
        """
        if not version.files and not getattr(self._store, "verifies", False):
            return empty()
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

    def doubt(self, folder: Folder) -> None:
        """Notes that a fetched version did not load: what was fetched may have changed on the disk since."""
        doubt = getattr(self._store, "doubt", None)
        if doubt is not None:
            doubt(folder)

    def _again(self, listing: Listing, version: Version, deadline: Deadline) -> Version | None:
        """Returns the version as the store has it now, None if it has gone."""
        self.inventory.forget()
        with suppress(ModelNotFound, ModelNotLoadable):
            found = self.look(listing.name, version.number, deadline).versions
            return next((each for each in found if each.number == version.number), None)
        return None

    def disconnect(self) -> None:
        """Ends the store's open connections. The store opens new ones when it needs them."""
        getattr(self._store, "disconnect", lambda: None)()  # a directory keeps nothing open

    def settings_text(self, name: str, files: Sequence[File], deadline: Deadline = NEVER) -> bytes | None:
        """Returns the model's settings, Triton's among them. Raises ModelNotLoadable, ModelUnavailable."""
        text = self._read_settings(name, "", files, deadline)
        if all(file.path != TRITON for file in files):
            return text
        from handler.settings.triton import config  # noqa: PLC0415 - protobuf's text format, for models that have it

        found = self._read_settings(name, "", files, deadline, TRITON)
        read = partial(self._read_settings, name, "", files, deadline)
        return text if found is None else config.merged(name, found, text, read)

    def _read_settings(
        self, name: str, prefix: str, files: Iterable[File], deadline: Deadline, file_name: str = model_settings.FILE
    ) -> bytes | None:
        path = prefix + file_name
        file = next((file for file in files if file.path == path), None)
        if file is None:
            return None
        key = None if self.inventory.is_local or file.etag is None else (name, path, file.size, file.etag)
        text = self._texts.get(key)
        if text is None:
            text = self._store.read(name, path, progress_of(deadline))
            if text is None:  # the defaults would have other limits and versions
                raise ModelUnavailable(f"{path} of model {name!r} is listed, but missing or forbidden: permit reading")
            self._texts.put(key, text)
        return text

    def has_settings(self, name: str, files: Iterable[File]) -> bool:
        """Decides whether the model's settings are known, or none, so that a look at these files costs no request."""
        texts = [file for file in files if file.path in (model_settings.FILE, TRITON)]
        return all(self._texts.get((name, file.path, file.size, file.etag)) is not None for file in texts)


def _check_signed(listing: Listing, version: Version, own: bytes | None) -> None:
    """Raises ModelNotLoadable if the model's settings, which nobody has signed, change a signed version."""
    name = f"model {listing.name!r} version {version.number}"
    try:
        members = model_settings.unsigned(listing.settings, own)
    except ModelNotLoadable as error:
        raise located(error, name) from None
    if members:
        raise ModelNotLoadable(
            f"{name} is signed, and {shown(next(iter(members)), 64)} in the model's {model_settings.FILE} is not: "
            f"move it to {version.folder}/{model_settings.FILE}, and sign again"
        )


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
