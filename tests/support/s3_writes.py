"""The writing half of the stand-in for an S3 server: objects, multipart uploads, copies of parts, deletions.

Conditions are Amazon's, of completed uploads too: with If-None-Match 409 where the key is free and has been written or
deleted since the upload was begun; with If-Match 404 where the key is free, and 409 where it was written since then. A
part may have any size, so that tests need no 5 MiB.
"""

import hashlib
import re
import threading
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

from tests.support import web

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
META = "x-amz-meta-"


@dataclass(frozen=True, slots=True)
class Thing:
    """An object; `etag` stands for its content. `headers`: what its answers have beside those of every object."""

    content: bytes
    etag: str
    headers: dict[str, str]
    modified: datetime = LONG_AGO
    meta: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Upload:
    """A multipart upload; `changes`: how often its key had changed when it was begun."""

    key: str
    meta: dict[str, str]
    changes: int
    parts: dict[int, bytes] = field(default_factory=dict)


class Refusal(Exception):
    """A refusal with a status and a code."""


def md5(content: bytes) -> str:
    """Returns the MD5 in an ETag's form."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class Objects:
    """The objects of a bucket. `changes`: how often each key was written or deleted."""

    def __init__(self, things: dict[str, Thing], lock: threading.Lock) -> None:
        self.things = things
        self.uploads: dict[str, Upload] = {}
        self.changes: dict[str, int] = {}
        self._lock = lock

    def check(self, key: str, headers: Mapping[str, str], begun: int | None = None) -> None:
        """Checks the request's condition; `begun`: `changes` when its upload was begun. Raises Refusal."""
        thing, wanted = self.things.get(key), headers.get("If-Match")
        if headers.get("If-None-Match") == "*" and thing is not None:
            raise Refusal(412, "PreconditionFailed")
        if wanted is not None and thing is None:
            raise Refusal(404, "NoSuchKey")
        if wanted is not None and thing is not None and wanted.strip('"') != thing.etag:
            raise Refusal(412, "PreconditionFailed")
        conditional = wanted is not None or "If-None-Match" in headers
        if conditional and begun not in (None, self.changes.get(key, 0)):
            raise Refusal(409, "ConditionalRequestConflict")

    def write(self, key: str, thing: Thing | None) -> None:
        """Writes the object, or removes it."""
        self.changes[key] = self.changes.get(key, 0) + 1
        if thing is None:
            self.things.pop(key, None)
        else:
            self.things[key] = thing

    def put(self, key: str, headers: Mapping[str, str], body: bytes) -> str:
        """Does PutObject; returns the ETag."""
        wanted = headers.get("Content-MD5")
        if wanted is not None and wanted != b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode():
            raise Refusal(400, "BadDigest")
        with self._lock:
            self.check(key, headers)
            self.write(key, Thing(body, md5(body), {}, datetime.now(UTC), meta(headers)))
        return md5(body)

    def delete(self, key: str, headers: Mapping[str, str]) -> None:
        with self._lock:
            self.check(key, headers)
            self.write(key, None)

    def begin(self, key: str, headers: Mapping[str, str]) -> str:
        """Does CreateMultipartUpload; returns the upload's id."""
        name = uuid4().hex
        with self._lock:
            self.uploads[name] = Upload(key, meta(headers), self.changes.get(key, 0))
        return name

    def part(self, name: str, number: int, content: bytes) -> str:
        """Does UploadPart; returns the ETag."""
        self.upload(name).parts[number] = content
        return md5(content)

    def copied(self, headers: Mapping[str, str]) -> bytes:
        """Returns the bytes that UploadPartCopy names."""
        key = unquote(headers["x-amz-copy-source"]).partition("/")[2]
        thing = self.things.get(key)
        if thing is None:
            raise Refusal(404, "NoSuchKey")
        if headers.get("x-amz-copy-source-if-match", thing.etag).strip('"') != thing.etag:
            raise Refusal(412, "PreconditionFailed")
        first, _, last = headers["x-amz-copy-source-range"].removeprefix("bytes=").partition("-")
        return thing.content[int(first) : int(last) + 1]

    def upload(self, name: str) -> Upload:
        """Returns the upload. Raises Refusal if it was completed or aborted."""
        if name not in self.uploads:
            raise Refusal(404, "NoSuchUpload")
        return self.uploads[name]

    def abort(self, name: str) -> None:
        with self._lock:
            self.upload(name)
            del self.uploads[name]

    def complete(self, name: str, headers: Mapping[str, str], numbers: Sequence[int]) -> str:
        """Does CompleteMultipartUpload; returns the ETag."""
        with self._lock:
            upload = self.upload(name)
            self.check(upload.key, headers, upload.changes)
            parts = [upload.parts[number] for number in numbers]
            digest = md5(b"".join(bytes.fromhex(md5(part)) for part in parts))
            thing = Thing(b"".join(parts), f"{digest}-{len(parts)}", {}, datetime.now(UTC), upload.meta)
            self.write(upload.key, thing)
            del self.uploads[name]
        return thing.etag


def meta(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns an object's own metadata."""
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith(META)}


class Writes(web.Handler):
    """The methods that write. The whole handler decides the outcome of a request, and its answer."""

    store: Any
    _fate: Any
    _tell: Any
    _error: Any

    def do_PUT(self) -> None:
        """Does PutObject, UploadPart or UploadPartCopy."""
        self._written(self._put)

    def do_POST(self) -> None:
        self._written(self._post)

    def do_DELETE(self) -> None:
        self._written(self._delete)

    def _written(self, work: Any) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").removeprefix("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.body()
        with self._fate() as alive:
            if alive:
                try:
                    answer = work(key, query, body)
                except Refusal as refusal:
                    self._error(*refusal.args, {})
                else:
                    self._tell(*answer)

    def _put(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str]]:
        objects = self.store.objects
        if "uploadId" not in query:
            return 200, "", {"ETag": f'"{objects.put(key, self.headers, body)}"'}
        copied = "x-amz-copy-source" in self.headers
        content = objects.copied(self.headers) if copied else body
        etag = f'"{objects.part(query["uploadId"], int(query["partNumber"]), content)}"'
        if copied:
            return 200, f"<CopyPartResult><ETag>{escape(etag)}</ETag></CopyPartResult>", {}
        return 200, "", {"ETag": etag}

    def _post(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str]]:
        objects = self.store.objects
        if "uploads" in query:
            begun = objects.begin(key, self.headers)
            return (
                200,
                f"<InitiateMultipartUploadResult><UploadId>{begun}</UploadId></InitiateMultipartUploadResult>",
                {},
            )
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        etag = objects.complete(query["uploadId"], self.headers, numbers)
        return 200, f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>", {}

    def _delete(self, key: str, query: dict[str, str], _: bytes) -> tuple[int, str, dict[str, str]]:
        objects = self.store.objects
        if "uploadId" in query:
            objects.abort(query["uploadId"])
        else:
            objects.delete(key, self.headers)
        return 204, "", {}
