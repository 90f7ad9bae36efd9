"""Versions of a remote store in the cache: held, fetched, and fetched again where they were replaced meanwhile."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Final, Protocol, TypeVar

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError, shown
from handler.settings import Settings
from handler.stores import File, Folder, Forbidden, Gone, WrongContent
from handler.stores.cache import Cache, Place, digest
from handler.stores.checksums import MD5, Checksum, is_of, of_content
from handler.stores.contents import KnownContents
from handler.stores.directory import LONGEST_NAME
from handler.stores.journal import Parts
from handler.stores.private import unwritable
from handler.stores.progress import Progress
from handler.stores.transfer.answers import Broken, ObjectReader, ObjectRequest, StoreRefused, whole
from handler.stores.transfer.download import Download
from handler.stores.transfer.objects import Known, Transfer
from handler.stores.transfer.ranges import Work, most_streams
from handler.stores.transfer.retries import Damaged, Failed, OutOfTime, Replaced, Tampered

log = logging.getLogger(__name__)
T = TypeVar("T")
REPLACEMENTS: Final = 4


class Remote(Protocol):
    """The place of a repository in a remote store."""

    @property
    def names(self) -> tuple[str, ...]:
        """The identity of this place, for the cache."""
        ...

    @property
    def bucket(self) -> ObjectReader:
        """The objects, with connections and credentials. Raises ServingError."""
        ...

    def key(self, model: str, path: str, /) -> str:
        """Returns the key of a model's file. An empty name stands for the place itself, here and in `files`."""
        ...

    def tried(self, ask: Callable[[ObjectReader], T], progress: Progress, /) -> T:
        """Calls `ask` with retries. Raises Failed, OutOfTime, ServingError."""
        ...

    def files(self, model: str, progress: Progress, /) -> Sequence[File]:
        """Returns every file of a model. Raises Forbidden where listing is not permitted, else ServingError."""
        ...

    def is_absent(self, reason: Broken | StoreRefused, /) -> bool:
        """Decides whether an object is missing or forbidden."""
        ...

    def failure(self, reason: Broken | StoreRefused, what: str, /) -> ServingError:
        """Returns the error for a client. `what`: the file that was being read."""
        ...

    def disconnect(self) -> None:
        """Forgets the connections and credentials. The next request makes new ones."""
        ...


