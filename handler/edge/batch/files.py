"""Reads files of records as blocks: JSON lines, CSV, numpy arrays, Parquet. Any prefix of records can be left out."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from core.errors import InvalidInput, shown
from handler.edge.batch.json_lines import JsonBlock, LongRecord
from handler.edge.batch.tables import ArrayBlock, ColumnBlock, CsvBlock, header_of
from handler.edge.batch.terms import RecordBlock

BLOCK_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of the records of one block; one record may have more."""
BOM: Final = b"\xef\xbb\xbf"


class BlockLimits(NamedTuple):
    """`records`: the most in one block. `record_bytes`: the most of a record; a longer one is refused, and not kept."""

    records: int
    record_bytes: int


Blocks = Iterator[RecordBlock]


def json_lines(file: BinaryIO, limits: BlockLimits, skip: int) -> Blocks:
    """Yields blocks of the lines that are not blank."""
    return _blocks(islice(_texts(file, limits.record_bytes), skip, None), limits, JsonBlock)


def _texts(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    for line in _lines(file, most):
        text = line and line.strip()
        if text != b"":
            yield text


def _lines(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Yields lines with their ends, None for one of more than `most` bytes, which is not kept."""
    first = file.readline(most + 1).removeprefix(BOM)
    for line in chain([first] if first else [], iter(partial(file.readline, most + 1), b"")):
        if len(line) <= most:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(most)  # noqa: PLW2901 - what follows of it
        yield None


def _blocks(records: Iterator[bytes | None], limits: BlockLimits, make: Callable[[Sequence[bytes]], Any]) -> Blocks:
    kept: list[bytes] = []
    size = 0
    for record in records:
        if record is not None:
            kept.append(record)
            size += len(record)
        if kept and (record is None or len(kept) >= limits.records or size >= BLOCK_BYTES):
            yield make(kept)
            kept, size = [], 0
        if record is None:
            yield LongRecord(limits.record_bytes)
    if kept:
        yield make(kept)


def csv_records(file: BinaryIO, limits: BlockLimits, skip: int) -> Blocks:
    """Yields blocks of a CSV file's records. Raises InvalidInput for a first line that is not CSV."""
    records = _csv(file, limits.record_bytes)
    first = next(records, b"")
    try:
        header = header_of(first or b"")
    except (ValueError, RuntimeError) as error:
        raise InvalidInput(f"the first line is not CSV in UTF-8: {error}") from None
    if len(set(header)) != len(header):
        raise InvalidInput(f"the first line is {shown(list(header))}; expected a name once")
    if not header and first:
        records = _again(first, records)
    return _blocks(islice(records, skip, None), limits, lambda kept: CsvBlock(kept, header))


def _again(first: bytes, records: Iterator[bytes | None]) -> Iterator[bytes | None]:
    yield first
    yield from records


def _csv(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Yields records, None for one that is too long. A record goes on behind a line that ends inside of quotes."""
    pieces: list[bytes] = []
    size = quotes = 0
    for line in _lines(file, most):
        size += most + 1 if line is None else len(line)
        text = line or b""
        quotes += text.count(b'"')
        if size <= most:
            pieces.append(text)
        if quotes % 2 == 0:
            yield from _joined(pieces, is_whole=size <= most)
            pieces, size, quotes = [], 0, 0
    yield from _joined(pieces, is_whole=size <= most)


def _joined(pieces: Sequence[bytes], *, is_whole: bool) -> Iterator[bytes | None]:
    """Yields the record of some lines, None if it is too long; nothing for a blank one."""
    record = b"".join(pieces)
    if not is_whole:
        yield None
    elif record.strip():
        yield record


def array_rows(file: BinaryIO, limits: BlockLimits, skip: int) -> Blocks:
    """Yields blocks of an array's rows. The array of a file on this machine is not read as a whole.

    Raises InvalidInput for what is not an array of numbers, of texts or of columns.
    """
    try:
        name = getattr(file, "name", None)
        array: Any = np.load(name or file, mmap_mode="r" if name else None, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InvalidInput(f"the file is not an array that numpy reads: {str(error)[:256]}") from None
    if not isinstance(array, np.ndarray) or not array.ndim:
        raise InvalidInput("the file is not an array with rows")
    for start in range(skip, len(array), limits.records):
        rows = array[start : start + limits.records]
        if rows.dtype.names:
            yield ColumnBlock({name: rows[name] for name in rows.dtype.names}, len(rows))
        else:
            yield ArrayBlock(rows)


def parquet_rows(file: BinaryIO, limits: BlockLimits, skip: int) -> Blocks:
    """Yields blocks of a Parquet file's rows. Raises InvalidInput, also without pyarrow."""
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra, for this form alone
    except ImportError:
        raise InvalidInput("Parquet needs pyarrow: pip install 'dragoman[parquet]'") from None
    left = skip
    try:
        table = parquet.ParquetFile(file)
        for batch in table.iter_batches(limits.records):
            rows = batch.slice(left)
            left -= batch.num_rows - rows.num_rows
            if rows.num_rows:
                yield ColumnBlock({name: _column(rows.column(name)) for name in rows.schema.names}, rows.num_rows)
    except ArrowException as error:
        raise InvalidInput(f"the file is not Parquet that pyarrow reads: {str(error)[:256]}") from None


def _column(column: Any) -> Any:
    """Returns a column of numbers, or of equally long lists of them, as an array, and every other one as a list."""
    lists = hasattr(column, "flatten") and str(column.type).startswith(("list", "fixed_size_list", "large_list"))
    values = column.flatten() if lists else column
    if column.null_count or values.null_count or str(values.type) not in NUMBERS:
        return column.to_pylist()
    numbers = values.to_numpy(zero_copy_only=False)
    if not lists:
        return numbers
    if len(set(column.value_lengths().to_pylist())) != 1:
        return column.to_pylist()
    return numbers.reshape(len(column), -1)


NUMBERS: Final = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double")
)
FORMATS: Final[dict[str, Callable[[BinaryIO, BlockLimits, int], Blocks]]] = {
    "jsonl": json_lines,
    "csv": csv_records,
    "npy": array_rows,
    "parquet": parquet_rows,
}
"""THE table of the forms of files, by the names that `--format` takes."""
SUFFIXES: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".npy": "npy", ".parquet": "parquet"}
