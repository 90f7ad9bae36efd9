"""A remote place that may be one model's folder, as handler.stores.loose has them on disks: a bucket, or a part of one.

If the place is a repository, its own store answers. Which of both it is follows from a listing, so it takes the
permission to list. A web server's listing is its index.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from core.errors import ServingError
from handler.settings import Settings
from handler.settings.model import FILE as SETTINGS
from handler.stores import File, Folder, Forbidden, Store
from handler.stores.loose import ONLY, LoosePlace, as_only_version, found_in, given_name, said_name
from handler.stores.progress import Progress
from handler.stores.transfer.answers import Broken, ObjectReader, StoreRefused
from handler.stores.transfer.fetching import Fetcher, Remote

T = TypeVar("T")
MARK: Final = "one model"
"""Keeps the cached files of a place's one model apart from those of a repository there."""


class _LooseRemote:
    """The objects of the one model, under the paths that a repository would have for them. `place`: None for others."""

    def __init__(self, whole: Remote) -> None:
        self._whole = whole
        self.place: LoosePlace | None = None
        self.names = (*whole.names, MARK)

    @property
    def bucket(self) -> ObjectReader:
        return self._whole.bucket

    def key(self, _: str, path: str) -> str:
        place = self.place or LoosePlace("", is_version=False)
        return self._whole.key("", place.path + (path.removeprefix(ONLY) if place.is_version else path))

    def tried(self, ask: Callable[[ObjectReader], T], progress: Progress) -> T:
        return self._whole.tried(ask, progress)

    def files(self, _: str, progress: Progress) -> Sequence[File]:
        """Lists the place, and decides anew what it is. Returns the model's files; none if it is a repository."""
        listed = self._whole.files("", progress)
        self.place = place = found_in([file.path for file in listed])
        if place is None:
            return ()
        below = len(place.path)
        files = [file._replace(path=file.path[below:]) for file in listed if file.path.startswith(place.path)]
        return as_only_version(files) if place.is_version else files

    def disconnect(self) -> None:
        self._whole.disconnect()

    def is_absent(self, reason: Broken | StoreRefused) -> bool:
        return self._whole.is_absent(reason)

    def failure(self, reason: Broken | StoreRefused, what: str) -> ServingError:
        return self._whole.failure(reason, what)


class LooseBucket:
    """See `handler.stores.Store`. `hashes`: it compares what it fetches with the digests of the files.

    `inner`: the store of the place as a repository.
    """

    hashes = True

    def __init__(self, settings: Settings, inner: Any) -> None:
        self.uri = settings.repository
        self._inner = inner
        self._remote = _LooseRemote(inner.remote)
        self._fetcher = Fetcher(settings, self._remote)
        self.check_cache = self._fetcher.check_cache
        self._name = given_name(settings)

    @property
    def accepts(self) -> bool:
        """Whether something shows that the store accepts the keys, or there are none."""
        return bool(getattr(self._inner, "accepts", True))

    def confirm(self, progress: Progress | None = None) -> None:
        """Raises ServingError if listing is denied, and nothing shows that the store accepts the keys."""
        self._inner.confirm(progress)

    def check(self, progress: Progress | None = None) -> None:
        self._inner.check(progress)

    def glance(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]] | None:
        """Returns every model's files if they fit in one page of a listing, else None. Raises Forbidden."""
        found: Mapping[str, Sequence[File]] | None = self._model(progress) or self._inner.glance(progress)
        return found

    def everything(self, progress: Progress | None = None) -> Mapping[str, Sequence[File] | None]:
        """Returns every model's files. Raises Forbidden."""
        found: Mapping[str, Sequence[File] | None] = self._model(progress) or self._inner.everything(progress)
        return found

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        names: Sequence[str] = [*self._model(progress)] or self._inner.models(progress)
        return names

    def files(self, model: str, progress: Progress | None = None) -> Sequence[File]:
        found = self._model(progress)
        files: Sequence[File] = found.get(model, ()) if found else self._inner.files(model, progress)
        return files

    def read(self, model: str, path: str, progress: Progress | None = None) -> bytes | None:
        if self._remote.place is None:
            content: bytes | None = self._inner.read(model, path, progress)
            return content
        return self._fetcher.read(model, path, progress or Progress())

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        store: Store | Fetcher = self._inner if self._remote.place is None else self._fetcher
        return store.fetch(model, version, files, progress)

    def doubt(self, folder: Folder) -> None:
        """Compares the files of a version that did not load with the store's, before it is loaded again."""
        if self._remote.place is None:
            self._inner.doubt(folder)
        else:
            self._fetcher.doubt(folder.path)

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        self._inner.disconnect()

    def _model(self, progress: Progress | None) -> dict[str, Sequence[File]]:
        """Returns the one model with its files; nothing for a repository, and where listing is not permitted."""
        progress = progress or Progress()
        try:
            files = self._remote.files("", progress)
        except Forbidden:
            return {}
        if self._remote.place is None:
            return {}
        return {self._name or self._said(files, progress) or self._folder: files}

    def _said(self, files: Sequence[File], progress: Progress) -> str:
        has = any(file.path == SETTINGS for file in files)
        return said_name(self._fetcher.read(self._folder, SETTINGS, progress)) if has else ""

    @property
    def _folder(self) -> str:
        """The name of the model's folder, bucket or host, without a port."""
        path = "" if self._remote.place is None else self._remote.place.path
        return f"{self.uri.rstrip('/')}/{path}".rstrip("/").rpartition("/")[2].partition(":")[0]


def opened(settings: Settings, kind: Callable[[Settings], Store]) -> Store:
    """Returns the store of a remote place. `kind`: makes the store of a repository. Raises InvalidSettings."""
    return LooseBucket(settings, kind(settings))
