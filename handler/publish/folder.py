"""One version into a repository on this machine: copied beside it under a hidden name, then there by one rename."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path

from handler.model_settings import FILE
from handler.publish.files import CHUNK, LocalFile, local_file
from handler.publish.meter import Meter
from handler.publish.refusal import Refused
from handler.publish.versions import MARKERS, Job
from handler.repository import VERSION


def publish(repository: Path, job: Job, meter: Meter) -> None:
    """Raises Refused."""
    model, version, settings = repository / job.model, job.version, job.settings
    meter.begin(f"{job.model}/{job.number}", version.size)
    with staged(model.parent, ".push-") as stage:
        new = stage / "new"
        for file in version.files:
            _copy(file, new / file.path, meter)
        if settings is not None:
            _copy(local_file(FILE, settings), stage / FILE, meter)
        old = of_number(model, job.number)
        if not job.force and any((each / marker).exists() for each in old for marker in MARKERS):
            raise job.refusal
        model.mkdir(exist_ok=True)
        if settings is not None:
            (stage / FILE).replace(model / FILE)
        appear(new, model / str(job.number), old, stage)


def of_number(model: Path, number: int) -> list[Path]:
    """A model's folders of that number, however they are written."""
    if not model.is_dir():
        return []
    return [entry for entry in model.iterdir() if VERSION.fullmatch(entry.name) and int(entry.name) == number]


def appear(new: Path, target: Path, old: Sequence[Path], stage: Path) -> None:
    """`new` at `target`, where what is `old` has been. Raises Refused if something else is there by now."""
    aside = {stage / f"old-{index}": each for index, each in enumerate(old)}
    try:
        for place, each in aside.items():
            each.rename(place)
        new.rename(target)
    except BaseException as error:
        for place, each in aside.items():
            with suppress(OSError):
                place.rename(each)
        if isinstance(error, OSError) and error.errno in (EEXIST, ENOTEMPTY):
            raise Refused(f"{target} has been written by somebody else meanwhile") from None
        raise
    _sync(target.parent)


@contextmanager
def staged(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder on the target's own file system; servers skip names with a leading dot. Raises Refused."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise Refused(f"{parent} cannot be written: {error.strerror}") from None
    try:
        yield stage
    except OSError as error:
        raise Refused(f"{parent} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copy(file: LocalFile, target: Path, meter: Meter) -> None:
    """Onto the disk: a version that is there after a power failure is there with its content."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.source.open("rb") as source, target.open("xb") as copy:
        while chunk := source.read(CHUNK):
            copy.write(chunk)
            meter.add(len(chunk))
        copy.flush()
        os.fsync(copy.fileno())
    _sync(target.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
