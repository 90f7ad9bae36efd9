"""Publishes a version into a bucket: servers see the whole old one or the whole new one, wherever the push ends.

S3 changes one object at a time. Two rules of the servers make one object decide (handler.lifecycle.repository): a
folder counts as a version once it has a marker file. If two folders have one number, 1 and 01, the shorter name counts.

A new version: its files are sent first, large ones as invisible parts, and the marker last. The model's settings follow
the marker: they may name the version, and a refused push leaves the existing settings.

A version that exists (--force), by the number of objects that differ:

- One object, as in every version of one file. It replaces the old object, in one request.
- More. The new version goes into the folder that servers do not take: 01, while 1 has a marker. Then the old marker is
  deleted: that one request makes servers see the new version. Then the files move to the plain name, small ones sent
  again and large ones copied by the store, the marker last. Then 01 is deleted, its marker first. In between both
  folders hold the same version. If the move fails, the version stays in 01, and the next push moves it.

A push that dies before its one request leaves the old version, after it the new one. Servers see no other object that
it leaves. The same push, run again, keeps objects with the same bytes. Objects of another push are removed when they
are old, or older than the marker that servers see. A server that fetches meanwhile requests the ETags that it has
listed: it gets them or lists again. Without s3:ListBucket, servers find no version while the files move.

If two pushes run at a time, at most one succeeds. Every write has a condition: "only if it is not there"
(If-None-Match: *), or "only if it is the one that this push has seen" (If-Match) where an object is replaced or
deleted. One push at a time replaces a version's files (see `claim`). A store without such conditions, or without atomic
ones, cannot separate two publishers: files of both may mix, and the push that sees this withdraws. A third party's
runtime has no marker, and servers take any of its files for a version: such a version can replace one object only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from core.errors import ServingError
from handler.backends import EXPECTED
from handler.commands.meter import Meter
from handler.commands.publish import standing
from handler.commands.publish.buckets.port import Bucket, Copied, Only, Taken
from handler.commands.publish.claim import PushClaim
from handler.commands.publish.files import LocalFile, content, local_file
from handler.commands.publish.sending import PushedObject, Sender
from handler.commands.publish.standing import Standing
from handler.commands.publish.versions import MARKERS, PushJob
from handler.commands.refused import Refused
from handler.settings.model import FILE
from handler.settings.routing import VERSION

MOST_PARTS: Final = 10_000
"""S3 permits no more in an object."""


def publish(bucket: Bucket, job: PushJob, meter: Meter, part: int | None = None) -> None:
    """Publishes a version, then the model's settings. `part`: bytes in a part, if not the store's. Raises Refused."""
    part = part or bucket.part_size
    meter.begin(f"reading {job.model}/{job.number}", job.version.size)
    objects = [_object(each.path, each, meter, part) for each in job.version.files]
    model_settings = None
    if job.settings is not None:
        model_settings = _object(f"{job.model}/{FILE}", local_file(FILE, job.settings), meter, part)
    push = Sender(bucket, meter)
    with _cleaning(push, job):
        _Publishing(bucket, job, meter, objects).run(push)
        if model_settings is not None:
            _settle(push, model_settings, job)


def _object(key: str, file: LocalFile, meter: Meter, part: int) -> PushedObject:
    part_size = max(part, -(-file.size // MOST_PARTS))
    return PushedObject(key, file, content(file.source, part_size, meter))


@contextmanager
def _cleaning(push: Sender, job: PushJob) -> Iterator[None]:
    """Aborts the uploads and removes `shown` after any failure, if the store permits it."""
    try:
        yield
    except Taken:
        push.shown.clear()  # by now these can be another push's
        push.clean()
        raise job.refusal from None
    except BaseException:
        push.clean()
        raise
    finally:
        push.close()


def _settle(push: Sender, model_settings: PushedObject, job: PushJob) -> None:
    """Puts the model's settings. Raises Refused, whose text states that the version exists."""
    try:
        push.show([model_settings], Only())
    except (Refused, ServingError) as error:
        there = f"{job.model}/{job.number} is there"
        raise Refused(f"{there}, but {model_settings.key} is not put: {error}") from error


