"""Sends objects into a bucket, several at a time: first invisible parts, then each object at once."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from core.errors import ServingError
from core.records import NamedTuple
from handler.commands.meter import Meter, human
from handler.commands.publish.buckets.port import STREAMS, Bucket, Conflict, Copied, Only, PartUploads, Taken, Uncopied
from handler.commands.publish.files import CommandStopped, Content, LocalFile, Section, stamp
from handler.commands.refused import Refused

TRIES: Final = 3
"""Attempts of a write that conflicts with others on its key."""


@dataclass(slots=True)
class Large:
    """A multipart upload. `etags`: the parts', once all of them are sent."""

    key: str
    upload: str
    etags: list[str] = field(default_factory=list)


class PushedObject(NamedTuple):
    """An object to push. `copied`: an object of the bucket with the same bytes."""

    key: str
    file: LocalFile
    content: Content
    copied: Copied | None = None

    @property
    def is_small(self) -> bool:
        return len(self.content.md5s) == 1

    def span(self, index: int) -> tuple[int, int]:
        """Returns a part's first byte and its size."""
        start = index * self.content.part_size
        return start, min(self.content.part_size, self.file.size - start)


class Sender:
    """Sends objects. `shown`: keys that have appeared; they are removed if the push ends before its version appears."""

    def __init__(self, bucket: Bucket, meter: Meter) -> None:
        self._bucket, self._parts, self._meter = bucket, bucket.parts, meter
        self._pool: Executor = ThreadPoolExecutor(STREAMS)
        self._stop = threading.Event()
        self._large: dict[str, Large] = {}
        self.shown: list[str] = []

    @property
    def _uploads(self) -> PartUploads:
        assert self._parts is not None  # noqa: S101 - no object is larger than a part then
        return self._parts

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def forget_uploads(self, folder: str) -> None:
        """Aborts a dead push's uploads: invisible, they cost storage. Does nothing without permission to list them."""
        if self._parts is None:
            return
        with suppress(Refused, Taken):
            for key, upload in self._parts.uploads(folder):
                self._parts.abort(key, upload)

    def send_parts(self, objects: Iterable[PushedObject]) -> None:
        for each in objects:
            if not each.is_small:
                try:
                    self._send_parts(each)
                except Uncopied:  # the upload has an empty part by now, and rclone takes no part twice
                    self._send_parts(each._replace(copied=None))

    def _send_parts(self, each: PushedObject) -> None:
        self._give_up(each.key)
        large = self._large[each.key] = Large(each.key, self._uploads.begin(each.key, each.content.sha256))
        # The first copy shows if the store has any.
        first = [] if each.copied is None else [self._send_part(each, large.upload, 0)]
        rest = range(len(first), len(each.content.md5s))
        large.etags = first + self.each(partial(self._send_part, each, large.upload), rest)
        if each.copied is None:
            self._unchanged(each)
            self._meter.done(f"sent {each.file.path}, {human(each.file.size)}")

    def _send_part(self, each: PushedObject, upload: str, index: int) -> str:
        if each.copied is not None:
            return self._uploads.copy(each.copied, each.key, upload, index + 1, each.span(index))
        with self._body(each, index) as body:
            return self._uploads.part(each.key, upload, index + 1, body, each.content.md5s[index])

    def _body(self, each: PushedObject, index: int) -> Section:
        return Section(each.file.source, *each.span(index), self._meter, self._stop)

    def _unchanged(self, each: PushedObject) -> None:
        if stamp(each.file.source) != each.content.stamp:
            raise Refused(f"{each.file.source} has changed while it was sent: push it again")

    def show(self, objects: Sequence[PushedObject], only: Only) -> None:
        """Makes objects appear. Accepts an existing object with the same bytes. Raises Taken."""
        for _ in range(TRIES):
            shown = self.each(partial(self._show, only=only), objects)
            objects = [each for each, done in zip(objects, shown, strict=True) if not done]
            if not objects:
                return
            self.send_parts(objects)  # after a conflict an upload cannot be completed any more
        raise Taken

    def _show(self, each: PushedObject, only: Only) -> bool:
        """Makes an object appear. Returns whether it exists now: False after a conflict."""
        try:
            self._write(each, only)
        except Taken as taken:
            if self.is_there(each):
                self._give_up(each.key)
                return True
            if isinstance(taken, Conflict):
                return False
            raise
        if only.new:
            self.shown.append(each.key)
        return True

    def _write(self, each: PushedObject, only: Only) -> None:
        if each.is_small:
            self._unchanged(each)
            with self._body(each, 0) as body:
                self._bucket.put(each.key, body, each.content.md5s[0], each.content.sha256, only)
            if each.copied is None:
                self._meter.done(f"sent {each.file.path}, {human(each.file.size)}")
        else:
            large = self._large[each.key]
            self._uploads.complete(each.key, large.upload, large.etags, only)
            del self._large[each.key]

    def _give_up(self, key: str) -> None:
        large = self._large.pop(key, None)
        if large is not None:
            with suppress(Taken):
                self._uploads.abort(large.key, large.upload)

    def verify(self, each: PushedObject) -> None:
        """Raises Taken if the object differs from the sent one. Not every store keeps the metadata to compare."""
        found = self._bucket.head(each.key)
        if found is None or found.size != each.file.size or found.sha256 not in (None, each.content.sha256):
            raise Taken

    def is_there(self, each: PushedObject) -> bool:
        found = self._bucket.head(each.key)
        return found is not None and found.sha256 == each.content.sha256

    def remove(self, key: str, etag: str | None = None) -> None:
        """Removes the object with this ETag. Leaves one that another writer has replaced or removed."""
        for _ in range(TRIES):
            try:
                self._bucket.delete(key, etag)
            except Conflict:
                continue
            except Taken:
                found = self._bucket.head(key)
                if found is not None and found.etag == etag:  # Swift compares another ETag of objects in parts
                    self._bucket.delete(key)
            return
        raise Taken

    def remove_all(self, objects: Iterable[tuple[str, str | None]]) -> None:
        """Removes objects by their keys and ETags."""
        for key, etag in objects:
            self.remove(key, etag)

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Returns the results of `work` on the items, in parallel. The first failure ends the others."""
        futures: list[Future[Any]] = [self._pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._stop.set()
            wait(futures)
        except BaseException:  # Ctrl-C: each request in flight ends at its next read
            self._stop.set()
            raise
        failures = [failure for future in futures if (failure := future.exception()) is not None]
        for failure in sorted(failures, key=lambda each: isinstance(each, CommandStopped)):
            raise failure
        return [future.result() for future in futures]

    def clean(self) -> None:
        """Aborts the uploads and removes `shown`, as far as the store permits. The rest does not block another push."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        for large in self._large.values():
            self._tried(self._uploads.abort, large.key, large.upload)
        for key in self.shown:
            self.drop(key)

    def drop(self, key: str, etag: str | None = None) -> None:
        """Removes an object that servers do not see, if the store permits it."""
        self._tried(self.remove, key, etag)

    def _tried(self, work: Callable[..., None], *arguments: str | None) -> None:
        try:
            with suppress(Taken):  # it is gone
                work(*arguments)
        except (Refused, ServingError):
            self._meter.say(f"left behind in {self._bucket.uri}: {arguments[0]}")
