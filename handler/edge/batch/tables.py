"""Records that are rows of a table: CSV, numpy arrays, Parquet. A column is an input, or an element of the only one."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dialects.platforms.table import are_names, has_plain_digits
from core.dialects.v1 import bulk
from core.dialects.v1.inputs import Bindings
from core.dtype import BOOL, BYTES, DataType
from core.errors import InvalidInput, shown
from core.signature import Binding
from handler.edge.batch.ranges import bound, bound_table
from handler.edge.batch.terms import ID, BatchTerms, RecordCall, predictions

TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}


class ArrayBlock:
    """Rows of an array, each a value of the model's only input."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.ids: list[Any] | None = None

    def __len__(self) -> int:
        return len(self._array)

    def part(self, start: int, end: int) -> "ArrayBlock":
        return ArrayBlock(self._array[start:end])

    def call(self, terms: BatchTerms) -> RecordCall:
        return predictions(bound(bulk.as_values(self._array), terms), None, terms)


class ColumnBlock:
    """Rows of columns by name, each an array or a list."""

    def __init__(self, columns: Mapping[str, Any], count: int) -> None:
        self._columns = columns
        self._count = count
        self.ids: list[Any] | None = None

    def __len__(self) -> int:
        return self._count

    def part(self, start: int, end: int) -> "ColumnBlock":
        return ColumnBlock({name: column[start:end] for name, column in self._columns.items()}, end - start)

    def call(self, terms: BatchTerms) -> RecordCall:
        columns = dict(self._columns)
        if ID in columns and terms.has_ids:
            self.ids = list(bulk.as_values(columns.pop(ID)))
        if (only := _only(columns, terms.bindings)) is not None and columns:
            values = _flat(_matrix([*columns.values()], _datatype(only)), only)
            rows = bound(values, terms)
        else:
            table = {name: bulk.as_values(column) for name, column in columns.items()}
            rows = bound_table(table, self._count, terms)
        return predictions(rows, self.ids, terms)


