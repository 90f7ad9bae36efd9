"""Compares a SavedModel with its ONNX model, signature by signature, and judges the conversion.

Both answer a single row, a few, and many, with two sizes for axes that vary, so that a size that the conversion has
fixed shows. A signature that TensorFlow answers differently each time, or whose made rows it refuses, is not compared,
and the report says so.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BY_ONNX, DataType
from core.records import NamedTuple
from handler.backends import onnx_file
from handler.commands.convert.parity import compare
from handler.commands.convert.parity.measured import ROWS, ParityJob, load
from handler.commands.convert.parity.samples import MOST_ELEMENTS
from handler.commands.convert.saved_model.asked import AskedSignature, has_bfloat16, reason
from handler.commands.convert.saved_model.conversion import Converted
from handler.commands.convert.saved_model.labels import CLASSES
from handler.commands.convert.saved_model.opened import SavedModel
from handler.commands.convert.saved_model.runtime import onnx
from handler.commands.convert.sources.original import Arrays, refusing, versioned
from handler.commands.refused import Refused

FREE: Final = (3, 5, 3)
"""Sizes of axes that vary, in the calls."""
FEW: Final = (1, 7)
"""Rows of the first calls."""
FIXED: Final = 8
"""Calls of a signature whose number of rows is fixed."""
HIGHEST: Final = (10, 2, 1)
"""Whole numbers are below this. They can be indices of a small table, so fewer are tried if TensorFlow refuses them."""
WORK: Final = 2**33
"""The rows times the bytes of the model, so that a large one takes seconds."""
GIVE: Final = "give rows with --data"


class Compared(NamedTuple):
    """One signature. `rows`: 0 if it was not compared. `found`: the report's outputs. `notes`: sentences."""

    rows: int
    kind: str
    found: Sequence[dict[str, Any]]
    notes: Sequence[str]


def compared(saved: SavedModel, made: Converted, path: Path, job: ParityJob) -> dict[str, Any]:
    """Returns what a parity report says of the answers. Raises Refused if they differ by more than the tolerance."""
    comparison = _Comparison(saved, made, path, job)
    each = {asked: comparison.signature(asked) for asked in comparison.signatures}
    outputs = [found for one in each.values() for found in one.found]
    notes = [note for one in each.values() for note in one.notes]
    compare.judge(outputs, notes, job.flips)
    given = any(one.kind == "given" for one in each.values())
    rows = sum(one.rows for one in each.values())
    return {
        "runtime": versioned("onnxruntime"),
        "data": {"kind": "given", "rows": rows, "file": job.data.name}
        if given and job.data is not None
        else {"kind": "made", "rows": rows, "seed": job.seed},
        "signatures": [
            {"name": asked.name, "method": asked.method, "rows": one.rows, "kind": one.kind}
            for asked, one in each.items()
        ],
        "outputs": outputs,
        "notes": notes,
        "load_seconds": round(comparison.seconds, 6),
        "bytes": path.stat().st_size,
    }


