"""The only module here that knows S3: a bucket's prefix as a publisher needs it, and what its refusals mean.

Needs s3:ListBucket, GetObject and PutObject; DeleteObject where something is replaced or was left behind, and
AbortMultipartUpload where an upload is given up.

Writes and deletions have conditions: "only if it is not there" (If-None-Match) or "only if it is this one" (If-Match).
412 says that the condition does not hold: somebody else was quicker. 409 says that the store could not tell, as another
request has changed the key meanwhile; S3 says so to a multipart upload whose key was deleted after it was begun, too.
Such a write is repeated, an upload with all of its parts. A store that answers 501 to a condition is asked without it.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from core.errors import ModelNotLoadable, ServingError
from handler.commands.publish.client import connect
from handler.commands.publish.files import Section
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.stores import Forbidden
from handler.stores.progress import Progress
from handler.stores.s3 import errors
from handler.stores.s3.client import Client
from handler.stores.s3.errors import ABSENT
from handler.stores.s3.listing import Unreadable
from handler.stores.s3.location import locate
from handler.stores.s3.session import NO_CREDENTIALS

log = logging.getLogger(__name__)
STREAMS: Final = 8
"""Requests at a time. A body is read as it is sent: memory does not grow with files."""
SHA256: Final = "sha256"
"""Key of the objects' metadata (x-amz-meta-sha256): hexadecimal, of the whole content."""
TAKEN: Final = {"PreconditionFailed", "412", "NoSuchUpload"}
CONFLICT: Final = {"ConditionalRequestConflict", "409"}
CONDITIONS: Final = {"IfMatch", "IfNoneMatch"}
WRITES: Final = {"put_object", "complete_multipart_upload", "upload_part_copy", "delete_object"}
"""Requests that a store answers "there is no such object" where a condition or a copy names one that has gone."""
PERMISSIONS: Final = {
    "head_object": "s3:GetObject",
    "delete_object": "s3:DeleteObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
}


class Taken(Exception):
    """Somebody else has written this object, or given up its upload, since it was looked at."""


class Conflict(Taken):
    """Something has happened to the key meanwhile, and the store cannot tell whether the condition holds: try again."""


class ListedFile(NamedTuple):
    """`path`: relative to what was listed. `etag`: with its quotes, None where the store lists none."""

    path: str
    size: int
    modified: datetime
    etag: str | None = None


class Head(NamedTuple):
    size: int
    sha256: str | None
    etag: str | None = None


class Only(NamedTuple):
    """A write's condition. `new`: no object is there; `etag`: this one is."""

    new: bool = False
    etag: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """As botocore names them."""
        if self.new:
            return {"IfNoneMatch": "*"}
        return {} if self.etag is None else {"IfMatch": self.etag}


class Copied(NamedTuple):
    """Where bytes come from that the bucket has already: an object, as long as it has this ETag."""

    key: str
    etag: str | None


