"""How much the answers of two models differ, output by output."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import DataType
from handler.commands.refused import Refused

TOLERANCES: Final = {"FP64": 1e-6, "FP32": 1e-4, "FP16": 1e-2, "BF16": 5e-2}
"""By the output's datatype. A number may differ by so much times its size, or by so much if it is below 1.

FP64 is wider than its own precision, because inputs and weights are mostly FP32."""


def tolerance(datatype: DataType, said: float | None) -> float:
    return TOLERANCES[datatype.name] if said is None else said


def numbers(ours: NDArray[Any], theirs: NDArray[Any], limit: float) -> dict[str, Any]:
    """Compares numbers: the largest differences, and how many are beyond the limit. NaN is like NaN.

    The relative difference is that of numbers of at least the limit.
    """
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(ours - theirs)
        apart[(ours == theirs) | (np.isnan(ours) & np.isnan(theirs))] = 0
        apart[np.isnan(apart)] = np.inf
        size = np.abs(theirs)
        beyond = apart > limit * np.maximum(1, np.where(np.isfinite(size), size, 1))
        relative = apart[size >= limit] / size[size >= limit]
    return {
        "tolerance": limit,
        "largest_absolute": _largest(apart),
        "largest_relative": _largest(np.nan_to_num(relative, nan=0.0, posinf=np.inf)),
        "different": int(np.count_nonzero(beyond)),
        "values": int(apart.size),
    }


def _largest(apart: NDArray[Any]) -> float:
    """Returns the largest one; JSON has no infinity."""
    return min(float(apart.max(initial=0.0)), float(np.finfo(np.float64).max))


def labels(ours: NDArray[Any], theirs: NDArray[Any], scores: NDArray[Any] | None, limit: float) -> dict[str, Any]:
    """Compares labels: how many flip, and how many of these are ties, with two best scores as near as the limit."""
    flipped = _plain(ours) != _plain(theirs)
    ties = 0
    if scores is not None and scores.ndim == 2 and len(scores) == flipped.size:  # noqa: PLR2004 - [rows, classes]
        best = np.sort(scores.astype(np.float64), axis=1)
        gaps = best[:, -1] - best[:, -2] if best.shape[1] > 1 else np.abs(best[:, 0])
        ties = int(np.count_nonzero(flipped.reshape(-1) & (gaps <= limit)))
    return {"flips": int(np.count_nonzero(flipped)), "ties": ties, "values": int(flipped.size)}


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Returns labels that compare: whole numbers as such, else texts."""
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.all(np.mod(array, 1) == 0)):
        return array.astype(np.int64)
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in array.reshape(-1).tolist()]
    return np.array(texts).reshape(array.shape)


def shaped(name: str, ours: NDArray[Any], theirs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Returns the original's answer in the shape of ours. Raises Refused.

    [rows] and [rows, 1] are alike. A score [rows] is that of the second of two classes, and its negative the first's.
    """
    found = np.asarray(theirs[name])
    if ours.shape == (*found.shape, 2) and found.ndim == 1:
        found = np.stack([-found, found], axis=1)
    if found.shape != ours.shape and found.size == ours.size and len(found) == len(ours):
        found = found.reshape(ours.shape)
    if found.shape != ours.shape:
        raise Refused(f"output {name!r} is {list(ours.shape)} in ONNX Runtime, {list(found.shape)} in the original")
    return found


def judge(found: Sequence[Mapping[str, Any]], effects: Sequence[str], share: float) -> None:
    """Raises Refused with what differs, and why if that is known. `share`: of the labels may differ."""
    wrong = []
    for each in found:
        name, count = each["name"], each["values"]
        where = f"output {name!r}" if "signature" not in each else f"signature {each['signature']!r}: output {name!r}"
        if each.get("different"):
            wrong.append(
                f"{where} differs by up to {each['largest_absolute']:.3g} in {each['different']} of {count} "
                f"numbers (tolerance {each['tolerance']:g})"
            )
        flips = each.get("flips", 0) - each.get("ties", 0)
        if flips > share * count:
            wrong.append(f"{where} has another label in {flips} of {count} rows (permitted: {share:g})")
    if wrong:
        cure = "; --tolerance and --flips permit more"
        raise Refused(
            f"the converted model does not answer as the original does: {'; '.join([*wrong, *effects])}{cure}"
        )
