"""The conversion of one SavedModel, from its folder to a version's folder. It runs in a child process."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.records import NamedTuple
from handler.commands.convert.parity import given
from handler.commands.convert.parity.measured import ParityJob
from handler.commands.convert.sources.original import versioned
from handler.commands.convert.work import written
from handler.settings.model import FILE
from handler.stores import parity


class SavedModelJob(NamedTuple):
    """One SavedModel to convert. `folder`: the version's. `signatures`: those to publish, all where empty."""

    source: str
    folder: str
    signatures: Sequence[str]
    data: str | None
    tolerance: float | None
    flips: float
    seed: int


def convert(job: SavedModelJob, progress: Callable[[str], None]) -> dict[str, Any]:
    """Writes the version's files. Returns the report. Raises Refused."""
    source, folder = Path(job.source), Path(job.folder)
    data = None if job.data is None else given.read(Path(job.data))
    progress(f"loading {named(source)} with TensorFlow")
    from handler.commands.convert.saved_model import comparison, conversion  # noqa: PLC0415 - seconds, all of TensorFlow
    from handler.commands.convert.saved_model.opened import opened  # noqa: PLC0415 - the same

    with opened(source, job.signatures) as saved:
        progress(f"converting with {versioned('tf2onnx')}")
        made = conversion.converted(saved)
        path = folder / "model.onnx"
        written(path, made.model)
        progress("comparing the answers of both")
        found = comparison.compared(saved, made, path, ParityJob(data, job.tolerance, job.flips, job.seed))
    report = {
        "source": {"file": named(source), "sha256": _digest(source), "format": "TensorFlow SavedModel"},
        "library": versioned("tensorflow", "tensorflow-cpu"),
        "converter": versioned("tf2onnx"),
        **found,
    }
    written(folder / FILE, parity.to_json(made.settings))
    written(folder / parity.FILE, parity.to_json(report))
    return report


def named(source: Path) -> str:
    """Returns a SavedModel's name: "insects", or "insects/1" for a numbered folder."""
    parts = source.resolve().parts[-2:] if source.resolve().name.isdigit() else source.resolve().parts[-1:]
    return "/".join(parts)


def _digest(source: Path) -> str:
    """Returns the SHA-256 over the names and the content of all files."""
    found = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(source).as_posix()}\n".encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()
