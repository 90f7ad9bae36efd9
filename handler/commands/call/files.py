"""Files of inputs: .npy arrays, .npz files of them by name, .json values, .csv tables, any other file as its bytes."""

import csv
import io
import json
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np

from core.dialects.platforms.table import are_names, has_plain_digits
from core.records import NamedTuple
from handler.commands.refused import Refused
from handler.stores.paths import expanded


class Cells(NamedTuple):
    """Cells of a CSV file, as they are written. `shape`: of the tensor that they become."""

    texts: list[str]
    shape: tuple[int, ...]

    def numbers(self) -> list[Any]:
        """Returns the cells as numbers. Others stay texts, and so do digits that no double can hold."""
        return [_number(text) for text in self.texts]

    @property
    def are_texts(self) -> bool:
        """Whether one of the cells is not a number."""
        return any(isinstance(number, str) for number in self.numbers())


class Table(NamedTuple):
    """The lines of a CSV file, with equal numbers of cells. There is at least one."""

    lines: list[list[str]]

    @property
    def first(self) -> tuple[str, ...]:
        """The cells of the first line, as names."""
        return tuple(cell.strip() for cell in self.lines[0])

    def is_named(self, inputs: frozenset[str], *, has_texts: bool) -> bool:
        """Decides whether the first line has names, as in a batch. `inputs`: the names of the model's inputs."""
        return len(self.lines) > 1 and are_names(self.first, inputs, has_texts=has_texts)

    def columns(self) -> list[tuple[str, Cells]]:
        """Returns the columns below a first line of names, with their names."""
        rows = self.lines[1:]
        return [(name, Cells([row[index] for row in rows], (len(rows),))) for index, name in enumerate(self.first)]

    def rows(self, *, is_named: bool) -> Cells:
        """Returns all cells. `is_named`: except those of the first line."""
        rows = self.lines[is_named:]
        return Cells([cell for row in rows for cell in row], (len(rows), len(self.first)))


def read(path: Path) -> Any:
    """Returns a file's content: an array, arrays by name, a value, a Table, or bytes. Raises Refused."""
    try:
        content = expanded(path).read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    kind = path.suffix.lower()
    try:
        if kind == ".npy":
            return np.load(io.BytesIO(content), allow_pickle=False)
        if kind == ".npz":
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        if kind == ".json":
            return parsed(content)
        return _table(content.decode("utf-8-sig")) if kind == ".csv" else content
    except Exception as error:  # noqa: BLE001 - numpy's, zipfile's, zlib's, and MemoryError have no common base below this
        raise Refused(f"{path} is not a {kind} file that can be read: {str(error)[:256]}") from None


def parsed(text: str | bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError, also for a number that no double can hold."""
    return json.loads(text, parse_float=_finite)


def _finite(text: str) -> float:
    found = float(text)
    if isinf(found):
        raise ValueError(f"{text[:64]} is out of range")
    return found


def _table(text: str) -> Table:
    lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    if not lines:
        raise ValueError("it is empty")
    width = len(lines[0])
    odd = next((index for index, line in enumerate(lines, 1) if len(line) != width), None)
    if odd is not None:
        raise ValueError(f"row {odd} has {len(lines[odd - 1])} cells; expected {width}")
    return Table(lines)


def _number(cell: str) -> Any:
    """Returns a cell's number; the cell if it has none, or digits that no double can hold."""
    if not has_plain_digits(cell):
        return cell
    for read_as in (int, float):
        try:
            found = read_as(cell)
        except ValueError:
            continue
        return found if isinstance(found, int) or not isinf(found) or {"i", "I"} & set(cell) else cell
    return cell
