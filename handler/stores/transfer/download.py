"""One fetch: objects of a bucket into the files of a version, by as many streams as they are worth.

Theory of operation. A stream is a thread that fetches one region of one object at a time (see `ranges`). The first is
the caller's own thread. If it is slower than FAST, `_help` starts the others. One lock, `_changed`, guards the sharing;
bytes are read and written outside of it. The states of a stream:

    claiming    in `_claim`: it waits for a task, and is not active. It ends when no work is left and none can appear.
    opening     it has asked for a whole object, whose size and ETag must be those of the listing. Its answer goes on
                with the first share; the other shares are free from then on, with If-Match for the same content.
    receiving   it writes what arrives, and records it in the journal each SAVE bytes. `region.start` is the next byte.
    pausing     the connection broke off. It asks again from `region.start`, after a pause that doubles with full
                jitter. A number of failures in a row without a byte fails the fetch.
    leaving     the store asked for fewer requests, or knows no ranges. It frees its region and ends, unless it is the
                last active stream.
    verifying   it released the last region of an object. It compares the checksum (`objects.wrong`), and renames the
                file; the first mismatch restarts the object, the second fails the fetch.
    stopped     another stream failed. `_fail` cuts every connection, so that no stream waits for the network.

The fetch ends when every stream has ended. `run` raises the first failure; what has arrived stays for the next fetch.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from handler.stores.journal import Identity
from handler.stores.progress import Progress
from handler.stores.transfer import ranges
from handler.stores.transfer.answers import Answer, Broken, Line, ObjectReader, ObjectRequest, StoreRefused
from handler.stores.transfer.objects import Transfer, fitting, missing, resume, wrong
from handler.stores.transfer.ranges import Region
from handler.stores.transfer.retries import Failed, OutOfTime, Replaced, StreamStopped, Tampered, Tries
from handler.stores.transfer.streams import started

SAVE: Final = 8 * 1024 * 1024
"""Bytes between two lines in the journal: the most that a killed process fetches again, per stream."""
READ: Final = 1024 * 1024
LOOK: Final = 0.005
"""Seconds between two measurements of the first stream's speed."""
FAST: Final = 150e6
"""Bytes per second above which more streams would only share the processor. S3 sends 85e6 on a connection."""
CHANGED: Final = {412, 416}
WEAK: Final = "W/"
"""The beginning of a weak ETag, which no condition matches (RFC 9110 13.1.1). `fitting` compares the answers'."""