class Bucket:
    """Keys are relative to the repository's prefix."""

    def __init__(self, settings: Settings, uri: str) -> None:
        self.uri = uri
        self._place = locate(uri, os.environ)
        self._reader = Client(settings._replace(repository=uri), self._place)
        try:
            self._client = connect(
                settings._replace(repository=uri),
                self._place,
                read_timeout=60,
                max_pool_connections=STREAMS,
                retries={"mode": "standard", "max_attempts": 5},
            )
        except ValueError as error:  # an endpoint that is no URL
            raise self._unanswered(error) from None
        self._unknown: set[str] = set()  # conditions that the store does not have, by request
        self.now = datetime.now(UTC)
        """The store's clock, at its last answer to a listing."""
        # Signing reads a body, too, where it is not sent over TLS.
        self._client.meta.events.register_first("request-created.s3", _signing)
        self._client.meta.events.register_last("request-created.s3", _sending)

    def items(self, prefix: str) -> Iterator[ListedFile]:
        """`prefix`: empty, or a folder with its slash."""
        begin = self._place.prefix + prefix
        try:
            for page in self._reader.pages({"prefix": begin}, Progress()):
                if page.date:
                    self.now = parsedate_to_datetime(page.date)
                for found in page.objects:
                    etag = None if found.etag is None else f'"{found.etag}"'
                    yield ListedFile(found.key[len(begin) :], found.size, found.time, etag)
        except Forbidden:
            raise Refused(errors.meaning(403, "AccessDenied", self._place, self.uri, "s3:ListBucket")) from None
        except Unreadable as error:
            raise errors.unanswered(self._place, str(error)) from error

    def head(self, key: str) -> Head | None:
        """None where there is no such object."""
        try:
            found = self._call("head_object", key)
        except _Absent:
            return None
        return Head(found["ContentLength"], found.get("Metadata", {}).get(SHA256), found.get("ETag"))

    def put(self, key: str, body: Any, md5: str, sha256: str, only: Only) -> None:
        """A small object. Raises Taken where the condition does not hold, as far as the store can tell."""
        self._write("put_object", key, only, Body=body, ContentMD5=md5, Metadata={SHA256: sha256})

    def begin(self, key: str, sha256: str) -> str:
        """A multipart upload's id. Nothing shows before it is completed."""
        return str(self._call("create_multipart_upload", key, Metadata={SHA256: sha256})["UploadId"])

    def part(self, key: str, upload: str, number: int, body: Section, md5: str) -> str:
        """The part's ETag. Numbers begin with 1."""
        answer = self._call("upload_part", key, UploadId=upload, PartNumber=number, Body=body, ContentMD5=md5)
        return str(answer["ETag"])

    def copy(self, copied: Copied, key: str, upload: str, number: int, span: tuple[int, int]) -> str:
        """A part that the bucket has already, by its first byte and its size. Raises Taken where it has other bytes."""
        source = {"Bucket": self._place.bucket, "Key": self._place.prefix + copied.key}
        arguments = {"CopySource": source, "CopySourceRange": f"bytes={span[0]}-{sum(span) - 1}"}
        same = {} if copied.etag is None else {"CopySourceIfMatch": copied.etag}
        answer = self._call("upload_part_copy", key, UploadId=upload, PartNumber=number, **arguments, **same)
        return str(answer["CopyPartResult"]["ETag"])

    def complete(self, key: str, upload: str, etags: Sequence[str], only: Only) -> None:
        """The object appears, whole. Raises Taken like `put`."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        self._write("complete_multipart_upload", key, only, UploadId=upload, MultipartUpload={"Parts": parts})

    def abort(self, key: str, upload: str) -> None:
        self._call("abort_multipart_upload", key, UploadId=upload)

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Keys and ids of what has been begun and neither completed nor aborted."""
        page = self._call("list_multipart_uploads", Prefix=self._place.prefix + prefix)
        own = len(self._place.prefix)
        return [(found["Key"][own:], found["UploadId"]) for found in page.get("Uploads", ())]

    def delete(self, key: str, etag: str | None = None) -> None:
        """`etag`: only this one. Raises Taken if it is another or gone, where the store can tell."""
        self._write("delete_object", key, Only(etag=etag))

    def _write(self, method: str, key: str, only: Only, **arguments: Any) -> None:
        conditions = {f"{method} {name}" for name in only.headers}
        if conditions and not conditions & self._unknown:
            try:
                self._call(method, key, **only.headers, **arguments)
            except _Unsupported:
                self._unknown |= conditions
                if "Body" in arguments:
                    arguments["Body"].seek(0)
            else:
                return
        self._call(method, key, **arguments)

    def _call(self, method: str, key: str | None = None, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - imported with the client

        if key is not None:
            arguments["Key"] = self._place.prefix + key
        try:
            return getattr(self._client, method)(Bucket=self._place.bucket, **arguments)
        except ClientError as error:
            log.info("%s on %s: %s", method, self.uri, error)
            raise self._refusal(method, error) from error
        except BotoCoreError as error:
            if type(error).__name__ == "ParamValidationError" and arguments.keys() & CONDITIONS:
                raise _Unsupported(f"botocore is too old for conditions of {method}") from error
            log.info("%s on %s: %s", method, self.uri, error)
            raise self._unanswered(error) from error

    def _refusal(self, method: str, error: Any) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in CONFLICT:
            return Conflict()
        if code in TAKEN or (code in ABSENT and method in WRITES):
            return Taken()
        if method == "head_object" and code in ABSENT:
            return _Absent()
        if code == "NotImplemented":
            return _Unsupported(f"the store has no {method}")
        permission = PERMISSIONS.get(method, "s3:PutObject")
        return Refused(errors.meaning(status, code, self._place, self.uri, permission))

    def _unanswered(self, error: Exception) -> ServingError:
        kind = type(error).__name__
        return ModelNotLoadable(NO_CREDENTIALS) if "Credential" in kind else errors.unanswered(self._place, kind)


class _Absent(Exception):
    """No such object."""


class _Unsupported(Refused):
    """The store does not know this, or not with these headers."""


def _signing(request: Any, **_: Any) -> None:
    if isinstance(request.body, Section):
        request.body.counting = False


def _sending(request: Any, **_: Any) -> None:
    if isinstance(request.body, Section):
        request.body.counting = True
