"""Publishes one version into a repository on this machine: a copy under a hidden name, then one rename."""

import os
from pathlib import Path

from handler.commands.meter import Meter
from handler.commands.publish.files import CHUNK, LocalFile, local_file, stamp
from handler.commands.publish.versions import PushJob
from handler.commands.refused import Refused
from handler.commands.staging import NEW, appear, has_files, of_number, staged, sync
from handler.settings.model import FILE


def publish(repository: Path, job: PushJob, meter: Meter) -> None:
    """Copies the version, and then the model's settings. Raises Refused."""
    model, version, settings = repository / job.model, job.version, job.settings
    meter.begin(f"{job.model}/{job.number}", version.size)
    with staged(model.parent, ".push-") as stage:
        new = stage / NEW
        for file in version.files:
            _copy(file, new / file.path, meter)
        if settings is not None:
            _copy(local_file(FILE, settings), stage / FILE, meter)
        old = of_number(model, job.number)
        if not job.force and any(map(has_files, old)):
            raise job.refusal
        model.mkdir(exist_ok=True)
        appear(new, model / str(job.number), old, stage)
        if settings is not None:  # they come last, because they may name the version
            (stage / FILE).replace(model / FILE)
            sync(model)


def _copy(file: LocalFile, target: Path, meter: Meter) -> None:
    """Copies a file to the disk: after a power failure, a version that is there has its content.

    Raises Refused for a file that cannot be read, or that somebody writes meanwhile.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    before = _stamp(file)
    with file.source.open("rb") as source, target.open("xb") as copy:
        while chunk := source.read(CHUNK):
            copy.write(chunk)
            meter.add(len(chunk))
        copy.flush()
        os.fsync(copy.fileno())
    if before != _stamp(file) or before[0] != file.size:
        raise Refused(f"{file.source} has changed while it was copied: push it again")
    sync(target.parent)


def _stamp(file: LocalFile) -> tuple[int, int]:
    """Returns what changes with the file. Raises Refused: it is not the repository that cannot be written."""
    try:
        return stamp(file.source)
    except OSError as error:
        raise Refused(f"{file.source} cannot be read: {error.strerror}") from None
