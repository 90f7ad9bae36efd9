"""Records that are rows of a Parquet file. What a read decodes to is counted first, so that it stays small."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from core.errors import InvalidInput, ModelNotLoadable, shown
from handler.edge.batch import parquet_pages
from handler.edge.batch.json_lines import LongRecord
from handler.edge.batch.parquet_pages import MalformedPages, RowGroup
from handler.edge.batch.tables import ColumnBlock
from handler.edge.batch.terms import ID, BatchTerms, BlockLimits, RecordBlock

GROUP: Final = 8192
"""The most rows that are read at a time."""
READ_BYTES: Final = 16 * 1024 * 1024
"""The bytes that so many rows may decode to; a single row can have more."""
FREE: Final = 64 * 1024 * 1024
"""Bytes that any row group may decode to at once, because some of its data are decoded as a whole."""
RATIO: Final = 20
"""Beyond FREE, it may decode to that many times its size, as compressed bodies may (core.encoding.compression)."""
WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value in memory. A text is a number of the page's dictionary, and its bytes count with its page."""
LISTS: Final = ("list<", "large_list<", "fixed_size_list<")
DEEPEST: Final = 32
NUMBERS: Final = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double")
)
SCALARS: Final = (
    *NUMBERS,
    "bool",
    "null",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "fixed_size_binary",
    "dictionary",
)
"""The beginnings of the types of numbers and texts."""
Sizes = NDArray[np.int64]
Blocks = Iterator[RecordBlock]


def parquet_rows(file: BinaryIO, limits: BlockLimits, skip: int, _terms: BatchTerms | None = None) -> Blocks:
    """Yields blocks of a Parquet file's rows. Raises InvalidInput; ModelNotLoadable without pyarrow."""
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra, for this form alone
    except ImportError:
        raise ModelNotLoadable("Parquet needs pyarrow: pip install 'dragoman[parquet]'") from None
    try:
        metadata = parquet.read_metadata(file)
        _check(metadata.schema.to_arrow_schema())
        for group, found in enumerate(parquet_pages.groups(file)):
            left, skip = skip, max(0, skip - found.rows)
            if left < found.rows:
                at_once, shared = _reading(metadata.schema, file, group, found)
                # Else pyarrow would write a text of the dictionary out for each row that has it.
                table = parquet.ParquetFile(file, metadata=metadata, read_dictionary=shared)
                yield from _rows(table.iter_batches(at_once, row_groups=[group]), limits, left)
    except (ArrowException, MalformedPages, OSError, ValueError) as error:  # the last one: names that are not UTF-8
        raise InvalidInput(f"the file is not Parquet that pyarrow reads: {str(error)[:256]}") from None


def _check(schema: Any) -> None:
    """Raises InvalidInput for columns that no input takes, or whose texts could be written out without a bound.

    An id may be of any scalar type. A name that two columns have is refused: one of them would be ignored.
    """
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise InvalidInput(f"two columns have the name {shown(twice[0])}; expected a name once")
    for field in schema:
        kind, depth = field.type, 0
        while hasattr(kind, "storage_type") or str(kind).startswith(LISTS):
            kind, depth = kind.storage_type if hasattr(kind, "storage_type") else kind.value_type, depth + 1
        known = field.name == ID or str(kind).startswith(SCALARS)
        if kind.num_fields or depth > DEEPEST or not known:
            told = shown(str(field.type))
            raise InvalidInput(f"column {shown(field.name)} is {told}; expected numbers, texts, or lists of them")


def _rows(batches: Any, limits: BlockLimits, skip: int) -> Blocks:
    """Yields blocks of the batches' rows but the first ones. `skip`: how many these are."""
    for batch in batches:
        left, skip = skip, max(0, skip - batch.num_rows)
        if left < batch.num_rows:
            yield from _blocks(batch.slice(left), limits)


