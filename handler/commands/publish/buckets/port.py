"""What a publisher asks of a bucket's prefix, and the conditions of its writes.

"Only if it is not there" and "only if it is this one" make one of two publishers win. Each store says them in its own
way: S3 and Azure by ETags (If-None-Match, If-Match), Google Cloud Storage by the object's generation.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from core.records import NamedTuple
from handler.commands.publish.files import Section

STREAMS: Final = 8
"""Requests at a time. A body is read while it is sent: memory does not grow with files."""
SHA256: Final = "sha256"
"""Key in an object's metadata (x-amz-meta-sha256) for the hexadecimal checksum of its whole content."""


class Taken(Exception):
    """Another writer has written this object, or has aborted its upload, since this push read it."""


class Conflict(Taken):
    """The key changed meanwhile, and the store cannot decide whether the condition holds: try again."""


class Uncopied(Exception):
    """The store does not copy parts."""


class ListedFile(NamedTuple):
    """A listed object. `path`: relative to the listed prefix. `etag`: with its quotes, None if the store lists none."""

    path: str
    size: int
    modified: datetime
    etag: str | None = None


class Head(NamedTuple):
    size: int
    sha256: str | None
    etag: str | None = None


class Only(NamedTuple):
    """A write's condition. `new`: the key has no object. `etag`: its object has this ETag."""

    new: bool = False
    etag: str | None = None


class Copied(NamedTuple):
    """The source of bytes that the bucket has already: an object, as long as it has this ETag."""

    key: str
    etag: str | None


class PartUploads(Protocol):
    """What a bucket offers beside `put`, for objects that are sent in parts."""

    def begin(self, key: str, sha256: str, /) -> str:
        """Begins an upload in parts, and returns its id. The object appears when the upload is completed."""
        ...

    def part(self, key: str, upload: str, number: int, body: Section, md5: str, /) -> str:
        """Uploads a part, and returns its ETag. Numbers begin with 1."""
        ...

    def copy(self, copied: Copied, key: str, upload: str, number: int, span: tuple[int, int], /) -> str:
        """Copies a part, and returns its ETag. `span`: first byte and size. Raises Taken, Uncopied."""
        ...

    def complete(self, key: str, upload: str, etags: Sequence[str], only: Only, /) -> None:
        """Completes an upload: the whole object appears. Raises Taken like `put`."""
        ...

    def abort(self, key: str, upload: str, /) -> None: ...

    def uploads(self, prefix: str, /) -> list[tuple[str, str]]:
        """Returns the keys and ids of uploads that are neither completed nor aborted."""
        ...


class Bucket(Protocol):
    """A bucket's prefix. Keys are relative to the repository's prefix. Methods raise Refused, ServingError.

    `now`: the store's time, or this machine's where the store does not say. `part_size`: bytes up to which an object is
    one request; larger ones are sent in parts of that size, by `parts`, which is None where none is larger.
    `listing`: the permission to list, as the store names it.
    """

    uri: str
    now: datetime
    part_size: int
    listing: str
    parts: PartUploads | None

    def items(self, prefix: str, /) -> Iterable[ListedFile]:
        """Yields the objects below `prefix`, which is empty or a folder with its slash."""
        ...

    def find(self, key: str, /) -> ListedFile | None:
        """Returns one object as a listing has it, with an empty path; None if it does not exist."""
        ...

    def head(self, key: str, /) -> Head | None:
        """Returns an object's size, checksum and ETag, None if it does not exist."""
        ...

    def put(self, key: str, body: Any, md5: str, sha256: str, only: Only, /) -> None:
        """Puts an object of one part. Raises Taken if the condition does not hold, as far as the store supports it."""
        ...

    def delete(self, key: str, etag: str | None = None, /) -> None:
        """Deletes an object. `etag`: only this one; else raises Taken, if the store supports the condition."""
        ...
