"""One version into a bucket, so that nobody who lists it ever sees a part of it.

A server takes a folder for a version when its marker file is there (handler.lifecycle.repository), and one object
appears at once: so the marker goes last. Everything large goes first, as parts of multipart uploads, which nobody can
see; what is left then is short: small objects, completing the large ones, looking at all of them, the marker. The
model's settings follow it: they may name the version, and a push that is refused leaves those that are there.

S3 has no transaction over several objects, but "only if it is not there yet" for each (If-None-Match: *): of two pushes
of one version at a time one at most gets through. The other finds an object in its way, or its uploads given up, and is
refused. What lies in a folder without a marker may belong to a push that is under way: it is kept where it has the same
bytes, which is how a push that died is run again, and only removed when it is old. Where a store has no such condition,
or not an atomic one, or where two replace one version (--force), files of both may meet; who sees that withdraws.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from core.errors import ServingError
from handler.commands.publish.bucket import STREAMS, Bucket, Taken
from handler.commands.publish.files import Content, LocalFile, Section, Stopped, content, local_file, stamp
from handler.commands.publish.meter import Meter, human
from handler.commands.publish.versions import MARKERS, Job
from handler.commands.refused import Refused
from handler.settings.model import FILE

PART: Final = 16 * 1024 * 1024
"""Bytes in a part, and the most that go as one object: S3 wants 5 MiB at least, and 10,000 parts at most."""
MOST_PARTS: Final = 10_000
YOUNG: Final = timedelta(minutes=15)
"""What has been put since may belong to a push that is under way: from its first object to its marker is not long."""


@dataclass(slots=True)
class Large:
    """A multipart upload. `etags`: of the parts that are there, once all are."""

    key: str
    upload: str
    etags: list[str] = field(default_factory=list)


class There(NamedTuple):
    """Keys of what a bucket has of a version. `old`: must go, markers first; `ours`: is as it is to be."""

    old: list[str]
    ours: set[str]


class Object(NamedTuple):
    key: str
    file: LocalFile
    content: Content

    @property
    def is_small(self) -> bool:
        return len(self.content.md5s) == 1


def publish(bucket: Bucket, job: Job, meter: Meter) -> None:
    """Raises Refused, ServingError."""
    model, version = job.model, job.version
    folder = f"{model}/{job.number}"
    meter.begin(f"reading {folder}", version.size)
    objects = {each.path: _object(f"{folder}/{each.path}", each, meter) for each in version.files}
    model_settings = None
    if job.settings is not None:
        model_settings = _object(f"{model}/{FILE}", local_file(FILE, job.settings), meter)
    last = objects.pop(version.last)
    push = _Push(bucket, meter)
    with _cleaning(push, job):
        ours = push.look(job, objects.values()).ours
        # Not before: who is refused gives up nothing of another push.
        push.forget_uploads(f"{folder}/")
        others = [each for each in objects.values() if each.key not in ours]
        meter.begin(folder, sum(each.file.size for each in (*others, last)))
        push.send_parts([*others, last])
        old = push.look(job, objects.values()).old
        # A single object takes another's place at once; of several, the old marker must not stand beside new files.
        alone = not objects and old == [last.key]
        push.remove(() if alone else old)
        # The first one alone: who is second here has put nothing yet.
        for some in (others[:1], others[1:]):
            push.each(lambda each: push.show(each, new=True), some)
        push.each(push.verify, objects.values())
        # It may be there even if its answer is lost: from now on the other files stay.
        push.shown.clear()
        push.show(last, new=not alone)
        push.confirm(last, objects.values())
        # Servers may have seen it: from now on the marker stays, too.
        push.shown.clear()
        if model_settings is not None:
            push.settle(model_settings, folder)


def _object(key: str, file: LocalFile, meter: Meter) -> Object:
    part_size = max(PART, -(-file.size // MOST_PARTS))
    return Object(key, file, content(file.source, part_size, meter))


@contextmanager
def _cleaning(push: "_Push", job: Job) -> Iterator[None]:
    """Whatever ends it: no upload is left and nothing that `shown` names, if the store lets us."""
    try:
        yield
    except Taken:
        push.shown.clear()  # by now these may be somebody else's
        push.clean()
        raise job.refusal from None
    except BaseException:
        push.clean()
        raise
    finally:
        push.close()


class _Push:
    def __init__(self, bucket: Bucket, meter: Meter) -> None:
        self._bucket, self._meter = bucket, meter
        self._pool: Executor = ThreadPoolExecutor(STREAMS)
        self._stop = threading.Event()
        self._large: dict[str, Large] = {}
        self.shown: list[str] = []

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def forget_uploads(self, folder: str) -> None:
        """Of a push that died: they cost their storage and nobody sees them. Not every key may list them."""
        with suppress(Refused, Taken):
            for key, upload in self._bucket.uploads(folder):
                self._bucket.abort(key, upload)

    def look(self, job: Job, objects: Iterable[Object]) -> There:
        """Raises Taken if the version is complete and may not be replaced, Refused if it may be under way elsewhere."""
        own = {each.key: each for each in objects}
        found = {f"{job.model}/{item.path}": item for item in self._bucket.items(f"{job.model}/") if job.has(item.path)}
        markers = [key for key, item in found.items() if item.path.partition("/")[2] in (*MARKERS, job.version.last)]
        if markers:
            if not job.force:
                raise Taken
            return There([*markers, *sorted(found.keys() - set(markers))], set())
        ours = {key for key in found if key in own and self._is_there(own[key])}
        for key in found.keys() - ours:
            if self._bucket.now - found[key].modified < YOUNG:
                raise Refused(
                    f"{key} was put less than {YOUNG.seconds // 60} minutes ago by a push that is under way, or has "
                    "died: try again later, or with another --version"
                )
        return There(sorted(found.keys() - ours), ours)

    def send_parts(self, objects: Iterable[Object]) -> None:
        for each in objects:
            if not each.is_small:
                self._send_parts(each)

    def _send_parts(self, each: Object) -> None:
        large = self._large[each.key] = Large(each.key, self._bucket.begin(each.key, each.content.sha256))

        def send(index: int) -> str:
            with self._body(each, index) as body:
                return self._bucket.part(each.key, large.upload, index + 1, body, each.content.md5s[index])

        large.etags = self.each(send, range(len(each.content.md5s)))
        self._unchanged(each)
        self._meter.done(f"sent {each.file.path}, {human(each.file.size)}")

    def _body(self, each: Object, index: int) -> Section:
        start = index * each.content.part_size
        size = min(each.content.part_size, each.file.size - start)
        return Section(each.file.source, start, size, self._meter, self._stop)

    def _unchanged(self, each: Object) -> None:
        if stamp(each.file.source) != each.content.stamp:
            raise Refused(f"{each.file.source} has changed while it was sent: push it again")

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._bucket.delete(key)

    def show(self, each: Object, *, new: bool) -> None:
        """Make the object appear. One that is there with the same bytes is as good as ours."""
        try:
            if each.is_small:
                self._put(each, new=new)
            else:
                large = self._large[each.key]
                self._bucket.complete(each.key, large.upload, large.etags, new=new)
                del self._large[each.key]
        except Taken:
            if not self._is_there(each):
                raise
            self._give_up(each.key)
            return
        if new:
            self.shown.append(each.key)

    def _give_up(self, key: str) -> None:
        large = self._large.pop(key, None)
        if large is not None:
            with suppress(Taken):
                self._bucket.abort(large.key, large.upload)

    def _put(self, each: Object, *, new: bool) -> None:
        self._unchanged(each)
        with self._body(each, 0) as body:
            self._bucket.put(each.key, body, each.content.md5s[0], each.content.sha256, new=new)
        self._meter.done(f"sent {each.file.path}, {human(each.file.size)}")

    def verify(self, each: Object) -> None:
        """Raises Taken if the object is not what was sent, as far as the store tells: not every one keeps metadata."""
        found = self._bucket.head(each.key)
        if found is None or found.size != each.file.size or found.sha256 not in (None, each.content.sha256):
            raise Taken

    def confirm(self, last: Object, others: Iterable[Object]) -> None:
        """That it is whole, now that it shows. Swift's condition holds when a body begins, not when it has come."""
        self.verify(last)
        try:
            self.each(self.verify, others)
        except Taken:
            self._bucket.delete(last.key)
            raise

    def settle(self, model_settings: Object, folder: str) -> None:
        """Raises Refused, which says that the version is there."""
        try:
            self.show(model_settings, new=False)
        except (Refused, ServingError) as error:
            raise Refused(f"{folder} is there, but {model_settings.key} is not put: {error}") from error

    def _is_there(self, each: Object) -> bool:
        found = self._bucket.head(each.key)
        return found is not None and found.sha256 == each.content.sha256

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """In parallel; the first failure ends the others."""
        futures: list[Future[Any]] = [self._pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._stop.set()
            wait(futures)
        except BaseException:  # Ctrl-C: what is under way ends at its next read
            self._stop.set()
            raise
        failures = [failure for future in futures if (failure := future.exception()) is not None]
        for failure in sorted(failures, key=lambda each: isinstance(each, Stopped)):
            raise failure
        return [future.result() for future in futures]

    def clean(self) -> None:
        """As far as the store lets us; what remains is in nobody's way, until the next push of this version."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        for large in self._large.values():
            self._tried(self._bucket.abort, large.key, large.upload)
        for key in self.shown:
            self._tried(self._bucket.delete, key)

    def _tried(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            with suppress(Taken):  # it is gone
                work(*arguments)
        except (Refused, ServingError):
            self._meter.say(f"left behind in {self._bucket.uri}: {arguments[0]}")