def _reading(schema: Any, file: BinaryIO, number: int, group: RowGroup) -> tuple[int, list[str]]:
    """Returns how many rows of a row group decode to READ_BYTES, and the columns to read as references to a dictionary.

    A page is held as a whole, and so may be all lists of a column, because one row can have them. Raises InvalidInput,
    MalformedPages.
    """
    if len(group.chunks) != len(schema):
        raise MalformedPages(f"row group {number} has {len(group.chunks)} columns; expected {len(schema)}")
    shared = []
    width, held, size, worst = 0.0, 0, 0, (0, "")
    for index, (start, end) in enumerate(group.chunks):
        column, pages = schema.column(index), parquet_pages.counts(file, start, end)
        own = max(WIDTHS.get(column.physical_type, column.length), pages.width)
        if column.physical_type == "BYTE_ARRAY":
            own = max(own, pages.longest)
            shared += [column.path] if pages.is_shared else []
        at_once = pages.largest + (int(pages.values * own) if column.max_repetition_level else 0)
        worst = max(worst, (at_once, column.path))
        held, size = held + at_once, size + pages.size
        width += own * max(1.0, pages.values / max(1, group.rows))
    if held > max(FREE, RATIO * size):
        most = f"{FREE}, or {RATIO} times its size: write fewer rows to a row group"
        raise InvalidInput(
            f"row group {number} has {size} bytes, and can decode to {held} bytes at once, {worst[0]} of them in "
            f"column {shown(worst[1])}; expected at most {most}"
        )
    return max(1, min(GROUP, int(READ_BYTES / max(1.0, width)))), shared


def _blocks(batch: Any, limits: BlockLimits) -> Blocks:
    """Yields blocks of a batch's rows, each with READ_BYTES at most, or one row."""
    columns: dict[str, Any] = {}
    sizes: Sizes = np.zeros(batch.num_rows, np.int64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name], own = _values(column)
        sizes += own
    ends, long = np.cumsum(sizes), sizes > limits.record_bytes
    start = 0
    while start < batch.num_rows:
        if long[start]:
            yield LongRecord(limits.record_bytes)
            start += 1
            continue
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + READ_BYTES, "right")))
        end = min(end, start + limits.records)
        if long[start:end].any():
            end = start + int(long[start:end].argmax())
        yield ColumnBlock({name: values[start:end] for name, values in columns.items()}, end - start)
        start = end


def _values(column: Any) -> tuple[Any, Sizes | int]:
    """Returns a column's values, and the bytes of each: numbers, and equally long lists of them, as an array."""
    column = getattr(column, "storage", column)
    if hasattr(column.type, "index_type"):
        return _texts(column)
    if hasattr(column, "value_lengths"):
        return _lists(column)
    if column.null_count or str(column.type) not in NUMBERS:
        return column.to_pylist(), column.nbytes // max(1, len(column))
    numbers = column.to_numpy(zero_copy_only=False)
    return numbers, numbers.itemsize


def _texts(column: Any) -> tuple[list[Any], Sizes]:
    """Returns the texts of a column with a dictionary, and their bytes; equal texts once if all are large together."""
    dictionary = column.dictionary
    kind = np.dtype(np.int64 if str(dictionary.type).startswith("large_") else np.int32)
    lengths = np.append(np.diff(_whole(dictionary, kind, len(dictionary) + 1)), 0)
    places = np.where(column.is_valid(), _whole(column.indices, np.dtype(np.int32), len(column)), -1)
    if places.min(initial=0) < -1 or places.max(initial=-1) >= len(dictionary):
        raise MalformedPages("a text is not in its page's dictionary")
    sizes = lengths[places].astype(np.int64)
    if sizes.sum() <= READ_BYTES:
        return column.dictionary_decode().to_pylist(), sizes
    known = {index: None if index < 0 else dictionary[index].as_py() for index in set(places.tolist())}
    return [known[index] for index in places.tolist()], sizes


def _whole(array: Any, kind: np.dtype[Any], count: int) -> Any:
    """Returns the whole numbers in an array's second buffer: its values, or where its texts begin and end."""
    buffer = array.buffers()[1]
    return np.zeros(count, kind) if buffer is None else np.frombuffer(buffer, kind, count, array.offset * kind.itemsize)


def _lists(column: Any) -> tuple[Any, Sizes]:
    flat = column.flatten()
    values, own = _values(flat)
    counts = np.array([count or 0 for count in column.value_lengths().to_pylist()], np.int64)
    ends = np.cumsum(counts)
    sums = np.concatenate(([0], np.cumsum(np.broadcast_to(np.asarray(own, np.int64), len(flat)))))
    sizes = sums[ends] - sums[ends - counts]
    if isinstance(values, np.ndarray) and not column.null_count and len(set(counts.tolist())) == 1:
        return values.reshape(len(column), int(counts[0]), *values.shape[1:]), sizes
    lists = values.tolist() if isinstance(values, np.ndarray) else values
    missing = column.is_null().to_pylist() if column.null_count else None
    pairs = zip((ends - counts).tolist(), ends.tolist(), strict=True)
    rows = [lists[start:end] for start, end in pairs]
    return [None if missing and missing[n] else row for n, row in enumerate(rows)], sizes