class CsvBlock:
    """Records of a CSV file, each with its line ends. `header`: () for a file without one."""

    def __init__(self, records: Sequence[bytes], header: Sequence[str]) -> None:
        self._records = records
        self._header = header
        self.ids: list[Any] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def part(self, start: int, end: int) -> "CsvBlock":
        return CsvBlock(self._records[start:end], self._header)

    def call(self, terms: BatchTerms) -> RecordCall:
        header = [*self._header]
        place = header.index(ID) if ID in header and terms.has_ids else None
        if place is not None:
            header.remove(ID)
        bindings = terms.bindings
        only = _only(header, bindings)
        if header and only is None:
            kinds = [_datatype((bindings or {}).get(name)) for name in header]
            rows = bound_table(self._table(header, kinds, place), len(self), terms)
        else:
            rows = bound(_flat(self._matrix(_datatype(only), place), only), terms)
        return predictions(rows, self.ids, terms)

    def _table(self, header: Sequence[str], kinds: Sequence[DataType | None], place: int | None) -> dict[str, Any]:
        """Returns the columns by name. Raises InvalidInput."""
        numbers = self._numbers(place) if all(kind is not None and _is_real(kind) for kind in kinds) else None
        if numbers is not None:
            return dict(zip(header, numbers.astype(np.float64).T, strict=True))
        columns = zip(header, zip(*self._cells_without(place), strict=True), kinds, strict=True)
        return {name: typed(column, kind, name) for name, column, kind in columns}

    def _matrix(self, datatype: DataType | None, place: int | None) -> Any:
        """Returns the rows of the only input. Raises InvalidInput."""
        numbers = None if datatype in (BYTES, BOOL) else self._numbers(place)
        if numbers is not None and datatype is not None and _is_real(datatype):
            return numbers.astype(np.float64)
        if numbers is not None and (datatype is None or numbers.dtype.kind in "iu"):
            return numbers
        return _numbers(self._cells_without(place), datatype)

    def _numbers(self, place: int | None) -> NDArray[Any] | None:
        """Returns the cells as one array, if JSON would read them alike: a tenth of the time that csv takes.

        `place`: of the column of ids; only a first or last one is cut off here.
        """
        records, last = self._records, len(self._header) - 1
        if place not in (None, 0, last) or b'"' in b"".join(records):
            return None
        ids: Sequence[bytes] = ()
        if place is not None:
            cut = bytes.rpartition if place else bytes.partition
            parts = [cut(record, b",") for record in records]
            records, ids = ([part[end] for part in parts] for end in ((0, -1) if place else (-1, 0)))
        numbers = bulk.numbers(records)
        if numbers is None or (self._header and numbers.shape[1] != last + (place is None)):
            return None
        if place is not None:
            try:
                self.ids = [own.decode().removesuffix("\r") for own in ids]
            except UnicodeDecodeError:
                return None
        return numbers

    def _cells_without(self, place: int | None) -> list[list[str]]:
        """Returns the rows' cells, and keeps the ids at a place. Raises InvalidInput."""
        cells = self._cells()
        if place is not None:
            self.ids = [row.pop(place) for row in cells]
        return cells

    def _cells(self) -> list[list[str]]:
        """Returns the rows' cells. Raises InvalidInput."""
        try:
            cells = [*csv.reader([record.decode() for record in self._records], strict=True)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidInput(f"the record is not CSV in UTF-8: {error}") from None
        width = len(self._header) or len(cells[0])
        odd = next((row for row in cells if len(row) != width), None)
        if odd is not None or len(cells) != len(self._records):
            raise InvalidInput(f"the record has {len(odd or ())} cells; expected {width}")
        return cells


def header_of(record: bytes, terms: BatchTerms) -> tuple[str, ...]:
    """Returns the names in the first record of a CSV file, () if it is a row. Raises ValueError."""
    bindings = terms.bindings or {}
    cells = tuple(cell.strip() for cell in next(csv.reader([record.decode("utf-8-sig")]), []))
    has_texts = BYTES in map(_datatype, bindings.values())
    return cells if cells and are_names(cells, frozenset((*bindings, ID)), has_texts=has_texts) else ()


def _only(columns: Iterable[str], bindings: Bindings) -> Binding | None:
    """Returns the model's only input, if the columns are its elements: no column has its name."""
    if bindings is None:
        return None
    required = [binding for binding in bindings.values() if binding.required] or [*bindings.values()]
    return None if len(required) != 1 or not set(bindings).isdisjoint(columns) else required[0]


def _datatype(binding: Binding | None) -> DataType | None:
    return None if binding is None else BYTES if binding.encoded else binding.spec.datatype


def _is_real(datatype: DataType) -> bool:
    return datatype.is_float or datatype.name == "BF16"


def _flat(values: Any, only: Binding | None) -> Any:
    """Returns rows of one cell as scalars, unless the input has more axes than that of the rows."""
    shape = None if only is None else only.spec.shape
    if np.shape(values)[1:] != (1,) or (shape is not None and len(shape) != 1):
        return values
    return [row[0] for row in values] if isinstance(values, list) else values.reshape(-1)


def typed(cells: Sequence[str], datatype: DataType | None, name: str | None) -> Any:
    """Returns cells as values of the datatype; of an unknown one: numbers if all of them are. Raises InvalidInput.

    `name`: of the cells' column, None for cells of a row.
    """
    if datatype is BYTES:
        return list(cells)
    if datatype is BOOL:
        values = [TRUTH.get(cell.strip().lower()) for cell in cells]
        if None in values:
            raise InvalidInput(f"{_named(name)} is {shown(cells[values.index(None)])}; expected true or false")
        return values
    try:
        return _parsed(cells, datatype)
    except ValueError:
        if datatype is None:
            return list(cells)
        wrong = next((cell for cell in cells if not _fits(cell, datatype)), "")
        raise InvalidInput(f"{_named(name)} is {shown(wrong)}; expected {datatype.name}") from None


def _named(column: str | None) -> str:
    return "a cell" if column is None else f"column {shown(column)}"


def _fits(cell: str, datatype: DataType) -> bool:
    try:
        _parsed([cell], datatype)
    except ValueError:
        return False
    return True


def _parsed(cells: Any, datatype: DataType | None) -> Any:
    """Returns texts as numbers: int64 or uint64 for whole ones, else double. Raises ValueError.

    `cells`: texts, or rows of texts.
    """
    texts = chain.from_iterable(cells) if cells and isinstance(cells[0], list) else cells
    if not has_plain_digits("".join(map(str.strip, texts))):
        raise ValueError(cells)
    if datatype is not None and _is_real(datatype):
        return _doubles(cells)
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(cells, dtype)
        except (ValueError, OverflowError):
            continue
    if datatype is not None:
        raise ValueError(cells)
    return _doubles(cells)


def _doubles(cells: Any) -> NDArray[np.float64]:
    """Returns texts as doubles. Raises ValueError, also for digits that no double can hold, as JSON's readers do."""
    values = np.array(cells, np.float64)
    infinite = np.array(cells, object)[np.isinf(values)]
    if any(not set("iI") & set(text) for text in infinite):
        raise ValueError(cells)
    return values


def _numbers(cells: list[list[str]], datatype: DataType | None) -> Any:
    """Returns rows of numbers as one array, and of texts as lists. Raises InvalidInput."""
    if datatype is BYTES or datatype is BOOL:
        return [typed(row, datatype, None) for row in cells]
    try:
        return _parsed(cells, datatype)
    except ValueError:
        return [list(typed(row, datatype, None)) for row in cells]


def _matrix(columns: Sequence[Any], datatype: DataType | None) -> Any:
    """Returns columns of scalars as the rows of the only input."""
    if datatype is BYTES or datatype is BOOL:
        return [list(row) for row in zip(*map(bulk.as_values, columns), strict=True)]
    try:
        arrays = [np.asarray(bulk.as_values(column)) for column in columns]
        kinds = {array.dtype.kind for array in arrays}
        is_exact = datatype is not None and _is_real(datatype)  # in doubles, as JSON's whole numbers are read for it
        if len(kinds - {"b"}) > 1 and (kinds & {"U", "S"} or not is_exact):
            arrays = [array.astype(object) for array in arrays]  # numpy would make texts, or doubles, of all of them
        return bulk.as_values(np.column_stack(arrays))
    except ValueError:
        raise InvalidInput("the columns are of different shapes; expected a number in each") from None
