"""Files of inputs: .npy arrays, .npz files of them by name, .json values, .csv tables, any other file as its bytes."""

import csv
import io
import json
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np

from core.records import NamedTuple
from handler.commands.refused import Refused
from handler.stores.paths import expanded


class Table(NamedTuple):
    """The cells of a CSV file. `header`: () if its first line is numbers."""

    header: tuple[str, ...]
    cells: list[list[str]]

    def columns(self) -> dict[str, list[Any]]:
        """Returns each column under its name: numbers if all of its cells are."""
        return {name: _column([row[index] for row in self.cells]) for index, name in enumerate(self.header)}

    def rows(self, *, is_text: bool) -> list[list[Any]]:
        """Returns the rows. `is_text`: their cells stay texts."""
        return [list(row) if is_text else [_number(cell) for cell in row] for row in self.cells]


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
    if any(isinstance(_number(cell), str) for cell in lines[0]):
        return Table(tuple(cell.strip() for cell in lines[0]), lines[1:])
    return Table((), lines)


def _column(cells: list[str]) -> list[Any]:
    numbers = [_number(cell) for cell in cells]
    return cells if any(isinstance(number, str) for number in numbers) else numbers


def _number(cell: str) -> Any:
    for read_as in (int, float):
        try:
            return read_as(cell)
        except ValueError:
            continue
    return cell
