"""The right to replace a version: an object beside its folders, <model>/.push-<version>, put only where none is.

S3 has no condition on one key for a write to another. Without this, a push that was overtaken could still put a file
that the other version does not have, into the folder that servers take by then. Servers pass over the object: it lies
in no numbered folder. It names what is pushed, so that the same push takes it over at once when it is run again after
its death; another one does so when it is old. A push that stands still for so long, and goes on, finds other ETags.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO

from core.errors import ServingError
from handler.commands.publish import standing
from handler.commands.publish.bucket import Bucket, ListedFile, Only, Taken
from handler.commands.publish.sending import PushedObject
from handler.commands.publish.versions import PushJob
from handler.commands.refused import Refused


class PushClaim:
    """The right to replace one version. `objects`: what is pushed."""

    def __init__(self, bucket: Bucket, job: PushJob, objects: Iterable[PushedObject]) -> None:
        self._bucket = bucket
        self._key = f"{job.model}/.push-{job.number}"
        self._text = "".join(sorted(f"{each.content.sha256}  {each.file.path}\n" for each in objects)).encode()
        self._sha256 = hashlib.sha256(self._text).hexdigest()
        self._held = False

    def take(self) -> None:
        """Raises Refused, or Taken, if another push has it. Once more makes it young again."""
        try:
            self._put(Only(new=True))
        except Taken:
            self._take_over()
        self._held = True

    def _take_over(self) -> None:
        found = self._found()
        if found is None:
            raise Taken
        if not self._is_same() and not standing.is_debris(self._bucket, found, None):
            raise standing.under_way(self._key)
        self._put(Only(etag=found.etag))

    def _found(self) -> ListedFile | None:
        """What is there of .push-1, and not of .push-10."""
        return next((item for item in self._bucket.items(self._key) if not item.path), None)

    def _is_same(self) -> bool:
        head = self._bucket.head(self._key)
        return head is not None and head.sha256 == self._sha256

    def _put(self, only: Only) -> None:
        md5 = b64encode(hashlib.md5(self._text, usedforsecurity=False).digest()).decode()
        self._bucket.put(self._key, BytesIO(self._text), md5, self._sha256, only)

    def release(self) -> None:
        """If the store lets us: what remains is in the way of other pushes for some minutes."""
        if self._held:
            with suppress(Taken, Refused, ServingError):
                self._bucket.delete(self._key)

    def forget(self) -> None:
        """What the same push has left, after which nothing is to be done."""
        self._held = self._is_same()
