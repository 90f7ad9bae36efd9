"""What the stores with fetched files share: they differ in how they list."""

from collections.abc import Sequence

from handler.settings import Settings
from handler.stores import File, Folder
from handler.stores.progress import Progress
from handler.stores.transfer.fetching import Fetcher, Remote


class FetchedStore:
    """See `handler.stores.Store`. `hashes`: it compares what it fetches with the digests of the files.

    `remote`: the place in the remote store.
    """

    hashes = True

    def __init__(self, settings: Settings, remote: Remote) -> None:
        self.uri = settings.repository
        self.remote = remote
        self._fetcher = Fetcher(settings, remote)
        self.check_cache = self._fetcher.check_cache

    def files(self, model: str, progress: Progress | None = None) -> Sequence[File]:
        return self.remote.files(model, progress or Progress())

    def read(self, model: str, path: str, progress: Progress | None = None) -> bytes | None:
        return self._fetcher.read(model, path, progress or Progress())

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        return self._fetcher.fetch(model, version, files, progress)

    def doubt(self, folder: Folder) -> None:
        """Compares the files of a version that did not load with the store's, before it is loaded again."""
        self._fetcher.doubt(folder.path)

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        self.remote.disconnect()
