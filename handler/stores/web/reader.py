"""Requests to one web server: the index, and the files that it names.

No request leaves the server that the operator has named: redirects are not followed. S3's own client does the requests,
without signatures.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError
from handler.settings import InvalidSettings, Settings
from handler.stores import File
from handler.stores.checksums import Checksum
from handler.stores.progress import Progress
from handler.stores.s3.http import BucketReader
from handler.stores.s3.session import Anonymous, proxy_of
from handler.stores.transfer import retries
from handler.stores.transfer.answers import (
    NOT_TLS,
    UNTRUSTED,
    Answer,
    Broken,
    Line,
    ObjectReader,
    ObjectRequest,
    StoreRefused,
    unfit,
    whole,
)
from handler.stores.transfer.retries import Failed, OutOfTime
from handler.stores.web import index
from handler.stores.web.index import IndexedFile, Malformed

log = logging.getLogger(__name__)
T = TypeVar("T")
TRIES: Final = 3
"""Attempts at a request by itself. Files have more (see `download`)."""
REDIRECTS: Final = range(300, 400)
MISSING: Final = {404, 410}
UNANSWERED: Final = {UNTRUSTED: "SSL_CERT_FILE", NOT_TLS: "the scheme of DRAGOMAN_REPOSITORY, http:// or https://"}
"""What to check, by the error of a request without an answer."""


class WebReader:
    """Reads the files that the last index has named. An answer has the index's SHA-256 as ETag and as checksum."""

    def __init__(self, base: str, tls: ssl.SSLContext | None) -> None:
        self._reader = BucketReader(base, "", Anonymous(), tls, proxy_of(base))
        self.files: Mapping[str, IndexedFile] = {}

    def get(self, asked: ObjectRequest, seconds: float, line: Line | None = None) -> Answer:
        """See ObjectReader.get. Raises StoreRefused (404) for a file that the index does not name."""
        until = time.monotonic() + seconds
        entry = (self.files or self._first(seconds)).get(asked.key)
        if entry is None:
            raise StoreRefused(404, "404")
        # The ETag is the index's: the server has another one, or none.
        headers = {name: text for name, text in (asked.headers or {}).items() if name != "If-Match"}
        answer = self._reader.get(asked._replace(headers=headers), until - time.monotonic(), line)
        answer.etag, answer.checksum = entry.sha256, Checksum("sha256", entry.sha256)
        return answer

    def _first(self, seconds: float) -> Mapping[str, IndexedFile]:
        """Reads the index for a caller that has the listing from elsewhere. Raises Broken, StoreRefused."""
        try:
            return self.refresh(seconds)
        except Malformed as wrong:
            raise StoreRefused(200, "Malformed") from wrong

    def refresh(self, seconds: float) -> Mapping[str, IndexedFile]:
        """Reads the index. Raises Broken, StoreRefused, Malformed."""
        until = time.monotonic() + seconds
        answer = self._reader.get(ObjectRequest(index.FILE, {"Cache-Control": "no-cache"}), seconds)
        self.files = index.parse(whole(answer.body, until - time.monotonic()))
        return self.files


class WebClient:
    """See `handler.stores.transfer.fetching.Remote`. `base`: the repository's URL, without a slash at its end."""

    def __init__(self, settings: Settings) -> None:
        self.base = checked(settings.repository)
        self._lock = threading.Lock()
        self._made: WebReader | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The identity of this place."""
        return (self.base,)

    @property
    def bucket(self) -> WebReader:
        """The server, with its connections."""
        with self._lock:
            if self._made is None:
                tls = ssl.create_default_context() if self.base.startswith("https:") else None
                self._made = WebReader(self.base, tls)
            return self._made

    def disconnect(self) -> None:
        """Forgets the connections. The next request makes new ones."""
        with self._lock:
            self._made = None

    def key(self, model: str, path: str) -> str:
        """Returns the path of a model's file; without a model, of one in the place itself."""
        return f"{model}/{path}" if model else path

    def tried(self, ask: Callable[[ObjectReader], T], progress: Progress) -> T:
        """Calls `ask` with retries. Raises Failed, OutOfTime."""
        return retries.tried(lambda: ask(self.bucket), progress, self.base, TRIES)

    def indexed(self, progress: Progress) -> Mapping[str, IndexedFile]:
        """Returns the files that the index names now, by their paths. Raises ServingError."""
        try:
            return retries.tried(lambda: self.bucket.refresh(progress.left), progress, self.base, TRIES)
        except OutOfTime:
            raise progress.unanswered() from None
        except Malformed as wrong:
            raise ModelNotLoadable(f"{self.base}: {wrong}") from wrong
        except Failed as failed:
            if isinstance(failed.reason, StoreRefused) and failed.reason.status in MISSING:
                raise ModelNotLoadable(
                    f"{self.base} has no {index.FILE}: `dragoman index FOLDER` writes it, beside the models"
                ) from failed
            raise self.failure(failed.reason, index.FILE) from failed

    def files(self, model: str, progress: Progress) -> Sequence[File]:
        """Returns every file of a model. Raises ServingError."""
        prefix = self.key(model, "")
        found = self.indexed(progress).values()
        return [
            File(each.path[len(prefix) :], each.size, each.sha256) for each in found if each.path.startswith(prefix)
        ]

    def is_absent(self, reason: Broken | StoreRefused) -> bool:
        """Decides whether a file is missing."""
        return isinstance(reason, StoreRefused) and reason.status in MISSING

    def failure(self, reason: Broken | StoreRefused, what: str) -> ServingError:
        """Returns the error for a client. `what`: the file that was being read."""
        if reason.status in REDIRECTS:
            return ModelNotLoadable(
                f"{self.base} redirects ({reason.status}), which is not followed: name the final address in "
                "DRAGOMAN_REPOSITORY"
            )
        if isinstance(reason, StoreRefused):
            own = unfit(reason.code, what)
            text = f"{self.base}: {own}" if own else f"the server at {self.base} answered {reason.status} for {what}"
            return ModelNotLoadable(text)
        if reason.started:
            return ModelUnavailable(f"{what} broke off again and again ({reason})")
        if reason.status:
            return ModelUnavailable(f"the server at {self.base} answered {reason.status} for {what}")
        cure = UNANSWERED.get(str(reason), "DRAGOMAN_REPOSITORY and the network")
        return ModelUnavailable(f"the server at {self.base} does not answer ({reason}): check {cure}")


def checked(uri: str) -> str:
    """Returns a repository's URL without a slash at its end. Raises InvalidSettings."""
    expected = "expected https://host/path, without a query"
    try:
        parts = urlsplit(uri)
        wrong = not parts.hostname or parts.port == 0
    except ValueError:
        wrong, parts = True, urlsplit("")
    if "@" in (uri if wrong else parts.netloc):
        raise InvalidSettings("DRAGOMAN_REPOSITORY holds credentials, which are not supported for a web server")
    if "?" in uri or "#" in uri:  # such as the signature of a shared address
        raise InvalidSettings(f"DRAGOMAN_REPOSITORY has a query or a fragment; {expected}")
    if wrong or not uri.isprintable() or " " in uri:
        raise InvalidSettings(f"DRAGOMAN_REPOSITORY is {uri[:256]!r}; {expected}", f"DRAGOMAN_REPOSITORY: {expected}")
    return uri.rstrip("/")
