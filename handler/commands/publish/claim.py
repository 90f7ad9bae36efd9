"""The right to replace a version: an object beside its folders, <model>/.push-<version>, put only if there is none.

S3 has no condition on one key for a write to another. Without this object, an overtaken push could still put a file
into the folder that servers take by then, although the other version does not have that file. Servers ignore the
object: it lies in no numbered folder. It names the pushed files. The same push, run again after its death, takes it
over at once; another push takes it over when it is old. A push that pauses for so long, and continues, finds other
ETags.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO

from core.errors import ServingError
from handler.commands.publish import standing
from handler.commands.publish.buckets.port import Bucket, Only, Taken
from handler.commands.publish.sending import PushedObject
from handler.commands.publish.versions import PushJob
from handler.commands.refused import Refused


class PushClaim:
    """The right to replace one version. `objects`: the pushed ones."""

    def __init__(self, bucket: Bucket, job: PushJob, objects: Iterable[PushedObject]) -> None:
        self._bucket = bucket
        self._key = f"{job.model}/.push-{job.number}"
        self._text = "".join(sorted(f"{each.content.sha256}  {each.file.path}\n" for each in objects)).encode()
        self._sha256 = hashlib.sha256(self._text).hexdigest()
        self._held = False

    def take(self) -> None:
        """Takes the right, or renews it. Raises Refused, or Taken, if another push has it."""
        try:
            self._put(Only(new=True))
        except Taken:
            self._take_over()
        self._held = True

    def _take_over(self) -> None:
        found = self._bucket.find(self._key)
        if found is None:
            raise Taken
        if not self._is_same() and not standing.is_debris(self._bucket, found, None):
            raise standing.under_way(self._key)
        self._put(Only(etag=found.etag))

    def _is_same(self) -> bool:
        head = self._bucket.head(self._key)
        return head is not None and head.sha256 == self._sha256

    def _put(self, only: Only) -> None:
        md5 = b64encode(hashlib.md5(self._text, usedforsecurity=False).digest()).decode()
        self._bucket.put(self._key, BytesIO(self._text), md5, self._sha256, only)

    def release(self) -> None:
        """Releases the right, if the store permits it. An object that remains blocks other pushes for some minutes.

        Another push can have taken it over from one that paused: its object stays.
        """
        if self._held:
            with suppress(Taken, Refused, ServingError):
                if self._is_same():
                    self._bucket.delete(self._key)

    def forget(self) -> None:
        """Marks a claim that the same push has left as held, so that `release` deletes it."""
        self._held = self._is_same()
