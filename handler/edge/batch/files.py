"""Reads files of records as blocks: JSON lines, CSV, numpy arrays, Parquet. Any prefix of records can be left out."""

import csv
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from typing import Any, BinaryIO, Final

import numpy as np

from core.encoding.csv_record import RECORD
from core.errors import InvalidInput, shown
from handler.edge.batch.json_lines import JsonBlock, LongRecord
from handler.edge.batch.parquet import parquet_rows
from handler.edge.batch.tables import ArrayBlock, ColumnBlock, CsvBlock, header_of
from handler.edge.batch.terms import BatchTerms, BlockLimits, RecordBlock

PIECE: Final = 1024 * 1024
"""Bytes that are read at a time."""
BLOCK_BYTES: Final = 4 * PIECE
"""The most bytes of the records of one block; a single record can have more."""
BOM: Final = b"\xef\xbb\xbf"


Blocks = Iterator[RecordBlock]
Records = Iterator[list[bytes] | None]
"""Records, many at a time, because work on each of them is what takes time; None is one that is too long."""


def json_lines(file: BinaryIO, limits: BlockLimits, skip: int, _terms: BatchTerms | None = None) -> Blocks:
    """Yields blocks of the lines that are not blank."""
    lines = _lines(file, limits.record_bytes)
    records = (some and [*filter(None, map(bytes.strip, some))] for some in lines)
    return _blocks(records, limits, skip, JsonBlock)


def _lines(file: BinaryIO, most: int) -> Records:
    """Yields lines without their ends. None is a line of more than `most` bytes, which is not kept."""
    rest, is_long = b"", False
    for number, piece in enumerate(iter(partial(file.read, PIECE), b"")):
        text = rest + (piece if number else piece.removeprefix(BOM))
        *lines, rest = text.split(b"\n")
        if lines and is_long:  # the end of a long line
            lines, is_long = lines[1:], False
            yield None
        if len(text) <= most or max(map(len, lines), default=0) <= most:
            yield lines
        else:
            yield from ([line] if len(line) <= most else None for line in lines)
        is_long = is_long or len(rest) > most
        rest = b"" if is_long else rest
    yield None if is_long else [rest]


def _blocks(records: Records, limits: BlockLimits, skip: int, make: Callable[[Sequence[bytes]], Any]) -> Blocks:
    """Yields blocks of all records but the first ones. `skip`: how many these are."""
    kept: list[bytes] = []
    for some in records:
        count = 1 if some is None else len(some)
        left, skip = skip, max(0, skip - count)
        if left >= count:
            continue
        kept += some[left:] if some is not None else ()
        yield from map(make, cut(kept, limits.records, is_last=some is None))
        if some is None:
            yield LongRecord(limits.record_bytes)
    yield from map(make, cut(kept, limits.records, is_last=True))


def cut(kept: list[bytes], most: int, *, is_last: bool) -> Iterator[list[bytes]]:
    """Yields the records of full blocks, then removes them from `kept`. `is_last`: a block need not be full.

    Copies each record once: a piece of short records has many thousand blocks if `most` is small.
    """
    start = 0
    while (left := len(kept) - start) and (
        is_last or left >= most or sum(map(len, islice(kept, start, None))) >= BLOCK_BYTES
    ):
        block = _fitting(kept[start : start + most])
        start += len(block)
        yield block
    del kept[:start]


def _fitting(records: list[bytes]) -> list[bytes]:
    """Returns the first records that have BLOCK_BYTES together; one if it has more."""
    if sum(map(len, records)) <= BLOCK_BYTES:
        return records
    return records[: max(1, bisect_right([*accumulate(map(len, records))], BLOCK_BYTES))]


def csv_records(file: BinaryIO, limits: BlockLimits, skip: int, terms: BatchTerms) -> Blocks:
    """Yields blocks of a CSV file's records. Raises InvalidInput for a first record that is not CSV."""
    records = filter(lambda some: some != [], _csv(file, limits.record_bytes))
    first = next(records, None) or [b""]
    try:
        header = header_of(first[0], terms)
    except (ValueError, csv.Error) as error:
        raise InvalidInput(f"the first line is not CSV in UTF-8: {error}") from None
    if len(set(header)) != len(header):
        raise InvalidInput(f"the first line is {shown(list(header))}; expected a name once")
    first = first[1:] if header or first == [b""] else first
    return _blocks(chain([first], records), limits, skip, lambda kept: CsvBlock(kept, header))


def _csv(file: BinaryIO, most: int) -> Records:
    """Yields records. After a line that ends inside of quotes, the record continues."""
    opened: list[bytes] = []
    size = 0
    for lines in _lines(file, most):
        if lines is not None and not opened and b'"' not in b"".join(lines):
            yield [*filter(bytes.strip, lines)]
            continue
        for line in [None] if lines is None else lines:
            size += most + 1 if line is None else len(line) + 1
            is_end = line is None or RECORD.fullmatch(b'"' + line if opened else line) is not None
            if size <= most or not opened:
                opened.append(line or b"")
            if is_end:
                yield _joined(opened) if size <= most else None
                opened, size = [], 0
    if opened:
        yield _joined(opened) if size <= most else None


def _joined(lines: Sequence[bytes]) -> list[bytes]:
    """Returns the record of some lines; none for a blank one."""
    record = b"\n".join(lines)
    return [record] if record.strip() else []


def array_rows(file: BinaryIO, limits: BlockLimits, skip: int, _terms: BatchTerms | None = None) -> Blocks:
    """Yields blocks of an array's rows. The array of a file on this machine is not read as a whole.

    Raises InvalidInput unless it is an array of numbers, of texts or of columns.
    """
    name, numpy = getattr(file, "name", None), np.lib.format
    try:
        with np.errstate(over="ignore"):  # a header can claim any size: numpy would warn before it refuses
            array: Any = numpy.open_memmap(name, mode="r") if name else numpy.read_array(file, allow_pickle=False)
    except Exception as error:  # noqa: BLE001 - numpy's, tokenize's, and MemoryError have no common base below this
        raise InvalidInput(f"the file is not an array that numpy reads: {str(error)[:256]}") from None
    if not array.ndim:
        raise InvalidInput("the file is not an array with rows")
    start = skip
    while start < len(array):
        rows = array[start : start + limits.records]
        start += len(rows)
        file.seek(array.nbytes * start // len(array))  # for the progress: reading mapped memory does not move the file
        if rows.dtype.names:
            yield ColumnBlock({name: rows[name] for name in rows.dtype.names}, len(rows))
        else:
            yield ArrayBlock(rows)


FORMATS: Final[dict[str, Callable[[BinaryIO, BlockLimits, int, BatchTerms], Blocks]]] = {
    "jsonl": json_lines,
    "csv": csv_records,
    "npy": array_rows,
    "parquet": parquet_rows,
}
"""THE table of the forms of files, by the names that `--format` takes."""
SUFFIXES: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".npy": "npy", ".parquet": "parquet"}
