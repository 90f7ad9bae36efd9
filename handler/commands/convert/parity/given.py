"""Reads `--data`: rows that the publisher has, as arrays for the model's inputs. FP64 stays FP64."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dialects.platforms.table import are_names, values
from core.dtype import BOOL, BY_ONNX, BYTES
from core.encoding.values import listed
from core.errors import counted, escaped, shown
from core.records import NamedTuple
from handler.backends.onnx_file import Value
from handler.commands.call import files
from handler.commands.refused import Refused

SUFFIXES: Final = (".csv", ".npy", ".npz")
MOST_ROWS: Final = 10_000


class GivenData(NamedTuple):
    """`columns`: by name, of a CSV file with a first line of names, and of .npz. `matrix`: of the other files.

    The cells of a CSV file are texts, as they are written: "01234" is a category of some models, a number of others.
    """

    path: Path
    columns: Mapping[str, NDArray[Any]]
    matrix: NDArray[Any] | None

    @property
    def name(self) -> str:
        """The file's name, as a report can have it: some names have bytes that are not UTF-8."""
        return escaped(self.path.name)

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The columns, and the matrix under the name "". Cells that are all numbers are numbers."""
        found = self.columns if self.matrix is None else {"": self.matrix}
        return {name: numbers(array) for name, array in found.items()}


def read(path: Path) -> GivenData:
    """Reads at most MOST_ROWS rows. Raises Refused."""
    if path.suffix.lower() not in SUFFIXES:
        raise Refused(f"--data is {path}; expected a file of {', '.join(SUFFIXES)}")
    content = files.read(path)
    if isinstance(content, files.Table):
        has_names = any(map(_is_name, content.first))
        if has_names and len(content.lines) == 1:
            raise Refused(f"--data {path} has a line of names and no rows")
        cells = np.array(content.lines[has_names:][:MOST_ROWS], object)
        return (
            GivenData(path, dict(zip(content.first, cells.T, strict=True)), None)
            if has_names
            else GivenData(path, {}, cells)
        )
    arrays = content if isinstance(content, dict) else {"": content}
    for name, array in arrays.items():
        if not array.ndim or array.dtype.kind not in "biufUS":
            what = f"array {shown(name)}" if name else "it"
            kind = f"{array.dtype} {list(array.shape)}"
            raise Refused(f"--data {path}: {what} is {kind}; expected rows of numbers or text")
    arrays = {name: array[:MOST_ROWS] for name, array in arrays.items()}
    return GivenData(path, {}, arrays[""]) if "" in arrays else GivenData(path, arrays, None)


def _is_name(cell: str) -> bool:
    """Decides whether a cell of the first line is neither a number nor a missing one."""
    return are_names((cell,), frozenset(), has_texts=False)


def numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the numbers of cells, NaN for an empty one; the array itself if one is not a number."""
    if array.dtype != object:
        return array
    found = values(array.reshape(-1).tolist(), BOOL)  # BOOL, so that True and False are numbers, as in a DataFrame
    if any(isinstance(each, str) for each in found):
        return array
    try:
        return np.array([np.nan if each is None else each for each in found], np.float64).reshape(array.shape)
    except (TypeError, OverflowError):  # digits beyond every double
        return array


def sentences(given: GivenData) -> list[str]:
    """Returns the first column of texts. Raises Refused if there is none."""
    for array in given.arrays.values():
        if array.dtype.kind in "OSU":
            return [str(each) for each in texts(array).reshape(len(array), -1)[:, 0].tolist()]
    raise Refused(f"--data {given.path} has no texts, which this model takes")


def feed(given: GivenData, inputs: Sequence[Value], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Returns arrays for the inputs. `names`: of the only input's columns. Raises Refused if they do not fit."""
    if len(inputs) == 1 and inputs[0].name not in given.columns:
        found = {inputs[0].name: _only(given, inputs[0], names)}
    else:
        found = _named(given, [value.name for value in inputs])
    fitted = {value.name: _fitted(given, value, found[value.name]) for value in inputs}
    counts = {len(array) for array in fitted.values()}
    if len(counts) != 1 or 0 in counts:
        raise Refused(f"--data {given.path} has arrays of {sorted(counts)} rows; expected equal numbers")
    return fitted


def _named(given: GivenData, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Returns these columns. Raises Refused with the missing ones: by place, they could be other features."""
    missing = [f"no column {shown(name)}" for name in names if name not in given.columns]
    if missing:
        raise Refused(f"--data {given.path} has {', '.join(missing)[:300]}; it has {shown(list(given.columns))}")
    return {name: given.columns[name] for name in names}


def _only(given: GivenData, value: Value, names: Sequence[str]) -> NDArray[Any]:
    """Returns the array of a model with one input: the columns of its features, all if it does not know their names."""
    if given.matrix is not None:
        return given.matrix
    columns = dict(given.columns)
    if len(columns) == 1 and (only := next(iter(columns.values()))).ndim == len(value.shape or ()):
        return only  # .npz has names for arrays, and this one is the input
    if names:
        columns = _named(given, names)
    if value.element == BYTES.onnx and len(value.shape or ()) == 1:
        columns = dict(list(columns.items())[:1])
    width = (value.shape or (-1, -1))[-1]
    if len(value.shape or ()) == 2 and width not in (-1, len(columns)):  # noqa: PLR2004 - a matrix
        raise Refused(f"--data {given.path} has {counted(len(columns), 'column')}; expected the {width} features")
    return np.stack(list(columns.values()), axis=1)


def _fitted(given: GivenData, value: Value, array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array of the input's rank and kind of elements. Raises Refused."""
    shape = value.shape
    if shape is not None and array.ndim != len(shape) and array.size == len(array) and len(shape) in (1, 2):
        array = array.reshape(len(array), *[1] * (len(shape) - 1))
    if shape is not None and (
        array.ndim != len(shape)
        or any(want not in (-1, size) for want, size in zip(shape[1:], array.shape[1:], strict=True))
    ):
        wanted = f"input {value.name!r} is {list(shape)}"
        raise Refused(f"--data {given.path}: {wanted}, and the rows are {list(array.shape)}")
    if value.element == BYTES.onnx:
        return texts(array)
    found = numbers(array)
    if found.dtype.kind in "OSU":
        text = next(each for each in found.flat if numbers(np.array([each], found.dtype)).dtype.kind in "OSU")
        what = f"input {value.name!r} is {BY_ONNX[value.element].name}"
        raise Refused(f"--data {given.path}: {what}, and the rows have text, such as {shown(text)}")
    return found


def texts(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the elements as objects of str, as ONNX Runtime reads them."""
    flat = [each.decode() if isinstance(each, bytes) else str(each) for each in listed(array.reshape(-1))]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)
