"""A prefix of a bucket in Google Cloud Storage, or of a container in Azure Blob Storage, for a publisher.

Each object is one request with its condition, however large it is, so that it appears as a whole or not at all, and
nothing of a push that died is left. Its bytes are a map of the file: memory does not grow with files. A broken request
begins again. Azure takes 5,000 MiB in one request.

A deletion has no condition here: the client has none. The object is looked at immediately before. Two publishers who
replace one version exclude each other by `claim`, whose object is put with a condition.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from handler.commands.publish.buckets.port import SHA256, Head, ListedFile, Only, Taken
from handler.commands.publish.files import Section
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.stores import Forbidden
from handler.stores.cloud import errors
from handler.stores.cloud.client import CloudClient
from handler.stores.cloud.reader import begun
from handler.stores.cloud.store import located
from handler.stores.progress import Progress
from handler.stores.transfer.answers import Broken, StoreRefused

T = TypeVar("T")
MIB: Final = 1024 * 1024
LARGEST: Final = {"az": 5000 * MIB, "gs": 5 * MIB * MIB}
"""The most bytes of an object that is put by one request."""
ATTEMPTS: Final = 5
LOOK: Final = 0.2
"""Seconds between two looks whether the command was stopped."""
CHANGED: Final = {409, 412}


class CloudBucket:
    """See `handler.commands.publish.buckets.port.Bucket`."""

    parts = None

    def __init__(self, settings: Settings, uri: str) -> None:
        self.uri = uri
        self._place = located(uri)
        self.part_size = LARGEST[self._place.provider.scheme]
        self.listing = self._place.provider.permissions[1]
        self._client = CloudClient(settings._replace(repository=uri), self._place, ATTEMPTS)

    @property
    def now(self) -> datetime:
        """The time of this machine. One whose clock is minutes off gets no token, or has its signatures refused."""
        return datetime.now(UTC)

    def items(self, prefix: str) -> Iterable[ListedFile]:
        begin = self._place.prefix + prefix
        try:
            found = self._client.objects(begin, Progress())
        except Forbidden:
            raise Refused(f"{self.uri}: access denied: grant {self.listing}") from None
        for each in found:
            etag = None if each.etag is None else f'"{each.etag}"'
            yield ListedFile(each.key[len(begin) :], each.size, each.modified, etag)

    def find(self, key: str) -> ListedFile | None:
        found = self._found(key)
        if found is None:
            return None
        return ListedFile("", found.meta["size"], found.meta["last_modified"], _quoted(found.meta["e_tag"]))

    def head(self, key: str) -> Head | None:
        found = self._found(key)
        if found is None:
            return None
        metadata = {name.lower(): value for name, value in found.attributes.items()}
        return Head(found.meta["size"], metadata.get(SHA256), _quoted(found.meta["e_tag"]))

    def _found(self, key: str) -> Any:
        """Returns the head of an object as obstore has it, None if it does not exist."""
        from obstore import get_async  # noqa: PLC0415 - 31 ms of cold start, for these stores alone

        whole = self._place.prefix + key
        try:
            return self._done(lambda: get_async(self._client.bucket.store, whole, options={"head": True}))
        except _Absent:
            return None

    def put(self, key: str, body: Any, _md5: str, sha256: str, only: Only) -> None:
        """Puts an object with its condition. Raises Taken, Refused."""
        from obstore import put_async  # noqa: PLC0415 - as above

        content = body.mapped() if isinstance(body, Section) else body.read()
        if len(content) > self.part_size:
            raise Refused(f"{key} has {len(content)} bytes; {self._place.host} takes {self.part_size} in one request")
        whole, mode = self._place.prefix + key, self._mode(key, only)

        def request() -> Awaitable[Any]:
            store = self._client.bucket.store
            return put_async(store, whole, content, attributes={SHA256: sha256}, mode=mode, use_multipart=False)

        try:
            self._done(request, body.check if isinstance(body, Section) else None)
        except _Absent:
            raise Taken from None
        if isinstance(body, Section):
            body.sent()

    def _mode(self, key: str, only: Only) -> Any:
        """Returns a condition as obstore has it. Raises Taken if it does not hold already."""
        if only.new:
            return "create"
        if only.etag is None:
            return "overwrite"
        found = self._found(key)
        if found is None or _quoted(found.meta["e_tag"]) != only.etag:
            raise Taken
        # Google's store has a generation, Azure's an ETag alone.
        return {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name] is not None}

    def delete(self, key: str, etag: str | None = None) -> None:
        from obstore import delete_async  # noqa: PLC0415 - as above

        if etag is not None:
            found = self._found(key)
            if found is None or _quoted(found.meta["e_tag"]) != etag:
                raise Taken
        try:
            self._done(lambda: delete_async(self._client.bucket.store, self._place.prefix + key))
        except _Absent:
            raise Taken from None

    def _done(self, request: Callable[[], Awaitable[T]], check: Callable[[], None] | None = None) -> T:
        """Returns what a request returns. `check`: raises when the command is stopped. Raises Taken, Refused, _Absent.

        Ends the request with the command.
        """
        future = begun(request)
        try:
            while True:
                try:
                    return future.result(LOOK)
                except TimeoutError:
                    if future.done():
                        raise
                    if check is not None:
                        check()
        except Exception as error:
            raise self._refusal(errors.reason(error)) from error
        finally:
            future.cancel()

    def _refusal(self, found: Broken | StoreRefused) -> Exception:
        place = self._place
        if found.status in CHANGED and found.code not in place.provider.cures:
            return Taken()
        if found.code in errors.ABSENT:
            return _Absent()
        if errors.is_denied(found):
            return Refused(errors.meaning(found, place, self.uri, place.provider.permissions[2]))
        return errors.of(found, place, self.uri)


class _Absent(Exception):
    """The object does not exist."""


def _quoted(etag: str | None) -> str | None:
    return None if etag is None else f'"{etag.strip(chr(34))}"'
