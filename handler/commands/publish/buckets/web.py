"""A repository on a web server for `pull`, `list` and `verify`. It is read only: files get there by other ways."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from handler.commands.publish.buckets.port import Head, ListedFile, Only
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.stores.progress import Progress
from handler.stores.web.index import IndexedFile
from handler.stores.web.reader import WebClient


class WebBucket:
    """See `handler.commands.publish.buckets.port.Bucket`."""

    parts = None
    part_size = 0
    listing = "reading index.json"

    def __init__(self, settings: Settings, uri: str) -> None:
        self.uri = uri
        self.now = datetime.now(UTC)
        self._client = WebClient(settings._replace(repository=uri))

    def items(self, prefix: str) -> Iterator[ListedFile]:
        for each in self._client.indexed(Progress()).values():
            if each.path.startswith(prefix):
                yield ListedFile(each.path[len(prefix) :], each.size, each.time, f'"{each.sha256}"')

    def _found(self, key: str) -> IndexedFile | None:
        return self._client.indexed(Progress()).get(key)

    def find(self, key: str) -> ListedFile | None:
        found = self._found(key)
        return None if found is None else ListedFile("", found.size, found.time, f'"{found.sha256}"')

    def head(self, key: str) -> Head | None:
        found = self._found(key)
        return None if found is None else Head(found.size, found.sha256, f'"{found.sha256}"')

    def put(self, key: str, _body: Any, _md5: str, _sha256: str, _only: Only) -> None:
        """Raises Refused."""
        raise self._refusal(key)

    def delete(self, key: str, _etag: str | None = None) -> None:
        """Raises Refused."""
        raise self._refusal(key)

    def _refusal(self, key: str) -> Refused:
        return Refused(f"{self.uri}/{key} cannot be written: a repository on a web server is read only")
