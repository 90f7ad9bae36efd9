"""The conversion of one model of another library, from its file to a version's folder. It runs in a child process."""

import hashlib
import shutil
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BY_ONNX
from core.errors import escaped
from core.explain.shapley import least_budget
from core.records import NamedTuple
from core.signature import DEFAULT
from handler.backends.onnx_file import Value
from handler.commands.convert.parity import given
from handler.commands.convert.parity.measured import Measured, ParityJob, measured
from handler.commands.convert.sources import FORMATS
from handler.commands.convert.sources.original import LibraryModel, SourceOptions
from handler.commands.refused import Refused
from handler.settings.model import FILE
from handler.stores import parity

BACKGROUND: Final = "background.json"
BACKGROUND_ROWS: Final = 50
BUDGET: Final = 2048
"""The explainer's default. Wider models need more, and get no explainer."""
CHUNK: Final = 1 << 20


class LibraryJob(NamedTuple):
    """One file or folder to convert. `format`: a name of FORMATS. `folder`: the version's, an empty one."""

    source: str
    format: str
    folder: str
    data: str | None
    tolerance: float | None
    flips: float
    seed: int
    allow_pickle: bool
    trusted: Sequence[str]


def convert(job: LibraryJob, progress: Callable[[str], None]) -> dict[str, Any]:
    """Writes the version's files. Returns the report. Raises Refused."""
    source, folder, row = Path(job.source), Path(job.folder), FORMATS[job.format]
    data = None if job.data is None else given.read(Path(job.data))
    progress(f"loading {source.name} with {row.title}")
    options = SourceOptions(job.allow_pickle, tuple(job.trusted))
    if data is not None:
        options = options._replace(examples=data.arrays)
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern the libraries' own code: a publisher cannot act on them
        model: LibraryModel = import_module(row.module).convert(source, options, progress)
        written(path, model.onnx)
        progress("comparing the answers of both")
        found = measured(model, path, ParityJob(data, job.tolerance, job.flips, job.seed))
    settings = {**_signatures(model, found), **model.settings}
    if data is not None and model.kind != "transformer":
        settings |= _explainer(model, found, folder, job.seed)
    report = {
        "source": {"file": escaped(source.name), "sha256": _digest(source), "format": row.title},
        "library": model.library,
        "converter": model.converter,
        **found.report,
    }
    for name, file in model.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, folder / name)
    if settings:
        written(folder / FILE, parity.to_json(settings))
    written(folder / parity.FILE, parity.to_json(report))
    return report


def written(path: Path, content: bytes) -> None:
    """Writes a file of a version. Raises Refused."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}; TMPDIR names another place") from None


def _digest(source: Path) -> str | None:
    """Returns the SHA-256 of a file, None for a folder."""
    if not source.is_file():
        return None
    found = hashlib.sha256()
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _signatures(model: LibraryModel, found: Measured) -> dict[str, Any]:
    """Returns the key "signatures": predict with all outputs, and classify or regress where the outputs are so."""
    names = {value.name: value.name for value in found.outputs}
    signatures: dict[str, Any] = {DEFAULT: {"method": "predict", "outputs": names}}
    if not all(_is_feature(value) for value in found.specs):
        return {}
    scores = next((value for value in found.outputs if value.name == model.scores), None)
    if scores is not None and model.class_labels and (scores.shape or (0,))[-1] in (-1, len(model.class_labels)):
        labels = list(model.class_labels)
        signatures["classify"] = {"method": "classify", "outputs": {"scores": scores.name}, "class_labels": labels}
    elif model.kind == "regressor" and len(names) == 1 and (found.outputs[0].shape or (0,))[1:] in ((), (1,)):
        signatures["regress"] = {"method": "regress", "outputs": {"outputs": found.outputs[0].name}}
    return {"signatures": signatures} if len(signatures) > 1 else {}


def _is_feature(value: Value) -> bool:
    """Decides whether an example of TensorFlow Serving can have the input: one axis at most is variable beside rows."""
    return value.shape is not None and value.shape[:1] == (-1,) and value.shape[1:].count(-1) <= 1


def _explainer(model: LibraryModel, found: Measured, folder: Path, seed: int) -> dict[str, Any]:
    """Writes the background, which are rows of the given data. Returns the key "explainer".

    A model has none if it is too wide, or if its outputs are all texts: an explanation divides a number.
    """
    widths = {value.name: int(np.prod(found.inputs[value.name].shape[1:])) for value in found.specs}
    has_numbers = any(not BY_ONNX[value.element].is_bytes for value in found.outputs)
    if not has_numbers or least_budget(sum(widths.values())) > BUDGET:
        return {}
    rows = len(next(iter(found.inputs.values())))
    chosen = np.sort(np.random.default_rng(seed).permutation(rows)[:BACKGROUND_ROWS])
    background = {value.name: _listed(value, found.inputs[value.name][chosen]) for value in found.specs}
    (folder / BACKGROUND).write_bytes(parity.to_json(background, indent=None))
    said: dict[str, Any] = {"background": {"file": BACKGROUND}}
    if model.scores:
        said["output"] = model.scores
    if len(widths) == 1 and len(model.feature_names) == next(iter(widths.values())):
        said["feature_names"] = list(model.feature_names)
    return {"explainer": said}


def _listed(value: Value, array: NDArray[Any]) -> Any:
    """Returns rows as JSON has them. Whole numbers and texts are exact, floats those that the input's datatype has."""
    row = BY_ONNX[value.element]
    return array.tolist() if row.is_bytes else array.astype(row.numpy).tolist()
