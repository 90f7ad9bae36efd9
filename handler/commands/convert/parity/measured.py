"""Asks the original and ONNX Runtime the same rows, compares their answers, and judges the conversion."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BY_ONNX, BYTES
from core.records import NamedTuple
from handler.backends.onnx_file import Value, signature
from handler.commands.convert.parity import compare, given, samples
from handler.commands.convert.parity.given import GivenData
from handler.commands.convert.sources.original import Arrays, LibraryModel, library, refusing, versioned

LOADS: Final = 3
MISSING: Final = 0.1
"""The share of numbers that are missing, where that is tried."""
ROWS: Final = 1000
"""Rows that are made without data."""
ROUNDED: Final = "FP32"


class ParityJob(NamedTuple):
    """`tolerance`: None for that of each datatype. `flips`: the share of labels that may differ, ties apart."""

    data: GivenData | None
    tolerance: float | None
    flips: float
    seed: int


class Measured(NamedTuple):
    """`inputs`: the rows that both were asked. `report`: the members of parity.json that measuring knows."""

    inputs: Mapping[str, NDArray[Any]]
    specs: Sequence[Value]
    outputs: Sequence[Value]
    report: dict[str, Any]


def measured(model: LibraryModel, path: Path, job: ParityJob) -> Measured:
    """Compares. Raises Refused if the answers differ by more than the tolerance."""
    sides = _Sides(model, path, job)
    rows = _rows(model, sides.inputs, job)
    narrow = sides.narrow(rows)
    theirs = sides.theirs(rows)
    ours = sides.ours(narrow)
    found = sides.compared(ours, theirs)
    effect = sides.missing(rows, ours, theirs) if _different(found) else []
    if model.wide and (lost := _rounded(rows, narrow)):
        effect.append(_effect(lost, _different(sides.compared(theirs, sides.theirs(narrow)))))
    compare.judge(found, effect, job.flips)
    gaps = sides.gaps(rows) if model.gaps and job.data is None else []
    report = {
        "runtime": versioned("onnxruntime"),
        "data": _data(job, len(next(iter(rows.values())))),
        "outputs": found,
        "notes": [*model.notes, *effect, *gaps],
        "load_seconds": round(sides.seconds, 6),
        "bytes": path.stat().st_size,
    }
    return Measured(rows, sides.inputs, sides.outputs, report)


class _Sides:
    """The original and the session of the ONNX model. `seconds`: the median time of a load."""

    def __init__(self, model: LibraryModel, path: Path, job: ParityJob) -> None:
        inputs, self.outputs = signature(path)
        self.inputs = [value for value in inputs if not value.optional]
        self._model, self._job = model, job
        self._session, self.seconds = load(path)

    def theirs(self, rows: Mapping[str, NDArray[Any]]) -> Arrays:
        """Asks the original. Raises Refused."""
        told = "made rows; give rows of your own with --data" if self._job.data is None else "the rows of --data"
        with refusing(f"the original does not answer {told}"):
            return {name: np.asarray(array) for name, array in self._model.predict(rows).items()}

    def ours(self, narrow: Arrays) -> Arrays:
        """Asks ONNX Runtime. Raises Refused."""
        names = [value.name for value in self.outputs]
        with refusing("ONNX Runtime does not answer what the original answers"):
            found = self._session.run(names, narrow)
        return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}

    def narrow(self, rows: Mapping[str, NDArray[Any]]) -> Arrays:
        """Returns the rows in the inputs' datatypes, as a request has them."""
        return {value.name: narrow(value, rows[value.name]) for value in self.inputs}

    def compared(self, ours: Arrays, theirs: Arrays) -> list[dict[str, Any]]:
        return _compared(self.outputs, ours, theirs, self._model.scores, self._job)

    def missing(self, rows: Mapping[str, NDArray[Any]], ours: Arrays, theirs: Arrays) -> list[str]:
        """Returns a sentence that says whether answers differ in the rows with missing values alone."""
        holed = _holed(rows)
        if not holed.any() or any(np.shape(array)[:1] != holed.shape for array in (*ours.values(), *theirs.values())):
            return []
        here, there = ({name: array[~holed] for name, array in side.items()} for side in (ours, theirs))
        count = _different(self.compared(here, there))
        where = f"{count} of them in rows without missing values" if count else "only rows with missing values differ"
        return [f"{where}: {np.count_nonzero(holed)} of {holed.size} rows have some (NaN)"]

    def gaps(self, rows: Mapping[str, NDArray[Any]]) -> list[str]:
        """Returns a sentence that says whether missing values are answered differently. No model is refused for it."""
        random = np.random.default_rng(self._job.seed)
        holed = {
            name: np.where(random.random(array.shape) < MISSING, np.nan, array) if array.dtype.kind == "f" else array
            for name, array in rows.items()
        }
        found = self.compared(self.ours(self.narrow(holed)), self.theirs(holed))
        count, values = _different(found), sum(each["values"] for each in found)
        return (
            [f"missing values (NaN) change {count} of {values} answers otherwise than in the original"] if count else []
        )


