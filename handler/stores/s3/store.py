"""A repository in S3 or in a store that speaks its API.

It needs s3:GetObject, and s3:ListBucket to find versions. It sends no other request.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import PurePosixPath
from typing import Any, Final

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.settings import Settings
from handler.stores import File, Folder, Forbidden, Gone, WrongContent
from handler.stores.cache import Cache, Place, digest, unwritable
from handler.stores.checksums import Checksum
from handler.stores.contents import KnownContents
from handler.stores.journal import Parts
from handler.stores.progress import Progress
from handler.stores.s3 import errors
from handler.stores.s3.answers import whole
from handler.stores.s3.client import PAGE, Client
from handler.stores.s3.download import Download
from handler.stores.s3.http import BucketReader
from handler.stores.s3.listing import Page
from handler.stores.s3.location import locate
from handler.stores.s3.objects import Known, Transfer
from handler.stores.s3.ranges import Work, most_streams
from handler.stores.s3.retries import Damaged, Failed, OutOfTime, Replaced, Tampered

log = logging.getLogger(__name__)
REPLACEMENTS: Final = 4
AFTER_SLASH: Final = "0"
"""The character after the slash: no key below a folder follows the folder's name with it."""


class S3Store:
    """See `handler.stores.Store`. `hashes`: it compares what it fetches with the digests of the files."""

    hashes = True

    def __init__(self, settings: Settings) -> None:
        self.uri = settings.repository
        self._place = locate(settings.repository, os.environ)
        self._client = Client(settings, self._place)
        self.accepts = settings.s3_anonymous
        """Whether something shows that the store accepts the keys, or there are none."""
        self._cache = Cache.of(settings)
        self._contents = KnownContents(again=settings.cache_shared)
        self._streams = most_streams(settings.cpus)

    def check(self, progress: Progress | None = None) -> None:
        try:
            self._client.page({"prefix": self._place.prefix, "max-keys": "1"}, progress or Progress())
        except Forbidden:
            return  # the store answers, and reading single files may be permitted

    def confirm(self, progress: Progress | None = None) -> None:
        """Raises ServingError if listing is denied, and nothing shows that the store accepts the keys.

        A model that was read shows it, and so does another refusal of a wrong signature than of this listing.
        """
        progress = progress or Progress()
        with suppress(Failed, OutOfTime):
            self.accepts = self.accepts or self._client.tried(lambda bucket: bucket.forged(progress.left), progress)
        if not self.accepts:
            raise ModelNotLoadable(
                f"{self.uri}: access denied: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or grant "
                "s3:ListBucket; with s3:GetObject alone, the first model that loads shows that the keys are right"
            )

    def glance(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]] | None:
        """Returns every model's files if they fit in one page of a listing, else None. Raises Forbidden."""
        page = self._page({}, progress)
        if page.following is not None:
            return None
        return self._by_model(page, {})

    def everything(self, progress: Progress | None = None) -> Mapping[str, Sequence[File] | None]:
        """Returns every model's files, with a request for each 1,000 objects.

        Skips a model that fills a whole page: its value is None. A request for it alone lists it.
        """
        return self._everything(progress, skips=True) or self._everything(progress, skips=False)

    def _everything(self, progress: Progress | None, *, skips: bool) -> dict[str, Any]:
        """Returns an empty mapping if the store ignores `start-after`, by which models are skipped."""
        found: dict[str, Any] = {}
        after: dict[str, str] = {}
        while True:
            page = self._page(after, progress)
            if skips and "start-after" in after and page.objects and page.objects[0].key <= after["start-after"]:
                return {}
            last = page.objects[-1].key if page.objects else ""
            self._by_model(page, found)
            if page.following is None:
                return found
            only = self._model_of(last)
            if skips and only is not None and only == self._model_of(page.objects[0].key):
                found[only] = None
                after = {"start-after": f"{self._place.prefix}{only}{AFTER_SLASH}"}
            else:
                after = {"continuation-token": page.following}

    def _page(self, after: Mapping[str, str], progress: Progress | None) -> Page:
        parameters = {"prefix": self._place.prefix, "max-keys": str(PAGE), **after}
        try:
            return self._client.page(parameters, progress or Progress())
        except Forbidden:
            raise Forbidden(self._unlisted) from None

    def _model_of(self, key: str) -> str | None:
        name, slash, _ = key[len(self._place.prefix) :].partition("/")
        return name if slash else None

    def _by_model(self, page: Page, found: dict[str, Any]) -> dict[str, Any]:
        for each in page.objects:
            name = self._model_of(each.key)
            if name is None:
                continue
            files, path = found.setdefault(name, []), each.key[len(self._place.prefix) + len(name) + 1 :]
            if files is not None and _is_plain(path):
                files.append(File(path, each.size, each.etag, each.checked))
        return found

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        prefix = self._place.prefix
        try:
            pages = list(self._client.pages({"prefix": prefix, "delimiter": "/"}, progress or Progress()))
            names = sorted(folder[len(prefix) : -1] for page in pages for folder in page.folders)
            # s3rver leaves the folders out below a prefix.
            return names or sorted(self.everything(progress))
        except Forbidden:
            raise ModelUnavailable(self._unlisted) from None

    @property
    def _unlisted(self) -> str:
        return f"listing bucket {self._place.bucket!r} is not permitted: grant s3:ListBucket to see its models"

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
            content = self._client.tried(ask, progress)
        except Failed as failed:
            if errors.is_absent(failed.reason):
                return None
            raise errors.of(failed.reason, self._place, self.uri, _named(path, model)) from failed
        except OutOfTime:
            raise progress.unanswered() from None
        self.accepts = True
        return content

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
        except Tampered as tampered:
            raise WrongContent(tampered.path.partition("/")[2]) from None

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
            if folder := self._held(place, content, known, version):
                return folder
            stack.enter_context(place.locked(progress, model))
            if folder := self._held(place, content, known, version):  # another process fetched it meanwhile
                return folder
            self._download(model, version, known, place, progress)
            return self._contents.add(place.publish(content), _digests(known))

    def _held(self, place: Place, content: str, files: Sequence[Known], version: str) -> Folder | None:
        """Returns the version in the cache. Drops one that does not have the wanted digests."""
        folder = place.held(content)
        if folder is None or self._contents.has(folder, _digests(files)):
            return folder
        log.warning("version %s in DRAGOMAN_CACHE is not the one that was fetched: it is fetched again", version)
        del folder
        place.drop(content)
        return None

    def _known(self, model: str, file: File, progress: Progress, stack: ExitStack) -> Known:
        """Returns a file with size and ETag. Where listing is not permitted, they come from the head of a GET."""
        key = f"{self._place.prefix}{model}/{file.path}"
        if file.size is not None and file.etag is not None:
            return Known(file.path, key, file.size, file.etag, file.checked, None, file.digest)
        try:
            answer = self._client.tried(lambda bucket: bucket.get(key, progress.left), progress)
        except Failed as failed:
            raise Failed(file.path, failed.reason) from failed
        self.accepts = True
        stack.callback(answer.body.close)
        return Known(file.path, key, answer.size, answer.etag, file.checked, answer, file.digest)

    def _download(self, model: str, version: str, files: Sequence[Known], place: Place, progress: Progress) -> None:
        parts = Parts(place.parts)
        try:
            items = []
            for each in files:
                path = str(PurePosixPath(each.path).relative_to(version))
                part = parts.part(path, each.size, each.etag)
                if each.digest is not None:
                    part.doubt(each.digest)
                items.append(Transfer(each, part, Work(each.size), each.first))
            parts.keep([item.part for item in items])
            self._cache.make_room(model, progress.total, parts.allocated())
            Download(self._client.bucket, items, self._streams, progress).run()
            self.accepts = True
        finally:
            parts.close()

    def _listed_again(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Sequence[File]:
        """Returns the version's files as they are now, without ETags where the listing's are not those of GET."""
        try:
            found = [file for file in self.files(model, progress) if file.path.startswith(f"{version}/")]
        except Forbidden:
            found = []
        listed = [file._replace(digest=None) for file in files]
        if not found or all(file in found for file in listed):
            return [File(file.path, digest=file.digest) for file in files]
        if listed != list(files):  # the digests are those of the version that was there before
            raise Gone(f"version {version} of model {model!r} has been replaced")
        return found


def _named(path: str, model: str) -> str:
    return f"{path} of model {model!r}"


def _digests(files: Sequence[Known]) -> dict[str, Checksum]:
    return {each.path.partition("/")[2]: each.digest for each in files if each.digest is not None}


def _content(files: Sequence[Known]) -> str:
    """Returns a hash that stands for the version's content. Without ETags it never repeats."""
    known = sorted((file.path, str(file.size), file.etag or os.urandom(16).hex()) for file in files)
    return digest(*(text for file in known for text in file))


def _is_plain(path: str) -> bool:
    """Decides whether a path is a file's: not a folder marker, and not outside of the model's folder."""
    segments = path.split("/")
    return not any(segment in ("", ".", "..") or "\\" in segment or "\0" in segment for segment in segments)
