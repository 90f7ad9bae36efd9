"""A repository in S3 or in a store that speaks its API.

It needs s3:GetObject, and s3:ListBucket to find versions. It sends no other request.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Final

from core.errors import ModelUnavailable
from handler.settings import Settings
from handler.stores import File, Folder, Forbidden, Gone
from handler.stores.cache import Cache, Place, digest, unwritable
from handler.stores.journal import Parts
from handler.stores.progress import Progress
from handler.stores.s3 import errors
from handler.stores.s3.answers import whole
from handler.stores.s3.client import Client
from handler.stores.s3.download import Download
from handler.stores.s3.http import BucketReader
from handler.stores.s3.location import locate
from handler.stores.s3.objects import Known, Transfer
from handler.stores.s3.ranges import Work, most_streams
from handler.stores.s3.retries import Damaged, Failed, OutOfTime, Replaced

log = logging.getLogger(__name__)
REPLACEMENTS: Final = 4


class S3Store:
    """See `handler.stores.Store`."""

    def __init__(self, settings: Settings) -> None:
        self.uri = settings.repository
        self._place = locate(settings.repository, os.environ)
        self._client = Client(settings, self._place)
        self._cache = Cache(settings.cache, settings.cache_bytes)
        self._streams = most_streams(settings.cpus)

    def check(self, progress: Progress | None = None) -> None:
        try:
            self._client.page({"prefix": self._place.prefix, "max-keys": "1"}, progress or Progress())
        except Forbidden:
            return  # the store answers, and reading single files may be permitted

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        prefix = self._place.prefix
        try:
            pages = list(self._client.pages({"prefix": prefix, "delimiter": "/"}, progress or Progress()))
        except Forbidden:
            raise ModelUnavailable(
                f"listing bucket {self._place.bucket!r} is not permitted: grant s3:ListBucket to see its models"
            ) from None
        return sorted(folder[len(prefix) : -1] for page in pages for folder in page.folders)

    def files(self, model: str, progress: Progress | None = None) -> Sequence[File]:
        # Without its slash, the listing of "model" would hold "model-2", too.
        prefix = f"{self._place.prefix}{model}/"
        pages = self._client.pages({"prefix": prefix}, progress or Progress())
        found = (each for page in pages for each in page.objects)
        files = (File(each.key[len(prefix) :], each.size, each.etag, each.checked) for each in found)
        return [file for file in files if _is_plain(file.path)]

    def read(self, model: str, path: str, progress: Progress | None = None) -> bytes | None:
        key, progress = f"{self._place.prefix}{model}/{path}", progress or Progress()

        def ask(bucket: BucketReader) -> bytes:
            return whole(bucket.get(key, progress.left, {}).body, progress.left)

        try:
            return self._client.tried(ask, progress)
        except Failed as failed:
            if errors.is_absent(failed.reason):
                return None
            raise errors.of(failed.reason, self._place, self.uri, _named(path, model)) from failed
        except OutOfTime:
            raise progress.unanswered() from None

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        self._client.disconnect()

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        try:
            return self._settled(model, version, files, progress)
        except OSError as error:  # the disk's: those of the network are Broken
            raise unwritable(error) from error
        except OutOfTime:
            raise progress.out_of_time(model) from None
        except Failed as failed:
            path, reason = failed.path, failed.reason
            if errors.is_absent(reason):
                raise Gone(f"{path} of model {model!r} is missing or forbidden") from failed
            raise errors.of(reason, self._place, self.uri, _named(path, model)) from failed
        except Damaged as damaged:
            raise ModelUnavailable(
                f"{_named(damaged.path, model)} came twice with another content than the store's "
                f"{damaged.algorithm} says"
            ) from damaged

    def _settled(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        for _ in range(REPLACEMENTS):
            try:
                return self._fetched(model, version, files, progress)
            except Replaced:
                log.warning("version %s of model %s was replaced while it was fetched", version, model)
            files = self._listed_again(model, version, files, progress)
        raise ModelUnavailable(f"version {version} of model {model!r} is being replaced: try again when it is complete")

    def _fetched(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        place = self._cache.place(self._place.endpoint or "", self._place.bucket, self._place.prefix, model, version)
        with ExitStack() as stack:
            known = [self._known(model, file, progress, stack) for file in files]
            progress.total = sum(each.size for each in known)
            content = _content(known)
            if folder := place.held(content):
                return folder
            stack.enter_context(place.locked(progress, model))
            if folder := place.held(content):  # another process fetched it meanwhile
                return folder
            self._download(model, version, known, place, progress)
            return place.publish(content)

    def _known(self, model: str, file: File, progress: Progress, stack: ExitStack) -> Known:
        """Returns a file with size and ETag. Where listing is not permitted, they come from the head of a GET."""
        key = f"{self._place.prefix}{model}/{file.path}"
        if file.size is not None and file.etag is not None:
            return Known(file.path, key, file.size, file.etag, file.checked)
        try:
            answer = self._client.tried(lambda bucket: bucket.get(key, progress.left), progress)
        except Failed as failed:
            raise Failed(file.path, failed.reason) from failed
        stack.callback(answer.body.close)
        return Known(file.path, key, answer.size, answer.etag, file.checked, answer)

    def _download(self, model: str, version: str, files: Sequence[Known], place: Place, progress: Progress) -> None:
        parts = Parts(place.parts)
        try:
            items = []
            for each in files:
                path = str(PurePosixPath(each.path).relative_to(version))
                items.append(Transfer(each, parts.part(path, each.size, each.etag), Work(each.size), each.first))
            parts.keep([item.part for item in items])
            self._cache.make_room(model, progress.total, parts.allocated())
            Download(self._client.bucket, items, self._streams, progress).run()
        finally:
            parts.close()

    def _listed_again(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Sequence[File]:
        """Returns the version's files as they are now, without ETags where the listing's are not those of GET."""
        try:
            found = [file for file in self.files(model, progress) if file.path.startswith(f"{version}/")]
        except Forbidden:
            found = []
        if not found or found == list(files):
            return [File(file.path) for file in files]
        return found


def _named(path: str, model: str) -> str:
    return f"{path} of model {model!r}"


def _content(files: Sequence[Known]) -> str:
    """Returns a hash that stands for the version's content. Without ETags it never repeats."""
    known = sorted((file.path, str(file.size), file.etag or os.urandom(16).hex()) for file in files)
    return digest(*(text for file in known for text in file))


def _is_plain(path: str) -> bool:
    """Decides whether a path is a file's: not a folder marker, and not outside of the model's folder."""
    segments = path.split("/")
    return not any(segment in ("", ".", "..") or "\\" in segment or "\0" in segment for segment in segments)
