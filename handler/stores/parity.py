"""parity.json: what `dragoman convert` has measured, beside the model. Push and pull carry it, the console shows it.

    {"source": {"file": "wine.skops", "sha256": "...", "format": "scikit-learn"},
     "library": "scikit-learn 1.9.1", "converter": "skl2onnx 1.20.0", "runtime": "onnxruntime 1.31.1",
     "data": {"rows": 178, "kind": "given", "file": "wine.csv"}, or {"rows": 1000, "kind": "made", "seed": 0},
     "outputs": [{"name", "datatype", "tolerance", "largest_absolute", "largest_relative", "different", "values"},
                 {"name", "datatype", "flips", "ties", "values"}],
     "notes": ["..."], "load_seconds": 0.004, "bytes": 5120,
     "signatures": [{"name", "method", "rows", "kind"}]}, of a SavedModel; each output has its "signature", too

"outputs" has the first form for numbers, the second for labels. A label that flips is a tie if its two best scores
are equal within the tolerance. Without outputs, nothing could be compared, and the notes say why.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import counted

FILE: Final = "parity.json"
LARGEST: Final = 2**16
"""The most bytes of a report that is read."""
LONGEST: Final = 500


def to_json(report: Mapping[str, Any], indent: int | None = 2) -> bytes:
    return f"{json.dumps(report, indent=indent, ensure_ascii=False)}\n".encode()


def from_json(text: bytes | None) -> dict[str, Any] | None:
    """Returns a report, None for a file that is not one: a listing does not fail because of it."""
    if text is None or len(text) > LARGEST:
        return None
    try:
        found = json.loads(text)
        lines(found)
        json.dumps(found, ensure_ascii=False).encode()  # no page can have lone surrogates
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return dict(found)


def beside(folder: Path) -> list[str]:
    """Returns the lines of the report in a version's folder; none if it has no report."""
    file = folder / FILE
    try:
        report = from_json(file.read_bytes()) if file.is_file() and file.stat().st_size <= LARGEST else None
    except OSError:
        return []
    return [] if report is None else lines(report)


def lines(report: Mapping[str, Any]) -> list[str]:
    """Returns a report for a terminal: its sentence and its notes, each cut to LONGEST characters."""
    return [str(line)[:LONGEST] for line in (sentence(report), *report.get("notes", ()))]


def sentence(report: Mapping[str, Any]) -> str:
    """Returns a report in a line: "wine.skops (scikit-learn 1.9.1) by skl2onnx 1.20.0: 178 rows given, ..."."""
    data, source = report["data"], report["source"]
    parts = (
        [f"{counted(int(data['rows']), 'row')} {data['kind']}", *differences(report)]
        if report["outputs"]
        else ["not compared"]
    )
    parts.append(f"loads in {float(report['load_seconds']) * 1000:.0f} ms")
    return f"{source['file']} ({report['library']}) by {report['converter']}: {', '.join(parts)}"


def differences(report: Mapping[str, Any]) -> list[str]:
    """Returns the largest difference of all numbers, and the number of labels that differ, in words."""
    numbers = [float(each["largest_absolute"]) for each in report["outputs"] if "largest_absolute" in each]
    flips = [int(each["flips"]) for each in report["outputs"] if "flips" in each]
    ties = sum(int(each.get("ties", 0)) for each in report["outputs"])
    found = [f"numbers differ by at most {max(numbers):.2g}"] if numbers else []
    if flips:
        told = f"{counted(sum(flips), 'label')} {'differs' if sum(flips) == 1 else 'differ'}"
        found.append((told if any(flips) else "no labels differ") + (f" ({ties} of them ties)" if ties else ""))
    return found
