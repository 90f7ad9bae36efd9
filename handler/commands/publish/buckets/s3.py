"""A prefix of a bucket in S3 for a publisher, and the meaning of S3's refusals.

Needs s3:ListBucket, GetObject and PutObject; DeleteObject where something is replaced or was left behind, and
AbortMultipartUpload where an upload is given up.

Writes and deletions have conditions: "only if it is not there" (If-None-Match) or "only if it is this one" (If-Match).
412 means that the condition does not hold: another writer was quicker. 409 means that the store could not decide,
because another request changed the key meanwhile. S3 also answers 409 to a multipart upload if its key was deleted
after its begin. Such a write is repeated, an upload with all of its parts. After a 501, the write is sent without its
condition.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from core.errors import ModelNotLoadable, ServingError
from handler.commands.publish.buckets.port import (
    SHA256,
    STREAMS,
    Conflict,
    Copied,
    Head,
    ListedFile,
    Only,
    Taken,
    Uncopied,
)
from handler.commands.publish.files import Section
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.stores import Forbidden
from handler.stores.progress import Progress
from handler.stores.s3 import errors
from handler.stores.s3.botocore_client import connect
from handler.stores.s3.client import Client
from handler.stores.s3.errors import ABSENT
from handler.stores.s3.listing import Unreadable
from handler.stores.s3.location import locate
from handler.stores.s3.session import NO_CREDENTIALS
from handler.stores.transfer.answers import UNTRUSTED

log = logging.getLogger(__name__)
TAKEN: Final = {"PreconditionFailed", "412", "NoSuchUpload"}
CONFLICT: Final = {"ConditionalRequestConflict", "409"}
CONDITIONS: Final = {"IfMatch", "IfNoneMatch"}
MARKERS: Final = ("KeyMarker", "UploadIdMarker")
"""Where the next page of unfinished uploads begins."""
WRITES: Final = {"put_object", "complete_multipart_upload", "upload_part_copy", "delete_object"}
"""Requests whose answer "not found" means that the object of a condition or a copy has gone."""
PERMISSIONS: Final = {
    "head_object": "s3:GetObject",
    "delete_object": "s3:DeleteObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
}


class S3Bucket:
    """See `handler.commands.publish.buckets.port.Bucket`."""

    part_size = 16 * 1024 * 1024
    """S3 requires 5 MiB or more in a part, and permits 10,000 parts."""
    listing = "s3:ListBucket"

    def __init__(self, settings: Settings, uri: str) -> None:
        self.uri = uri
        self.parts = self
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
        except ValueError as error:  # an endpoint that is not a URL
            raise self._unanswered(error) from None
        self._unknown: set[str] = set()  # conditions that the store does not support, by request
        self.now = datetime.now(UTC)
        """The store's time at its last answer to a listing."""
        # Without TLS, signing reads a body, too.
        self._client.meta.events.register_first("request-created.s3", _signing)
        self._client.meta.events.register_last("request-created.s3", _sending)

    def items(self, prefix: str) -> Iterator[ListedFile]:
        """Yields the objects below `prefix`, which is empty or a folder with its slash."""
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

    def find(self, key: str) -> ListedFile | None:
        """Finds one object: .push-1, and not .push-10."""
        return next((item for item in self.items(key) if not item.path), None)

    def head(self, key: str) -> Head | None:
        """Returns an object's size, checksum and ETag, None if it does not exist."""
        try:
            found = self._call("head_object", key)
        except _Absent:
            return None
        # HTTP's names have no case, and botocore keeps the store's: rclone and old MinIO send X-Amz-Meta-Sha256.
        metadata = {name.lower(): value for name, value in found.get("Metadata", {}).items()}
        return Head(found["ContentLength"], metadata.get(SHA256), found.get("ETag"))

    def put(self, key: str, body: Any, md5: str, sha256: str, only: Only) -> None:
        """Puts a small object. Raises Taken if the condition does not hold, as far as the store supports it."""
        self._write("put_object", key, only, Body=body, ContentMD5=md5, Metadata={SHA256: sha256})

    def begin(self, key: str, sha256: str) -> str:
        """Begins a multipart upload, and returns its id. The object appears when the upload is completed."""
        return str(self._call("create_multipart_upload", key, Metadata={SHA256: sha256})["UploadId"])

    def part(self, key: str, upload: str, number: int, body: Section, md5: str) -> str:
        """Uploads a part, and returns its ETag. Numbers begin with 1."""
        answer = self._call("upload_part", key, UploadId=upload, PartNumber=number, Body=body, ContentMD5=md5)
        return str(answer["ETag"])

    def copy(self, copied: Copied, key: str, upload: str, number: int, span: tuple[int, int]) -> str:
        """Copies a part, and returns its ETag. `span`: first byte and size. Raises Taken if the source has changed.

        Raises Uncopied if the store has taken the request for an empty part, as rclone does.
        """
        source = {"Bucket": self._place.bucket, "Key": self._place.prefix + copied.key}
        arguments = {"CopySource": source, "CopySourceRange": f"bytes={span[0]}-{sum(span) - 1}"}
        same = {} if copied.etag is None else {"CopySourceIfMatch": copied.etag}
        answer = self._call("upload_part_copy", key, UploadId=upload, PartNumber=number, **arguments, **same)
        etag = answer.get("CopyPartResult", {}).get("ETag")
        if etag is None:
            raise Uncopied
        return str(etag)

    def complete(self, key: str, upload: str, etags: Sequence[str], only: Only) -> None:
        """Completes an upload: the whole object appears. Raises Taken like `put`."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        self._write("complete_multipart_upload", key, only, UploadId=upload, MultipartUpload={"Parts": parts})

    def abort(self, key: str, upload: str) -> None:
        self._call("abort_multipart_upload", key, UploadId=upload)

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Returns the keys and ids of uploads that are neither completed nor aborted."""
        own, found, begin = len(self._place.prefix), [], dict[str, str]()
        while True:
            page = self._call("list_multipart_uploads", Prefix=self._place.prefix + prefix, **begin)
            found += [(each["Key"][own:], each["UploadId"]) for each in page.get("Uploads", ())]
            before, begin = begin, {name: page[f"Next{name}"] for name in MARKERS if page.get(f"Next{name}")}
            if not page.get("IsTruncated") or begin in ({}, before):  # a store may not say how to go on
                return found

    def delete(self, key: str, etag: str | None = None) -> None:
        """Deletes an object. `etag`: only this one; else raises Taken, if the store supports the condition."""
        self._write("delete_object", key, Only(etag=etag))

    def _write(self, method: str, key: str, only: Only, **arguments: Any) -> None:
        conditions = {f"{method} {name}" for name in _headers(only)}
        if conditions and not conditions & self._unknown:
            try:
                self._call(method, key, **_headers(only), **arguments)
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
        is_untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)  # botocore has one name for all errors of TLS
        kind = UNTRUSTED if is_untrusted else type(error).__name__
        return ModelNotLoadable(NO_CREDENTIALS) if "Credential" in kind else errors.unanswered(self._place, kind)


def _headers(only: Only) -> dict[str, str]:
    """Returns a condition's headers, by botocore's names."""
    if only.new:
        return {"IfNoneMatch": "*"}
    return {} if only.etag is None else {"IfMatch": only.etag}


class _Absent(Exception):
    """The object does not exist."""


class _Unsupported(Refused):
    """The store does not support this request, or not with these headers."""


def _signing(request: Any, **_: Any) -> None:
    if isinstance(request.body, Section):
        request.body.counting = False


def _sending(request: Any, **_: Any) -> None:
    if isinstance(request.body, Section):
        request.body.counting = True
