"""What every source returns: the ONNX model, and the original that answers the same inputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.records import NamedTuple
from handler.commands.refused import Refused

Arrays = dict[str, NDArray[Any]]
Progress = Callable[[str], None]
"""Takes the words of the step that begins."""
OPSET: Final = 21
"""ONNX Runtime reads it since 1.18. The project needs 1.20."""


class SourceOptions(NamedTuple):
    """What the command line says about the source.

    `examples`: the given data by column, or under "" where its columns have no names.
    """

    allow_pickle: bool = False
    trusted: tuple[str, ...] = ()
    examples: Mapping[str, NDArray[Any]] = MappingProxyType({})

    @property
    def texts(self) -> frozenset[str]:
        """The names of the columns that are text."""
        return frozenset(name for name, array in self.examples.items() if array.dtype.kind in "OSU")


class Domain(NamedTuple):
    """The values that a column can have. `words`: they are words of longer texts."""

    values: Sequence[Any]
    words: bool = False


class LibraryModel(NamedTuple):
    """A model of another library, and what it has become.

    `predict`: takes arrays by the ONNX model's inputs, of the data's own precision; returns the original's answers by
    the ONNX model's outputs. `wide`: whether the original reads FP64 where the ONNX model reads FP32. `gaps`: whether
    it takes NaN for a missing value. `scores`: the output with a number for each class, "" without one.
    `feature_names`: of the elements of the only input. `domains`: what columns can have, by the name of the input, or
    its name and the column's index: "X.3". `notes`: sentences for the parity report. `samples`: (rows, seed) -> inputs,
    where only the format can make them. `encode`: the inputs that stand for texts. `files`: those to publish beside the
    model, by their names there. `settings`: further keys of model-settings.json.
    """

    onnx: bytes
    predict: Callable[[Mapping[str, NDArray[Any]]], Arrays]
    library: str
    converter: str
    kind: str
    wide: bool = False
    gaps: bool = False
    scores: str = ""
    class_labels: Sequence[str] = ()
    feature_names: Sequence[str] = ()
    notes: Sequence[str] = ()
    domains: Mapping[str, Domain] = MappingProxyType({})
    samples: Callable[[int, int], Arrays] | None = None
    encode: Callable[[Sequence[str]], Arrays] | None = None
    files: Mapping[str, Path] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})


def library(name: str, title: str, extra: str) -> Any:
    """Imports a library. Raises Refused with the extra that has it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise Refused(
            f"converting a model of {title} needs {name.partition('.')[0]} ({error}): pip install 'dragoman[{extra}]'"
        ) from None


def versioned(*packages: str) -> str:
    """Returns the first installed one of these packages with its version: "xgboost-cpu 3.2.0"."""
    for package in packages:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return packages[0]


def lowered(threshold: float) -> float:
    """Returns the largest FP32 number that is at most an FP64 threshold.

    An FP32 number is at most the threshold if and only if it is at most this. The nearest FP32 number can lie above the
    threshold, and numbers between the two would go the other way.
    """
    with np.errstate(over="ignore"):
        near = np.float32(threshold)
    return float(np.nextafter(near, np.float32(-np.inf)) if float(near) > threshold else near)


@contextmanager
def refusing(what: str, *, deep: bool = False) -> Iterator[None]:
    """Makes a refusal of whatever a library raises: `what`, and the error in one line. Their errors have no base.

    `deep`: the library wraps its errors in advice; the refusal has the innermost one.
    """
    try:
        yield
    except (Refused, MemoryError):
        raise
    except Exception as error:
        cause: BaseException = error
        while deep and cause.__cause__ is not None:
            cause = cause.__cause__
        raise Refused(f"{what}: {one_line(cause)}") from error


def one_line(error: BaseException) -> str:
    """Returns an error of a library in one line of at most 300 characters."""
    text = " ".join(str(error).split()).partition(" Stack trace:")[0]  # XGBoost's, of its C++ code
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