class _Publishing:
    """Publishes one version. `objects`: their keys are their paths in the version's folder."""

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
        """Returns the objects with a folder's keys. `origin`: its current folder has the same bytes already."""
        copied = {}
        if origin is not None and origin.current is not None:
            copied = {path: Copied(self._key(origin.current, path), item.etag) for path, item in origin.files.items()}
        return [each._replace(key=self._key(folder, each.key), copied=copied.get(each.key)) for each in self._objects]

    def _different(self, push: Sender, seen: Standing) -> set[str]:
        """Returns the paths of objects that the current folder lacks, has with other bytes, or has in addition."""
        assert seen.current is not None  # noqa: S101 - there is a version
        there = [each for each in self._at(seen.current) if each.file.path in seen.files]
        same = push.each(push.is_there, there)
        equal = {each.file.path for each, is_same in zip(there, same, strict=True) if is_same}
        return {*seen.files, *(each.key for each in self._objects)} - equal

    def _overwrite(self, push: Sender, seen: Standing, path: str) -> None:
        """Replaces the one object that differs."""
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
        """Returns the folder that servers ignore as long as the current one has its marker, or it has none itself.

        Raises Refused if the folder does not exist.
        """
        if seen.main not in MARKERS or self._job.version.last not in MARKERS:
            raise Refused(
                f"{self._name(self._plain)} has several files to replace and no {EXPECTED}, which would "
                "show them all at once: push it with another --version"
            )
        stage = self._plain if seen.current != self._plain else f"0{self._plain}"
        if not VERSION.fullmatch(stage):
            raise Refused(
                f"{self._name(self._plain)} has several files to replace, and its number is too long for a "
                f"second folder, 0{self._plain}: push it with another --version"
            )
        return stage

    def _name(self, folder: str) -> str:
        return f"{self._job.model}/{folder}"

    def _fill(self, push: Sender, folder: str, seen: Standing, origin: Standing | None = None) -> None:
        """Sends all files into a folder without a marker, or one that servers do not take, the marker last."""
        objects = self._at(folder, origin)
        last = next(each for each in objects if each.file.path == self._job.version.last)
        # Servers prefer the first of two markers: the second one alone would be another model.
        late = [each for each in objects if each is not last and each.file.path in MARKERS]
        others = [each for each in objects if each is not last and each not in late]
        ours, debris = self._in_the_way(push, folder, objects, seen)
        if seen.current is not None:
            self._claim.take()
        # Not before the claim: a refused push aborts no upload of another push.
        push.forget_uploads(f"{self._name(folder)}/")
        push.remove_all(debris)  # not later: S3 completes no upload if its key was deleted meanwhile
        missing = [each for each in objects if each.key not in ours]
        self._meter.begin(self._name(folder), sum(each.file.size for each in missing))
        push.send_parts(missing)
        if seen.current is not None:
            self._claim.take()  # renewed: parts take their time
        now = self._look()
        if not now.is_like(seen):
            raise Taken
        push.remove_all(self._in_the_way(push, folder, objects, now)[1])
        others = [each for each in others if each.key not in ours]
        # The first one alone: a second push fails here before it has put anything.
        for some in (others[:1], others[1:]):
            push.show(some, Only(new=True))
        markers = [each for each in (last, *late) if each.key not in ours]
        self._crown(push, markers, objects)

    def _crown(self, push: Sender, markers: Sequence[PushedObject], objects: Sequence[PushedObject]) -> None:
        """Shows the markers when all other objects are right, then verifies all objects again.

        Swift checks a condition at the begin of a body, not at its end.
        """
        push.each(push.verify, [each for each in objects if each not in markers])
        # The markers may exist even if their answers are lost: from now on the other files stay.
        push.shown.clear()
        for each in markers:
            push.show([each], Only(new=True))
            push.verify(each)
        try:
            push.each(push.verify, objects)
        except Taken:
            push.each(push.remove, [each.key for each in markers])
            raise
        # Servers may have seen the version: from now on the markers stay, too.
        push.shown.clear()

    def _in_the_way(
        self, push: Sender, folder: str, objects: Sequence[PushedObject], seen: Standing
    ) -> tuple[set[str], list[tuple[str, str | None]]]:
        """Returns the keys of objects that are right already, and the keys and ETags of those to remove.

        Raises Refused if an object may belong to a push in progress.
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
        """Removes a version's current folder: the markers that servers ignore, then the main one, then the rest."""
        assert old.current is not None  # noqa: S101 - there is a version
        ignored = [path for path in MARKERS if path in old.files and path != old.main]
        markers = [*ignored, *([] if old.main is None else [old.main])]
        for path in markers:
            push.remove(self._key(old.current, path), old.files[path].etag)
        for path, item in old.files.items():
            if path not in markers:
                push.drop(self._key(old.current, path), item.etag)

    def _tidy(self, push: Sender) -> None:
        """Moves the visible version to its plain name, and removes its second folder."""
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
        """Moves the version into the plain folder. If that fails, the version stays in its folder."""
        move = Sender(self._bucket, self._meter)
        try:
            with _cleaning(move, self._job):
                self._fill(move, self._plain, now, origin=now)
                self._retire(move, now)
        except (Refused, ServingError) as error:
            self._meter.say(
                f"{self._name(self._plain)} is in the folder {now.current}, which servers read as the same; the next "
                f"push --force moves it: {error}"
            )
