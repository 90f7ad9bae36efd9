"""Requests to one place in a cloud, with retries. A failure is an error for the client."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from core.errors import ModelNotLoadable, ServingError
from core.records import NamedTuple
from handler.settings import Settings
from handler.stores import File, Forbidden
from handler.stores.cloud import errors
from handler.stores.cloud.providers import CloudPlace
from handler.stores.cloud.reader import CloudReader
from handler.stores.progress import Progress
from handler.stores.transfer import answers, retries
from handler.stores.transfer.answers import Broken, ObjectReader, StoreRefused
from handler.stores.transfer.fetching import folders_of, is_plain
from handler.stores.transfer.retries import Failed, OutOfTime

log = logging.getLogger(__name__)
T = TypeVar("T")
TRIES: Final = 3
"""Attempts at a request by itself. Files have more (see `download`)."""
CONNECT: Final = timedelta(seconds=3)
LONGEST: Final = timedelta(hours=1)
"""The most time for one request with its body. A server's deadline and STALL end it sooner."""


class CloudObject(NamedTuple):
    """An object as a listing has it. `key`: the whole key. `size`: in bytes. `etag`: without quotes, None without."""

    key: str
    size: int
    etag: str | None
    modified: datetime


class CloudClient:
    """See `handler.stores.transfer.fetching.Remote`. The first request imports obstore.

    `attempts`: the client's own at a request; servers' requests are repeated here, within their deadline.
    """

    def __init__(self, settings: Settings, place: CloudPlace, attempts: int = 1) -> None:
        self.place = place
        self._uri = settings.repository
        self._attempts = attempts
        self._lock = threading.Lock()
        self._made: CloudReader | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The identity of this place."""
        place = self.place
        return f"{place.provider.scheme}://{place.endpoint or place.host}", place.bucket, place.prefix

    @property
    def bucket(self) -> CloudReader:
        """The bucket, with connections and credentials. Raises ServingError."""
        with self._lock:
            if self._made is None:
                self._made = CloudReader(self._store())
            return self._made

    def _store(self) -> Any:
        from obstore import store  # noqa: PLC0415 - 31 ms of cold start, for these stores alone
        from obstore.exceptions import BaseError  # noqa: PLC0415 - the same

        place = self.place
        log.info("%s %s: at %s", place.provider.noun, place.bucket, place.endpoint or place.host)
        try:
            return getattr(store, place.provider.store)(
                place.bucket,
                config=dict(place.config),
                client_options={
                    "connect_timeout": CONNECT,
                    "read_timeout": timedelta(seconds=answers.STALL),
                    "timeout": LONGEST,
                    "allow_http": place.endpoint.startswith("http://"),
                    "user_agent": "dragoman",
                },
                retry_config={"max_retries": self._attempts - 1, "retry_timeout": timedelta(minutes=3)},
            )
        except (BaseError, OSError, ValueError) as error:  # its text may hold a key's file
            log.warning("%s: the client cannot be made: %s", self._uri, type(error).__name__)
            raise ModelNotLoadable(
                f"{self._uri}: the credentials cannot be used: check {place.provider.variables}"
            ) from None

    def key(self, model: str, path: str) -> str:
        """Returns the key of a model's file; without a model, of one in the place itself."""
        return f"{self.place.prefix}{model}/{path}" if model else self.place.prefix + path

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        with self._lock:
            self._made = None

    def tried(self, ask: Callable[[ObjectReader], T], progress: Progress) -> T:
        """Calls `ask` with retries. Raises Failed, OutOfTime, ServingError."""
        return retries.tried(lambda: ask(self.bucket), progress, self._uri, TRIES)

    def files(self, model: str, progress: Progress) -> Sequence[File]:
        """Returns every file of a model. Raises Forbidden, ServingError."""
        prefix = self.key(model, "")
        files = (File(each.key[len(prefix) :], each.size, each.etag) for each in self.objects(prefix, progress))
        return [file for file in files if is_plain(file.path)]

    def objects(self, prefix: str, progress: Progress, most: int | None = None) -> list[CloudObject]:
        """Returns the objects below a prefix, sorted; if there are more than `most`, at least one more than that.

        Raises Forbidden where listing is not permitted, else ServingError.
        """

        def ask() -> list[CloudObject]:
            found = self.bucket.listed(prefix, lambda: progress.left, most)
            return [
                CloudObject(each["path"], each["size"], (each["e_tag"] or "").strip('"') or None, each["last_modified"])
                for each in found
            ]

        found = sorted(self._listed(ask, progress))
        folders = folders_of(each.key for each in found)
        # A folder's own object is skipped, whose slash the client removes: consoles and file systems make them.
        return [each for each in found if each.key.startswith(prefix) and (each.size or each.key not in folders)]

    def folders(self, progress: Progress) -> list[str]:
        """Returns the sorted names of the folders of the repository. Raises Forbidden, ServingError."""
        return sorted(self._listed(lambda: self.bucket.folders(self.place.prefix, progress.left), progress))

    def _listed(self, ask: Callable[[], list[T]], progress: Progress) -> list[T]:
        try:
            return retries.tried(ask, progress, self._uri, TRIES)
        except OutOfTime:
            raise progress.unanswered() from None
        except Failed as failed:
            if errors.is_denied(failed.reason):
                raise Forbidden from failed
            raise errors.of(failed.reason, self.place, self._uri) from failed

    def is_absent(self, reason: Broken | StoreRefused) -> bool:
        """Decides whether an object is missing or forbidden."""
        return errors.is_absent(reason)

    def failure(self, reason: Broken | StoreRefused, what: str) -> ServingError:
        """Returns the error for a client. `what`: the file that was being read."""
        return errors.of(reason, self.place, self._uri, what)
