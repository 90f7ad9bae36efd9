"""A repository on a web server: its index is its listing, and its files are fetched as those of S3 are."""

from collections.abc import Iterable, Mapping, Sequence

from handler.settings import Settings
from handler.stores import File
from handler.stores.progress import Progress
from handler.stores.transfer.store import FetchedStore
from handler.stores.web.index import IndexedFile
from handler.stores.web.reader import WebClient


class WebStore(FetchedStore):
    def __init__(self, settings: Settings) -> None:
        self._client = WebClient(settings)
        super().__init__(settings, self._client)

    def check(self, progress: Progress | None = None) -> None:
        self._client.indexed(progress or Progress())

    def everything(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]]:
        """Returns every model's files, by one request."""
        return _by_model(self._client.indexed(progress or Progress()).values())

    glance = everything
    """However many files there are, they are one request."""

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        return sorted(self.everything(progress))


def _by_model(files: Iterable[IndexedFile]) -> dict[str, list[File]]:
    models: dict[str, list[File]] = {}
    for each in files:
        name, slash, path = each.path.partition("/")
        if slash:
            models.setdefault(name, []).append(File(path, each.size, each.sha256))
    return models
