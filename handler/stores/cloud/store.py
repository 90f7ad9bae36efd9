"""A repository in Google Cloud Storage or in Azure Blob Storage.

Its files are fetched like those of S3: by several streams, resumed, and verified by the digests that `dragoman push`
wrote beside them. It needs the permission to read objects, and the one to list them to find versions.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from core.errors import ModelUnavailable
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Forbidden
from handler.stores.cloud.client import CloudClient, CloudObject
from handler.stores.cloud.providers import CloudPlace, locate
from handler.stores.cloud.reader import PAGE
from handler.stores.progress import Progress
from handler.stores.transfer.fetching import is_plain
from handler.stores.transfer.store import FetchedStore


class CloudStore(FetchedStore):
    def __init__(self, settings: Settings) -> None:
        self._place = located(settings.repository)
        self._client = CloudClient(settings, self._place)
        super().__init__(settings, self._client)

    def check(self, progress: Progress | None = None) -> None:
        try:
            self._client.objects(self._place.prefix, progress or Progress(), 1)
        except Forbidden:
            return  # the store answers, and reading single files is possibly permitted

    def glance(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]] | None:
        """Returns every model's files if there are at most 1,000, else None. Raises Forbidden."""
        found = self._objects(progress, PAGE)
        return None if len(found) > PAGE else self._by_model(found)

    def everything(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]]:
        """Returns every model's files, with a request for each page of a listing: 1,000 objects or more."""
        return self._by_model(self._objects(progress, None))

    def _objects(self, progress: Progress | None, most: int | None) -> Sequence[CloudObject]:
        try:
            return self._client.objects(self._place.prefix, progress or Progress(), most)
        except Forbidden:
            raise Forbidden(self._unlisted) from None

    def _by_model(self, objects: Iterable[CloudObject]) -> dict[str, list[File]]:
        models: dict[str, list[File]] = {}
        for each in objects:
            name, slash, path = each.key[len(self._place.prefix) :].partition("/")
            if slash:
                files = models.setdefault(name, [])
                if is_plain(path):
                    files.append(File(path, each.size, each.etag))
        return models

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        try:
            return self._client.folders(progress or Progress())
        except Forbidden:
            raise ModelUnavailable(self._unlisted) from None

    @property
    def _unlisted(self) -> str:
        provider = self._place.provider
        return (
            f"listing {provider.noun} {self._place.bucket!r} is not permitted: grant {provider.permissions[1]} "
            "to see its models"
        )


def located(uri: str) -> CloudPlace:
    """Returns the place of a repository in a cloud whose client is installed. Raises InvalidSettings."""
    place = locate(uri, os.environ)
    if find_spec("obstore") is None:
        raise InvalidSettings(
            f"{place.provider.scheme}:// needs obstore: pip install 'dragoman[{place.provider.extra}]'"
        )
    return place