class _Comparison:
    def __init__(self, saved: SavedModel, made: Converted, path: Path, job: ParityJob) -> None:
        inputs, self._outputs = onnx_file.signature(path)
        self._job, self._size = job, path.stat().st_size
        self._session, self.seconds = load(path)
        self._graph = onnx.load(path).graph
        self._settings = made.settings["signatures"]
        by_name = {signature.name: signature for signature in saved.signatures}
        self.signatures = [
            AskedSignature(saved, by_name[name], said, inputs, made.unread.get(name, ()))
            for name, said in self._settings.items()
        ]
        self._given = self._fitting()

    def _fitting(self) -> dict[str, Arrays]:
        """Returns the rows of `--data` for each signature that takes them. Raises Refused if none does."""
        if self._job.data is None:
            return {}
        found, refusals = {}, []
        for asked in self.signatures:
            try:
                found[asked.name] = asked.fitted(self._job.data)
            except Refused as refusal:
                refusals.append(f"signature {asked.name!r}: {refusal}")
        if not found:
            raise Refused(refusals[0])
        return found

    def signature(self, asked: AskedSignature) -> Compared:
        """Compares one signature. Raises Refused if ONNX Runtime does not answer, or not in the original's shapes."""
        datatypes = self._datatypes(asked)
        if has_bfloat16(asked.values) or BF16 in datatypes.values():
            return _left_out(asked, "ONNX Runtime's Python interface does not have its datatype BF16")
        try:
            calls, answers = self._answered(asked)
        except _Unanswered as error:
            return _left_out(asked, f"the original does not answer made rows ({error}); {GIVE}")
        changing = _changing(calls, answers, asked)
        kept = {alias: row for alias, row in datatypes.items() if alias not in changing}
        found = list(self._outputs_of(asked, calls, answers, kept))
        why = "was not compared: the original answers it differently each time"
        notes = [f"signature {asked.name!r}: output {alias!r} {why}" for alias in changing]
        kind = "given" if asked.name in self._given else "made"
        several = calls[1:] if kind == "given" and not asked.fixed else calls  # the first row is asked twice
        rows = sum(map(_rows, several)) if found else 0
        return Compared(rows, kind, found, [*notes, *_moved(asked, calls, answers, found)])

    def _datatypes(self, asked: AskedSignature) -> dict[str, DataType]:
        kinds = {value.name: BY_ONNX[value.element] for value in self._outputs}
        bindings = self._settings[asked.name]["outputs"]
        return {alias: kinds[each if isinstance(each, str) else each["tensor"]] for alias, each in bindings.items()}

    def _answered(self, asked: AskedSignature) -> tuple[list[Arrays], list[Arrays]]:
        """Returns rows that the original answers, and its answers. Raises _Unanswered, or Refused for given rows."""
        if asked.name in self._given:
            calls = list(_split(self._given[asked.name], asked.fixed))
            with refusing(f"signature {asked.name!r}: the original does not answer the rows of --data"):
                return calls, [asked.theirs(call) for call in calls]
        first = ""
        for highest in HIGHEST:
            try:
                pairs = list(self._made(asked, highest))
            except Exception as error:  # noqa: BLE001 - TensorFlow's errors have no common base
                first = first or reason(error)
            else:
                return [call for call, _ in pairs], [answer for _, answer in pairs]
        raise _Unanswered(first)

    def _made(self, asked: AskedSignature, highest: int) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields made rows and the original's answers. The numbers of rows depend on the seed and the model alone."""
        sizes = [(asked.fixed, free) for free in FREE[:1] * FIXED] if asked.fixed else [*zip(FEW, FREE, strict=False)]
        answer: Arrays = {}
        for index, (rows, free) in enumerate(sizes):
            call = _below(highest, asked.narrowed(asked.made(self._graph, rows, free, self._job.seed + index)))
            answer = asked.theirs(call)
            yield call, answer
        most = 0 if asked.fixed else self._most(asked, answer) - sum(FEW)
        if most > 0:
            call = asked.narrowed(asked.made(self._graph, most, FREE[-1], self._job.seed + len(sizes)))
            yield _below(highest, call), asked.theirs(_below(highest, call))

    def _most(self, asked: AskedSignature, answer: Arrays) -> int:
        """Returns how many rows take seconds and some 100 MB at most. `answer`: that of the last of FEW."""
        sizes = [math.prod(abs(size) for size in (value.shape or (1,))[1:]) for value in asked.values]
        sizes += [array.size // FEW[-1] for array in answer.values()]
        return min(ROWS, MOST_ELEMENTS // max(1, *sizes), WORK // max(1, self._size))

    def _outputs_of(
        self,
        asked: AskedSignature,
        calls: Sequence[Arrays],
        theirs: Sequence[Arrays],
        datatypes: Mapping[str, DataType],
    ) -> Iterator[dict[str, Any]]:
        """Yields the report's entry of each output, and of a classifier's best classes."""
        ours = [asked.ours(self._session, call) for call in calls]
        for alias, row in datatypes.items():
            said = {"signature": asked.name, "name": alias, "datatype": row.name}
            a = _flat([each[alias] for each in ours])
            b = _flat([compare.shaped(alias, x[alias], y) for x, y in zip(ours, theirs, strict=True)])
            if row.is_float:
                yield said | compare.numbers(a, b, compare.tolerance(row, self._job.tolerance))
            else:
                yield said | compare.labels(a, b, None, 0)
        if asked.labels is not None and "scores" in datatypes:
            limit = compare.tolerance(datatypes["scores"], self._job.tolerance)
            yield {"signature": asked.name, **_classes(asked.labels, ours, theirs, limit)}


class _Unanswered(Exception):
    """The original refuses every kind of made rows. Its text is the first error."""


def _moved(
    asked: AskedSignature, calls: Sequence[Arrays], theirs: Sequence[Arrays], found: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Returns how far the original's own numbers move with the next FP32 number of each input, where answers differ."""
    few = min(1, len(calls) - 1)
    call, before = calls[few], theirs[few]
    wide = [name for name, array in call.items() if array.dtype == np.float32]
    if not wide or not any(each.get("different") for each in found):
        return []
    moved = asked.theirs(call | {name: np.nextafter(call[name], np.float32(np.inf)) for name in wide})
    floats = [name for name, array in before.items() if array.dtype.kind == "f"]
    largest = max(compare.numbers(moved[name], before[name], 0.0)["largest_absolute"] for name in floats)
    what = "with the next FP32 number in place of each input"
    return [f"signature {asked.name!r}: {what}, the original's own numbers change by up to {largest:.3g}"]


def _left_out(asked: AskedSignature, reason: str) -> Compared:
    return Compared(0, "made", [], [f"signature {asked.name!r} was not compared: {reason}"])


def _split(rows: Arrays, fixed: int) -> Iterator[Arrays]:
    """Yields the calls for given rows: the first row and all, or as many as the signature fixes."""
    count = _rows(rows)
    if not fixed:
        yield {name: array[:1] for name, array in rows.items()}
        yield rows
    for start in range(0, count - fixed + 1 if fixed else 0, fixed or 1):
        yield {name: array[start : start + fixed] for name, array in rows.items()}


def _rows(call: Arrays) -> int:
    return max(len(array) if array.ndim else 1 for array in call.values())


def _below(highest: int, call: Arrays) -> Arrays:
    return {name: array % highest if array.dtype.kind in "iu" else array for name, array in call.items()}


def _changing(calls: Sequence[Arrays], answers: Sequence[Arrays], asked: AskedSignature) -> list[str]:
    """Returns the outputs that the original answers differently for the same rows: random ones, and counters."""
    few = min(1, len(calls) - 1)
    again = asked.theirs(calls[few])
    return [alias for alias, array in answers[few].items() if not _same(array, again[alias])]


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _flat(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([array.reshape(-1) for array in arrays])


def _classes(labels: Sequence[str], ours: Sequence[Arrays], theirs: Sequence[Arrays], limit: float) -> dict[str, Any]:
    """Compares the label of each row's best score with the original's class at its own best score."""
    scores = np.concatenate([each["scores"] for each in theirs])
    classes = np.concatenate([each[CLASSES] for each in theirs])
    best = np.take_along_axis(classes, np.argmax(scores, axis=1)[:, None], axis=1)[:, 0]
    found = np.array(labels, object)[np.argmax(np.concatenate([each["scores"] for each in ours]), axis=1)]
    return {"name": CLASSES, "datatype": "BYTES", **compare.labels(found, best, scores, limit)}
