"""One version into a bucket: whoever lists it sees the old one or the new one, whole, wherever the push ends.

S3 changes one object at a time. Two rules of the servers make one object decide (handler.lifecycle.repository): a
folder counts as a version once it has a marker file, and of two folders with one number, 1 and 01, the shorter name
counts.

A new version: its files go first, large ones as parts that nobody sees, and the marker goes last. The model's settings
follow it: they may name the version, and a push that is refused leaves those that are there.

A version that is there (--force), by what differs:

- One object, which is all that a version of one file has. It is put in the old one's place, in one request.
- More. The new version goes into the folder that servers do not take: 01, while 1 has a marker. Then the old marker is
  deleted, and that one request changes what servers see. Then the files move to the plain name, small ones sent again
  and large ones copied by the store, the marker last; then 01 goes, its marker first. In between both folders hold the
  same version. Where the move fails, the version stays in 01, and the next push takes it up.

A push that dies before its one request leaves the old version, after it the new one. What else it leaves no server
sees. The same push again keeps what has the same bytes; objects of another one are removed when they are old, or older
than the marker that servers see. A server that fetches meanwhile asks for the ETags that it has listed: it gets them or
lists again. Without s3:ListBucket servers know the plain name alone, and find none while the files move.

Of two pushes at a time one at most gets through. Every write has a condition: "only if it is not there"
(If-None-Match: *), or "only if it is the one that this push has seen" (If-Match) where an object is replaced or
deleted; and one push at a time replaces files of a version (see `claim`). A store without such conditions, or without
atomic ones, cannot keep two publishers apart: files of both may meet, and the push that sees it withdraws. A runtime of
a third party has no marker, and servers take any of its files for a version: one object of such a version can be
replaced, not several.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from core.errors import ServingError
from handler.commands.publish import standing
from handler.commands.publish.bucket import Bucket, Copied, Only, Taken
from handler.commands.publish.claim import PushClaim
from handler.commands.publish.files import LocalFile, content, local_file
from handler.commands.publish.meter import Meter
from handler.commands.publish.sending import PushedObject, Sender
from handler.commands.publish.standing import Standing
from handler.commands.publish.versions import MARKERS, PushJob
from handler.commands.refused import Refused
from handler.settings.model import FILE

PART: Final = 16 * 1024 * 1024
"""Bytes in a part, and the most that go as one object: S3 wants 5 MiB at least, and 10,000 parts at most."""
MOST_PARTS: Final = 10_000


def publish(bucket: Bucket, job: PushJob, meter: Meter) -> None:
    """Raises Refused, ServingError."""
    meter.begin(f"reading {job.model}/{job.number}", job.version.size)
    objects = [_object(each.path, each, meter) for each in job.version.files]
    model_settings = None
    if job.settings is not None:
        model_settings = _object(f"{job.model}/{FILE}", local_file(FILE, job.settings), meter)
    push = Sender(bucket, meter)
    with _cleaning(push, job):
        _Publishing(bucket, job, meter, objects).run(push)
        if model_settings is not None:
            _settle(push, model_settings, job)


def _object(key: str, file: LocalFile, meter: Meter) -> PushedObject:
    part_size = max(PART, -(-file.size // MOST_PARTS))
    return PushedObject(key, file, content(file.source, part_size, meter))


@contextmanager
def _cleaning(push: Sender, job: PushJob) -> Iterator[None]:
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


def _settle(push: Sender, model_settings: PushedObject, job: PushJob) -> None:
    """Raises Refused, which says that the version is there."""
    try:
        push.show([model_settings], Only())
    except (Refused, ServingError) as error:
        there = f"{job.model}/{job.number} is there"
        raise Refused(f"{there}, but {model_settings.key} is not put: {error}") from error


class _Publishing:
    """`objects`: with their paths in the version's folder as keys."""

    def __init__(self, bucket: Bucket, job: PushJob, meter: Meter, objects: Sequence[PushedObject]) -> None:
        self._bucket, self._job, self._meter = bucket, job, meter
        self._objects = objects
        self._plain = str(job.number)
        self._claim = PushClaim(bucket, job, objects)

    def run(self, push: Sender) -> None:
        seen = self._look()
        if seen.current is None:
            self._fill(push, self._plain, seen)
            return
        if not self._job.force:
            raise Taken
        try:
            self._change(push, seen, self._different(push, seen))
        finally:
            self._claim.release()

    def _change(self, push: Sender, seen: Standing, different: set[str]) -> None:
        if len(different) == 1 and different <= seen.files.keys() & {each.key for each in self._objects}:
            self._overwrite(push, seen, *different)
        elif different:
            self._replace(push, seen)
        else:
            self._claim.forget()
        self._tidy(push)

    def _look(self) -> Standing:
        return standing.look(self._bucket, self._job)

    def _key(self, folder: str, path: str) -> str:
        return f"{self._job.model}/{folder}/{path}"

    def _at(self, folder: str, origin: Standing | None = None) -> list[PushedObject]:
        """The objects in one of the version's folders; `origin`: whose current folder has them already."""
        copied = {}
        if origin is not None and origin.current is not None:
            copied = {path: Copied(self._key(origin.current, path), item.etag) for path, item in origin.files.items()}
        return [each._replace(key=self._key(folder, each.key), copied=copied.get(each.key)) for each in self._objects]

    def _different(self, push: Sender, seen: Standing) -> set[str]:
        """Paths of the objects that the current folder lacks, has with other bytes, or has beside the version's."""
        assert seen.current is not None  # noqa: S101 - there is a version
        there = [each for each in self._at(seen.current) if each.file.path in seen.files]
        same = push.each(push.is_there, there)
        equal = {each.file.path for each, is_same in zip(there, same, strict=True) if is_same}
        return {*seen.files, *(each.key for each in self._objects)} - equal

    def _overwrite(self, push: Sender, seen: Standing, path: str) -> None:
        """One object in the place of the one that was seen."""
        assert seen.current is not None  # noqa: S101 - there is a version
        objects = self._at(seen.current)
        some = [each for each in objects if each.file.path == path]
        if len(objects) > 1:
            self._claim.take()
        push.forget_uploads(f"{self._name(seen.current)}/")
        self._meter.begin(self._name(seen.current), sum(each.file.size for each in some))
        push.send_parts(some)
        if len(objects) > 1:
            self._claim.take()
        if not self._look().is_like(seen):
            raise Taken
        push.show(some, Only(etag=seen.files[path].etag))
        push.each(push.verify, objects)

    def _replace(self, push: Sender, seen: Standing) -> None:
        stage = self._stage(seen)
        self._fill(push, stage, seen)
        now = self._look()
        mine = {each.key for each in self._objects}
        if set(now.folders.get(stage, ())) != mine or not (now.is_like(seen) or now.current == stage):
            raise Taken
        self._retire(push, seen)
        if self._look().current != stage:
            raise Taken

    def _stage(self, seen: Standing) -> str:
        """The folder that servers do not take as long as the current one has its marker, or until it has one itself.

        Raises Refused where no folder is such.
        """
        if seen.main not in MARKERS or self._job.version.last not in MARKERS:
            raise Refused(
                f"{self._name(self._plain)} has several files to replace and no {' or '.join(MARKERS)}, which would "
                "show them all at once: push it with another --version"
            )
        stage = self._plain if seen.current != self._plain else f"0{self._plain}"
        if len(stage) > standing.DIGITS:
            raise Refused(
                f"{self._name(self._plain)} has several files to replace, and a number of {standing.DIGITS} digits "
                "leaves no folder to put them first: push it with another --version"
            )
        return stage

    def _name(self, folder: str) -> str:
        return f"{self._job.model}/{folder}"

    def _fill(self, push: Sender, folder: str, seen: Standing, origin: Standing | None = None) -> None:
        """All files into a folder that has no marker yet, or is not the one that servers take; the marker last."""
        objects = self._at(folder, origin)
        last = next(each for each in objects if each.file.path == self._job.version.last)
        # Servers prefer the first of two markers: the second one alone would be another model.
        late = [each for each in objects if each is not last and each.file.path in MARKERS]
        others = [each for each in objects if each is not last and each not in late]
        ours, debris = self._in_the_way(push, folder, objects, seen)
        if seen.current is not None:
            self._claim.take()
        # Not before: a push that is refused gives up nothing of another one.
        push.forget_uploads(f"{self._name(folder)}/")
        push.remove_all(debris)  # nor later: S3 completes no upload whose key was deleted meanwhile
        missing = [each for each in objects if each.key not in ours]
        self._meter.begin(self._name(folder), sum(each.file.size for each in missing))
        push.send_parts(missing)
        if seen.current is not None:
            self._claim.take()  # again: parts take their time
        now = self._look()
        if not now.is_like(seen):
            raise Taken
        push.remove_all(self._in_the_way(push, folder, objects, now)[1])
        others = [each for each in others if each.key not in ours]
        # The first one alone: a push that comes second here has put nothing yet.
        for some in (others[:1], others[1:]):
            push.show(some, Only(new=True))
        markers = [each for each in (last, *late) if each.key not in ours]
        self._crown(push, markers, objects)

    def _crown(self, push: Sender, markers: Sequence[PushedObject], objects: Sequence[PushedObject]) -> None:
        """The markers, when all the rest is right; and a look at all of it, now that it shows.

        Swift's condition holds when a body begins, not when it has come.
        """
        push.each(push.verify, [each for each in objects if each not in markers])
        # They may be there even if their answers are lost: from now on the other files stay.
        push.shown.clear()
        for each in markers:
            push.show([each], Only(new=True))
            push.verify(each)
        try:
            push.each(push.verify, objects)
        except Taken:
            push.each(push.remove, [each.key for each in markers])
            raise
        # Servers may have seen it: from now on the markers stay, too.
        push.shown.clear()

    def _in_the_way(
        self, push: Sender, folder: str, objects: Sequence[PushedObject], seen: Standing
    ) -> tuple[set[str], list[tuple[str, str | None]]]:
        """Keys of what is as it is to be; keys and ETags of what must go.

        Raises Refused if something may belong to a push that is under way.
        """
        own = {each.key: each for each in objects}
        ours, debris = set(), []
        for name in seen.folders if seen.current is None else [folder]:
            for path, item in seen.folders.get(name, {}).items():
                key = self._key(name, path)
                if key in own and push.is_there(own[key]):
                    ours.add(key)
                elif standing.is_debris(self._bucket, item, seen.marker):
                    debris.append((key, item.etag))
                else:
                    raise standing.under_way(key)
        return ours, debris

    def _retire(self, push: Sender, old: Standing) -> None:
        """A version's current folder: markers that servers ignore, then the one that they see, then the rest."""
        assert old.current is not None  # noqa: S101 - there is a version
        ignored = [path for path in MARKERS if path in old.files and path != old.main]
        markers = [*ignored, *([] if old.main is None else [old.main])]
        for path in markers:
            push.remove(self._key(old.current, path), old.files[path].etag)
        for path, item in old.files.items():
            if path not in markers:
                push.drop(self._key(old.current, path), item.etag)

    def _tidy(self, push: Sender) -> None:
        """The version, which is there, under its plain name; and no second folder of it."""
        now = self._look()
        if now.current != self._plain:
            self._move(now)
            now = self._look()
        own = {each.file.path: each for each in self._objects}
        for folder in now.folders.keys() - {now.current}:
            for path, item in now.folders[folder].items():
                key = self._key(folder, path)
                is_own = path in own and push.is_there(own[path]._replace(key=key))
                if is_own or standing.is_debris(self._bucket, item, now.marker):
                    push.drop(key, item.etag)

    def _move(self, now: Standing) -> None:
        """Into the plain folder; where that fails the version stays where it is."""
        move = Sender(self._bucket, self._meter)
        try:
            with _cleaning(move, self._job):
                self._fill(move, self._plain, now, origin=now)
                self._retire(move, now)
        except (Refused, ServingError) as error:
            self._meter.say(
                f"{self._name(self._plain)} is in the folder {now.current}, which servers take for the same; the next "
                f"push --force moves it: {error}"
            )