def _holed(rows: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Decides for each row whether one of its numbers is missing."""
    arrays = [np.isnan(array) for array in rows.values() if array.dtype.kind == "f"]
    found = np.zeros(len(next(iter(rows.values()))), np.bool_)
    for array in arrays:
        found |= array.reshape(len(found), -1).any(axis=1)
    return found


def _different(found: Sequence[Mapping[str, Any]]) -> int:
    return sum(each.get("different", 0) + each.get("flips", 0) - each.get("ties", 0) for each in found)


def load(path: Path) -> tuple[Any, float]:
    """Returns a session of the ONNX model, and the median time of a load. Raises Refused if it does not load."""
    runtime = library("onnxruntime", "another library", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session, times = None, []
    for _ in range(LOADS):
        began = time.perf_counter()
        with refusing("ONNX Runtime does not load the converted model"):
            session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        times.append(time.perf_counter() - began)
    return session, statistics.median(times)


def _rows(model: LibraryModel, inputs: Sequence[Value], job: ParityJob) -> dict[str, NDArray[Any]]:
    if job.data is not None and model.encode is not None:
        return model.encode(given.sentences(job.data))
    if job.data is not None:
        return given.feed(job.data, inputs, model.feature_names)
    if model.samples is not None:
        return model.samples(ROWS, job.seed)
    graph = library("onnx", "another library", "convert").load_from_string(model.onnx).graph
    return samples.made(graph, inputs, model.domains, ROWS, job.seed)


def narrow(value: Value, array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array in the input's datatype, as a request has it."""
    row = BY_ONNX[value.element]
    if row is BYTES:
        return given.texts(array)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array.astype(row.numpy))


def _compared(
    outputs: Sequence[Value], ours: Arrays, theirs: Arrays, scores: str, job: ParityJob
) -> list[dict[str, Any]]:
    found = []
    best = compare.shaped(scores, ours[scores], theirs) if scores in theirs else None
    for value in outputs:
        if value.name not in theirs:
            continue
        row, answer = BY_ONNX[value.element], ours[value.name]
        expected = compare.shaped(value.name, answer, theirs)
        said: dict[str, Any] = {"name": value.name, "datatype": row.name}
        if row.is_float or row is BF16:
            said |= compare.numbers(answer, expected, compare.tolerance(row, job.tolerance))
        else:
            limit = compare.TOLERANCES[ROUNDED] if job.tolerance is None else job.tolerance
            said |= compare.labels(answer, expected, best, limit)
        found.append(said)
    return found


def _rounded(rows: Mapping[str, NDArray[Any]], narrow: Mapping[str, NDArray[Any]]) -> int:
    """Returns how many numbers of the rows FP32 does not have."""
    pairs = [(rows[name], array) for name, array in narrow.items() if array.dtype == np.float32]
    return sum(
        int(np.count_nonzero((wide != array) & ~np.isnan(wide))) for wide, array in pairs if wide.dtype.kind == "f"
    )


def _effect(lost: int, changed: int) -> str:
    """Returns in a sentence what it changes that the ONNX model reads FP32 where the original reads FP64."""
    what = f"{changed} of the original's own answers" if changed else "none of the original's own answers"
    return f"the original reads FP64, the ONNX model FP32; rounding {lost} of the inputs' numbers changes {what}"


def _data(job: ParityJob, rows: int) -> dict[str, Any]:
    if job.data is None:
        return {"kind": "made", "rows": rows, "seed": job.seed}
    return {"kind": "given", "rows": rows, "file": job.data.name}
