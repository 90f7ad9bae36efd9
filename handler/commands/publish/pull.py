"""`dragoman pull`: fetches versions of a model from a bucket into a model's folder, as a server fetches them."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.records import NamedTuple
from handler.commands import results
from handler.commands.meter import Meter, human
from handler.commands.options import CommandOptions
from handler.commands.publish import places, shelf, targets, versions
from handler.commands.publish.buckets import opened
from handler.commands.refused import Refused
from handler.commands.staging import NEW, appear, of_number, staged
from handler.lifecycle.repository import Version
from handler.settings import Settings
from handler.settings.model import FILE
from handler.stores import File, open_store
from handler.stores.progress import Progress


def run(options: CommandOptions, settings: Settings) -> None:
    """Fetches the wanted versions, then the settings. Raises Refused, ServingError."""
    source = targets.model(options.source, settings.repository)
    if not targets.is_remote(source.repository):
        raise Refused(f"{str(source)!r} is on this machine already; expected s3://bucket/prefix/NAME")
    there = shelf.model(settings, source)
    wanted = _wanted(there, source, versions.number(options.version), every=options.all)
    target = Path(options.folder or source.name)
    if not target.is_dir() and os.path.lexists(target):
        raise Refused(f"{target} is not a folder")
    places.check_folder(target)
    if not options.force:
        _check_free(target, wanted)
    meter, job = Meter(quiet=options.quiet), PullJob(source, target, there.settings, settings)
    for version in wanted:
        meter.done(f"fetching {source}/{version.folder}: {human(_size(version))}")
        meter.begin(f"fetching {source}/{version.folder}", _size(version))
        try:
            came = _pull(job, version, MeteredProgress(meter))
        finally:
            meter.end()
        place, size = target / str(version.number), _size(came)
        facts = {"model": source.name, "version": version.number, "place": str(place)}
        results.tell(options, f"{place}: {human(size)}", **facts, files=len(came.files), size=size)
    if there.settings is not None:
        _write_settings(target / FILE, there.settings, meter, force=options.force)


class PullJob(NamedTuple):
    """What all versions of one command have in common. `text`: the model's settings, None without them."""

    source: targets.Target
    target: Path
    text: bytes | None
    settings: Settings


class MeteredProgress(Progress):
    """The progress of a fetch that a Meter shows."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def add(self, count: int) -> None:
        super().add(count)
        self._meter.add(count)


def _wanted(there: shelf.RepositoryModel, source: targets.Target, number: int | None, *, every: bool) -> list[Version]:
    """Returns the wanted versions in ascending order. Prefers the plain name: 1 before 001."""
    found = {each.number: each for each in sorted(there.versions, key=lambda each: len(each.folder), reverse=True)}
    if not found:
        raise Refused(f"there is no version of a model at {source}")
    if every:
        return [found[each] for each in sorted(found)]
    number = max(found) if number is None else number
    if number not in found:
        raise Refused(f"{source} has no version {number}; it has {', '.join(map(str, sorted(found)))}")
    return [found[number]]


def _check_free(target: Path, wanted: Sequence[Version]) -> None:
    for version in wanted:
        for present in of_number(target, version.number):
            raise Refused(f"{present} exists already: --force replaces it")


def _size(version: Version) -> int:
    return sum(file.size or 0 for file in version.files)


def _pull(job: PullJob, version: Version, progress: Progress) -> Version:
    """Returns the version that was fetched. It is newer than the listed one if a push has replaced that since."""
    source, target, text, settings = job
    with staged(target.parent, ".pull-") as stage:
        if (free := shutil.disk_usage(stage).free) < _size(version):
            raise Refused(f"{target} cannot be written: {human(_size(version))} are needed, {human(free)} are free")
        # The store's cache is on the target's file system: the files are moved, not copied. No server's cap limits it,
        # and everybody who can write the target can write the cache.
        here = settings._replace(repository=source.repository, cache=stage / "cache", cache_bytes=None)
        here = here._replace(cache_is_default=False, cache_shared=True)
        store, new = open_store(here), stage / NEW
        fetched = store.fetch(source.name, version.folder, version.files, progress)
        fetched.path.rename(new)
        came = version._replace(files=tuple(_files(new, version.folder)))
        if not shelf.is_complete(store, source.name, came, text):
            raise Refused(f"{source}/{version.folder} is being replaced: pull it when it is complete")
        _verify(source, came, new, settings)
        target.mkdir(exist_ok=True)
        appear(new, target / str(version.number), of_number(target, version.number), stage)
    return came


def _files(new: Path, folder: str) -> Iterator[File]:
    """Yields the fetched files in the form of a listing. Sets the usual modes: in a cache, all is private."""
    usual = new.with_name("usual")
    usual.mkdir()
    mode = usual.stat().st_mode
    new.chmod(mode)
    for path in sorted(new.rglob("*")):
        path.chmod(mode & 0o666 if path.is_file() else mode)
        if path.is_file():
            yield File(f"{folder}/{path.relative_to(new).as_posix()}", path.stat().st_size)


def _verify(source: targets.Target, version: Version, folder: Path, settings: Settings) -> None:
    """Compares each file with the checksum that `push` wrote beside its object. Raises Refused."""
    bucket = opened(settings, source.repository)
    for file in version.files:
        head = bucket.head(f"{source.name}/{file.path}")
        if head is None or head.sha256 is None:
            continue
        with (folder / file.path.partition("/")[2]).open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != head.sha256:
            raise Refused(f"{source}/{file.path} differs from its publisher's file: sha256 {found}")


def _write_settings(path: Path, text: bytes, meter: Meter, *, force: bool) -> None:
    if not path.exists() or force:
        with staged(path.parent, ".pull-") as stage:
            (stage / FILE).write_bytes(text)
            (stage / FILE).replace(path)
    elif not _same(path.read_bytes(), text):
        meter.say(f"{path} differs from the bucket's, and is kept: --force replaces it")


def _same(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one == other