class Fetcher:
    """Reads the files of one place. `proved`: the store has sent one, so it accepts the credentials."""

    def __init__(self, settings: Settings, remote: Remote) -> None:
        self._remote = remote
        self._cache = Cache.of(settings)
        self._contents = KnownContents(again=settings.cache_shared)
        self._streams = most_streams(settings.cpus)
        self._doubts: dict[Path, bool] = {}  # of folders that did not load: whether that was looked into
        self.proved = False

    def read(self, model: str, path: str, progress: Progress) -> bytes | None:
        """See `handler.stores.Store.read`."""
        key = self._remote.key(model, path)

        def ask(bucket: ObjectReader) -> bytes:
            answer = bucket.get(ObjectRequest(key, {}), progress.left)
            content, stated = whole(answer.body, progress.left), answer.checksum
            # A publisher's SHA-256, or the MD5 that an ETag is. Settings are kept for as long as their ETag stays.
            if stated is not None and of_content(stated, (content,)) not in (stated.value, None):
                algorithm = stated.algorithm.upper().replace("SHA", "SHA-")
                raise Broken(f"the content differs from its {algorithm}", started=True)
            return content

        try:
            content = self._remote.tried(ask, progress)
        except Failed as failed:
            if self._remote.is_absent(failed.reason):
                return None
            raise self._remote.failure(failed.reason, _named(path, model)) from failed
        except OutOfTime:
            raise progress.unanswered() from None
        self.proved = True
        return content

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        """See `handler.stores.Store.fetch`."""
        try:
            return self._settled(model, version, files, progress)
        except OSError as error:  # the disk's: those of the network are Broken
            raise unwritable(error) from error
        except OutOfTime:
            raise progress.out_of_time(model) from None
        except Failed as failed:
            path, reason = failed.path, failed.reason
            if self._remote.is_absent(reason):
                raise Gone(f"{path} of model {model!r} is missing or forbidden") from failed
            raise self._remote.failure(reason, _named(path, model)) from failed
        except Damaged as damaged:
            raise ModelUnavailable(
                f"{_named(damaged.path, model)} arrived twice, and differs from the store's {damaged.algorithm}"
            ) from damaged
        except Tampered as tampered:
            raise WrongContent(tampered.path.partition("/")[2]) from None

    def check_cache(self) -> None:
        """Raises ModelNotLoadable if no version can be put into the cache."""
        self._cache.check()

    def doubt(self, folder: Path) -> None:
        """Notes that a version did not load, so that its files are compared with the store's before the next time."""
        self._doubts.setdefault(folder, False)

    def _settled(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        for _ in range(REPLACEMENTS):
            try:
                return self._fetched(model, version, files, progress)
            except Replaced:
                log.warning("version %s of model %s was replaced while it was fetched", version, model)
            files = self._listed_again(model, version, files, progress)
        raise ModelUnavailable(f"version {version} of model {model!r} is being replaced: try again when it is complete")

    def _fetched(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        _check_paths(model, files)
        place = self._cache.place(*self._remote.names, model, version)
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
        """Returns the version in the cache. Drops one that lacks a file, or does not have the wanted content.

        Machines remove old files from /tmp one by one (systemd-tmpfiles, tmpreaper), and disks fail.
        """
        folder = place.held(content)
        if folder is None:
            return None
        is_right = _is_whole(folder, files) and self._contents.has(folder, _digests(files))
        if is_right and not self._is_spoilt(folder, files):
            return folder
        log.warning("version %s in DRAGOMAN_CACHE is not the fetched one: it is fetched again", version)
        del folder
        place.drop(content)
        return None

    def _is_spoilt(self, folder: Folder, files: Sequence[Known]) -> bool:
        """Decides whether a version that did not load has other bytes than the store. Looks once, at all of them."""
        if self._doubts.get(folder.path, True):
            return False
        self._doubts[folder.path] = True
        known = [each for each in files if MD5.fullmatch(each.etag or "")]
        return not all(is_of(Checksum("md5", str(each.etag)), _path(folder, each)) for each in known)

    def _known(self, model: str, file: File, progress: Progress, stack: ExitStack) -> Known:
        """Returns a file with size and ETag. Where listing is not permitted, they come from the head of a GET."""
        key = self._remote.key(model, file.path)
        if file.size is not None and file.etag is not None:
            return Known(file.path, key, file.size, file.etag, file.checked, None, file.digest)
        try:
            answer = self._remote.tried(lambda bucket: bucket.get(ObjectRequest(key), progress.left), progress)
        except Failed as failed:
            raise Failed(file.path, failed.reason) from failed
        self.proved = True
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
            Download(self._remote.bucket, items, self._streams, progress).run()
            self.proved = True
        finally:
            parts.close()

    def _listed_again(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Sequence[File]:
        """Returns the version's present files, without ETags if the listing's are not those of GET."""
        try:
            found = [file for file in self._remote.files(model, progress) if file.path.startswith(f"{version}/")]
        except Forbidden:
            found = []
        listed = [file._replace(digest=None) for file in files]
        if not found or all(file in found for file in listed):
            return [File(file.path, digest=file.digest) for file in files]
        if listed != list(files):  # the digests are those of the version that was there before
            raise Gone(f"version {version} of model {model!r} has been replaced")
        return found


def is_plain(path: str) -> bool:
    """Decides whether a path is a file's: not a folder marker, and not outside of the model's folder.

    signing.statement.is_canonical is stricter, for names that are shown and signed.
    """
    segments = path.split("/")
    return not any(segment in ("", ".", "..") or "\\" in segment or "\0" in segment for segment in segments)


def folders_of(paths: Iterable[str]) -> set[str]:
    """Returns the folders in which something is, without a slash at their ends."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def without_folders(files: Sequence[File]) -> list[File]:
    """Returns the files without the empty objects that some tools make for folders, under the folder's own name."""
    folders = folders_of(file.path for file in files)
    return [file for file in files if file.size != 0 or file.path not in folders]


def _check_paths(model: str, files: Sequence[File]) -> None:
    """Raises ModelNotLoadable for keys of a store that cannot be files of one folder."""
    folders = folders_of(file.path for file in files)
    for path in (file.path for file in files):
        if path in folders:
            raise ModelNotLoadable(f"{_named(shown(path), model)} is a file and a folder: remove one of both")
        if any(len(part.encode(errors="replace")) > LONGEST_NAME for part in path.split("/")):
            raise ModelNotLoadable(f"{_named(shown(path), model)} has a name of more than {LONGEST_NAME} bytes")


def _named(path: str, model: str) -> str:
    return f"{path} of model {model!r}"


def _is_whole(folder: Folder, files: Sequence[Known]) -> bool:
    """Decides whether a version in the cache has all of its files, in their sizes."""
    sizes = {_path(folder, each): each.size for each in files}
    return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def _path(folder: Folder, file: Known) -> Path:
    return folder.path / file.path.partition("/")[2]


def _digests(files: Sequence[Known]) -> dict[str, Checksum]:
    return {each.path.partition("/")[2]: each.digest for each in files if each.digest is not None}


def _content(files: Sequence[Known]) -> str:
    """Returns a hash of the version's content. Without ETags it never repeats."""
    known = sorted((file.path, str(file.size), file.etag or os.urandom(16).hex()) for file in files)
    return digest(*(text for file in known for text in file))