class Download:
    """Runs once. `most`: streams at a time.

    Raises Replaced, Failed, Damaged, Tampered, OutOfTime; OSError for the disk; ServingError for credentials.
    """

    def __init__(self, bucket: ObjectReader, items: Sequence[Transfer], most: int, progress: Progress) -> None:
        self._bucket = bucket
        self._progress = progress
        self._items = {item.work: item for item in items if not item.part.complete}
        self._changed = threading.Condition()
        self._lines: set[Line] = set()
        self._active = 0  # streams that will claim again
        self._alone = False  # the first stream is fast, and has no help
        self._failure: BaseException | None = None
        for item in self._items.values():
            resume(item, most)
        self._streams = min(most, max(1, sum(ranges.worth(missing(item)) for item in self._items.values())))
        progress.total = sum(item.file.size for item in items)
        progress.done = progress.total - sum(map(missing, self._items.values()))

    def run(self) -> None:
        """Fetches everything. The caller's own thread is the first stream."""
        self._active = 1
        self._beside(started(self._help, min(1, self._streams - 1)))
        for item in self._items.values():
            item.part.close()
        if self._failure is not None:
            raise self._failure
        if not all(item.part.complete for item in self._items.values()):
            raise RuntimeError("a fetch ended before everything was there")

    def _beside(self, threads: Sequence[threading.Thread]) -> None:
        self._stream()
        for thread in threads:
            thread.join()

    def _help(self) -> None:
        """Starts the other streams, once the first one proves slow."""
        begun, before = time.monotonic(), self._progress.done
        with self._changed:
            while not (is_over := self._changed.wait_for(self._is_over, LOOK)):
                self._alone = self._progress.done - before >= FAST * (time.monotonic() - begun)
                if not self._alone:
                    break
            if is_over:
                return
            threads = started(self._stream, self._streams - 2)  # they wait for the lock, and so for their count
            self._active += 1 + len(threads)
        self._beside(threads)

    def _is_over(self) -> bool:
        return self._failure is not None or all(work.finished for work in self._items)

    def _stream(self) -> None:
        try:
            while (task := self._claim()) is not None:
                self._fetch(self._items[task.work], task.region)
        except StreamStopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by run, in the caller's thread
            self._fail(error)

    def _fail(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()
            for line in self._lines:
                line.cut()

    def _claim(self) -> ranges.Task | None:
        """Returns a stream's next task, None at its end. The stream is active from here until it claims again."""
        with self._changed:
            self._active -= 1
            while True:
                self._check()
                if task := ranges.claim(list(self._items), alone=self._alone):
                    self._active += 1
                    return task
                if not any(work.opening for work in self._items):
                    return None
                self._changed.wait(min(1.0, max(0.0, self._progress.left)))

    def _check(self) -> None:
        if self._failure is not None:
            raise StreamStopped
        if self._progress.left <= 0:
            raise OutOfTime

    def _fetch(self, item: Transfer, region: Region) -> None:
        """Fetches a region to its end, which another stream may bring nearer. The last one verifies the object."""
        try:
            if region.rest > 0 or not item.work.opened:
                self._persist(item, region, self._receive)
        finally:
            last = self._release(item, region)
        if last:
            self._persist(item, region, self._learn)
            self._verify(item)

    def _persist(self, item: Transfer, region: Region, attempt: Callable[[Transfer, Region], None]) -> None:
        """Repeats an attempt as long as bytes arrive. Raises Failed."""
        tries = Tries()
        while True:
            before = region.start
            try:
                return attempt(item, region)
            except Broken as broken:
                if broken.crowded:
                    self._leave(item, region)
                pause = tries.pause(moved=region.start > before)
                if pause is None:
                    raise Failed(item.file.path, broken) from broken
            self._wait(pause)

    def _leave(self, item: Transfer, region: Region) -> None:
        """Ends this stream, unless it is the last active one: the others will claim its region."""
        with self._changed:
            if self._active > 1 and item.work.release(region):
                self._active -= 1
                self._changed.notify_all()
                raise StreamStopped

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._check()
            self._changed.wait(min(seconds, max(0.0, self._progress.left)))
            self._check()

    def _release(self, item: Transfer, region: Region) -> bool:
        """Frees a region. Returns whether the whole object has arrived."""
        with self._changed:
            self._changed.notify_all()
            return item.work.release(region) and item.work.finished

    def _receive(self, item: Transfer, region: Region) -> None:
        """Writes as much of the region as one answer brings."""
        with self._answer(item, region) as answer:
            skip = region.start - answer.start
            if skip:  # the store knows no ranges, and sends the whole: one stream is enough
                self._leave(item, region)
            while region.rest > 0:
                chunk = answer.body.read(self._progress.left)
                self._check()
                if not chunk:
                    raise Broken("the answer was too short", started=True)
                skip, chunk = max(0, skip - len(chunk)), chunk[skip:]
                self._land(item, region, chunk)

    @contextmanager
    def _answer(self, item: Transfer, region: Region) -> Iterator[Answer]:
        first, item.first = item.first, None
        with self._line(first) as line:
            answer = self._asked(item, region, first, line)
            try:
                yield answer
            finally:
                answer.body.close()
                self._save(item, region)

    @contextmanager
    def _line(self, first: Answer | None = None) -> Iterator[Line]:
        """Lets a failure cut the wait for an answer, from before the request: the store can be silent for long."""
        line = Line() if first is None else first.body.line
        with self._changed:
            self._check()
            self._lines.add(line)
        try:
            yield line
        finally:
            with self._changed:
                self._lines.discard(line)

    def _asked(self, item: Transfer, region: Region, first: Answer | None, line: Line) -> Answer:
        identity = item.part.identity
        if identity is None or not item.work.opened:
            return self._opened(item, first or self._get(item, line))
        start, end = region.start, region.end  # another stream may cut it meanwhile
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if identity.etag and not identity.etag.startswith(WEAK):
            headers["If-Match"] = f'"{identity.etag}"'
        answer = fitting(self._get(item, line, headers), start, end, identity)
        if identity.checksum is None and answer.checksum is not None:
            item.part.learn(answer.checksum)
        return answer

    def _get(
        self, item: Transfer, line: Line, headers: Mapping[str, str] | None = None, *, body: bool = True
    ) -> Answer:
        try:
            return self._bucket.get(ObjectRequest(item.file.key, headers, body), self._progress.left, line)
        except StoreRefused as refusal:
            if refusal.status in CHANGED:
                raise Replaced from refusal
            raise Failed(item.file.path, refusal) from refusal

    def _opened(self, item: Transfer, answer: Answer) -> Answer:
        """Checks the first answer against the listing, and shares the object among streams. Raises Replaced."""
        if (answer.size, answer.etag) != (item.file.size, item.file.etag):
            answer.body.close()
            raise Replaced
        item.part.begin(Identity(answer.size, answer.etag, answer.checksum))
        with self._changed:
            item.work.divide(self._streams)
            self._changed.notify_all()
        return answer

    def _land(self, item: Transfer, region: Region, chunk: bytes) -> None:
        data = memoryview(chunk)[: region.rest]
        item.part.write(data, region.start)
        region.start += len(data)
        self._progress.add(len(data))
        if region.start - region.saved >= SAVE:
            self._save(item, region)

    def _save(self, item: Transfer, region: Region) -> None:
        if region.start > region.saved:
            item.part.save(region.saved, region.start)
            region.saved = region.start

    def _learn(self, item: Transfer, _: Region) -> None:
        """Asks for the checksum if the listing names one: S3 sends it with a whole object, and not with ranges."""
        identity = item.part.identity
        if item.file.checked and identity is not None and identity.checksum is None:
            with self._line() as line:
                answer = self._get(item, line, body=False)
                answer.body.close()
            if answer.etag != identity.etag:
                raise Replaced
            if answer.checksum is not None:
                item.part.learn(answer.checksum)

    def _verify(self, item: Transfer) -> None:
        """Renames a right file to its final name. Restarts a wrong one once. Raises Damaged, Tampered."""
        error = wrong(item, lambda: self._pieces(item))
        if error is None:
            item.part.finish()
            return
        if item.damaged or (isinstance(error, Tampered) and error.final):
            item.part.forget()
            raise error
        item.damaged = True
        self._progress.add(-item.work.size)
        with self._changed:
            item.work.restart()
            self._changed.notify_all()

    def _pieces(self, item: Transfer) -> Iterator[bytes]:
        for position in range(0, item.work.size, READ):
            self._check()
            yield item.part.read(READ, position)
