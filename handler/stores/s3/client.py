"""Requests to one place in S3, with retries and in the bucket's region. A failure is an error for the client."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from core.errors import ServingError
from handler.settings import Settings
from handler.stores import File, Forbidden
from handler.stores.progress import Progress
from handler.stores.s3 import errors, listing, session
from handler.stores.s3.http import BucketReader
from handler.stores.s3.listing import Page, Unreadable
from handler.stores.s3.location import Location
from handler.stores.transfer import retries
from handler.stores.transfer.answers import Broken, StoreRefused
from handler.stores.transfer.fetching import is_plain, without_folders
from handler.stores.transfer.retries import Failed, OutOfTime

log = logging.getLogger(__name__)
T = TypeVar("T")
PAGE: Final = 1000
"""Objects in one page of a listing: S3 sends no more."""
TRIES: Final = 3
"""Attempts at a request by itself. Files, and requests to a store that has too many, have more (see `retries`)."""


class Client:
    """`page`: the most objects in one page of a listing. The first request makes the connection."""

    def __init__(self, settings: Settings, place: Location, page: int = PAGE) -> None:
        self.place = place
        self._settings = settings
        self._page = page
        self._lock = threading.Lock()
        self._made: BucketReader | None = None
        self._region = ""  # the store's answer, once it has named one

    @property
    def bucket(self) -> BucketReader:
        """The bucket, with connections and credentials. Raises ServingError."""
        with self._lock:
            if self._made is None:
                self._made = session.connect(self._settings, self.place, self._region)
            return self._made

    @property
    def names(self) -> tuple[str, ...]:
        """The identity of this place."""
        return self.place.endpoint or "", self.place.bucket, self.place.prefix

    def key(self, model: str, path: str) -> str:
        """Returns the key of a model's file; without a model, of one in the place itself."""
        return f"{self.place.prefix}{model}/{path}" if model else self.place.prefix + path

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        with self._lock:
            self._made = None

    def tried(self, ask: Callable[[BucketReader], T], progress: Progress) -> T:
        """Calls `ask` with retries, and follows a region redirect. Raises Failed, OutOfTime, ServingError."""

        def asked() -> T:
            bucket = self.bucket
            try:
                return ask(bucket)
            except StoreRefused as refused:
                if not self._moved(bucket, refused):
                    raise
                log.warning("%s: %s", self._settings.repository, refused)
            return ask(self.bucket)

        return retries.tried(asked, progress, self._settings.repository, TRIES)

    def _moved(self, bucket: BucketReader, refused: StoreRefused) -> bool:
        """Decides whether the store has named another region than it was asked in. Later requests ask there."""
        if refused.region in ("", bucket.region):
            return False
        with self._lock:
            self._region = refused.region
            if self._made is bucket:  # of several threads that ask at the same time, the first one ends it
                self._made = None
        return True

    def files(self, model: str, progress: Progress) -> Sequence[File]:
        """Returns every file of a model. Raises Forbidden, ServingError."""
        prefix = self.key(model, "")  # without its slash, the listing of "model" would hold "model-2", too
        found = (each for page in self.pages({"prefix": prefix}, progress) for each in page.objects)
        files = (File(each.key[len(prefix) :], each.size, each.etag, each.checked) for each in found)
        return without_folders([file for file in files if is_plain(file.path)])

    def is_absent(self, reason: Broken | StoreRefused) -> bool:
        """Decides whether an object is missing or forbidden."""
        return errors.is_absent(reason)

    def failure(self, reason: Broken | StoreRefused, what: str) -> ServingError:
        """Returns the error for a client. `what`: the file that was being read."""
        return errors.of(reason, self.place, self._settings.repository, what)

    def pages(self, parameters: Mapping[str, str], progress: Progress) -> Iterator[Page]:
        """Yields a listing's pages. `parameters`: ListObjectsV2's. Raises Forbidden, ServingError."""
        token: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page = self.page({"max-keys": str(self._page), **parameters, **token}, progress)
            yield page
            if page.following is None:
                return
            token = self.after(page.following, seen)

    def after(self, following: str, seen: set[str]) -> dict[str, str]:
        """Returns the parameter of the page with a token. `seen`: the tokens so far, which a page must not repeat."""
        if following in seen:
            raise errors.unanswered(self.place, "a page of the listing is followed by one that was before")
        seen.add(following)
        return {"continuation-token": following}

    def page(self, parameters: Mapping[str, str], progress: Progress) -> Page:
        """Returns one page of a listing. Raises Forbidden where listing is not permitted, else ServingError."""
        try:
            return listing.page(*self.tried(lambda bucket: bucket.list(parameters, progress.left), progress))
        except OutOfTime:
            raise progress.unanswered() from None
        except Unreadable as error:
            raise errors.unanswered(self.place, str(error)) from error
        except Failed as failed:
            if errors.is_denied(failed.reason):
                raise Forbidden from failed
            raise errors.of(failed.reason, self.place, self._settings.repository) from failed
