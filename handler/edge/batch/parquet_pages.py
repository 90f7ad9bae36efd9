"""The pages of a Parquet file, counted before they are decoded: a file of 600 bytes can decode to 200 MB.

The reader goes by the headers of pages, which pyarrow does not show. It shows where a column's pages are, but a damaged
footer ends the process there (pyarrow 26). Source: the format's parquet.thrift (FileMetaData, PageHeader), and Thrift's
compact protocol.
"""

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from core.records import NamedTuple

LATEST: Final = 2**62
"""No byte of a file is behind this one."""
CHUNK: Final = 4096
"""Bytes that are read for a header; a longer one, with long statistics, is read again."""
LONGEST: Final = 1024 * 1024
"""The most bytes of a header. Writers cut the values in its statistics."""
DEEPEST: Final = 16
FOOTER: Final = 8
"""Bytes behind the metadata: their length, and the format's name."""
DICTIONARY_PAGE: Final = 2
PLAIN, PLAIN_DICTIONARY, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 0, 2, 7, 8
"""Encodings of data pages. With the third one, each text repeats a beginning of the one before."""
TYPE, UNCOMPRESSED, COMPRESSED, DATA, DATA_V2 = 1, 2, 3, 5, 8
"""Fields of a page's header. Those of DATA and DATA_V2 begin with the number of values."""
ENCODING: Final = {DATA: 2, DATA_V2: 4}
GROUPS, COLUMNS, ROWS, CHUNK_META, CHUNK_SIZE, DATA_OFFSET, DICTIONARY_OFFSET = 4, 1, 3, 3, 7, 9, 11
"""Fields of the footer, of a row group, of a column's chunk and of its metadata."""
TRUE, FALSE, BYTE, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12
"""Types of Thrift's compact protocol; 4 and 5 are whole numbers, too."""


class MalformedPages(Exception):
    """A header is not one, or is cut short."""


class PageCounts(NamedTuple):
    """The pages of a column in a row group. `values`: of all data pages, nulls included. `size`: bytes, compressed.

    `content`: bytes of all pages, `largest`: of the largest one, both uncompressed. `width`: the most bytes of a value,
    as a page has them on average. `dictionary`: whether there is a page of texts to which others refer. `encodings`: of
    the data pages.
    """

    values: int = 0
    size: int = 0
    content: int = 0
    largest: int = 0
    width: float = 0.0
    dictionary: bool = False
    encodings: frozenset[int] = frozenset()

    @property
    def is_shared(self) -> bool:
        """Whether pyarrow can read texts as references to a dictionary."""
        return self.dictionary and self.encodings <= {PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY}

    @property
    def longest(self) -> float:
        """The most bytes of a text: of any one if texts that are written out may be repeated, else on average."""
        is_repeated = self.dictionary or DELTA_BYTE_ARRAY in self.encodings
        return self.content if is_repeated and not self.is_shared else self.width


class RowGroup(NamedTuple):
    """A row group. `chunks`: where the pages of each column begin and end."""

    rows: int
    chunks: tuple[tuple[int, int], ...]


def groups(file: BinaryIO) -> list[RowGroup]:
    """Reads the footer of a file that has one. Raises MalformedPages, OSError."""
    file.seek(-FOOTER, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-FOOTER - length, os.SEEK_END)
    try:
        footer = _Compact(file.read(length)).struct(0)
    except IndexError:
        raise MalformedPages("the footer is cut short") from None
    return [
        RowGroup(_whole(group.get(ROWS)), tuple(map(_chunk, _structs(group.get(COLUMNS)))))
        for group in _structs(footer.get(GROUPS))
    ]


def _chunk(found: dict[int, Any]) -> tuple[int, int]:
    meta = found.get(CHUNK_META)
    said = meta if isinstance(meta, dict) else {}
    start = min(_whole(said.get(offset)) or LATEST for offset in (DATA_OFFSET, DICTIONARY_OFFSET))
    end = start + _whole(said.get(CHUNK_SIZE))
    if not 0 <= start <= end < 2 * LATEST:
        raise MalformedPages(f"a column is from byte {start} to {end}")
    return start, end


def _structs(found: Any) -> list[dict[int, Any]]:
    return found if isinstance(found, list) else []


def _whole(found: Any) -> int:
    return found if isinstance(found, int) else 0


def counts(file: BinaryIO, start: int, end: int) -> PageCounts:
    """Counts the pages between two positions in a file. Raises MalformedPages, OSError."""
    found = PageCounts()
    for page in _pages(file, start, end):
        content, size = page[UNCOMPRESSED], page[COMPRESSED]
        found = found._replace(
            size=found.size + size,
            content=found.content + content,
            largest=max(found.largest, content),
            dictionary=found.dictionary or page[TYPE] == DICTIONARY_PAGE,
        )
        for kind in ENCODING if page[TYPE] != DICTIONARY_PAGE else ():
            values = max(0, _number(page, kind, 1))
            found = found._replace(
                values=found.values + values,
                width=max(found.width, content / max(1, values)) if kind in page else found.width,
                encodings=found.encodings | ({_number(page, kind, ENCODING[kind])} if kind in page else set()),
            )
    return found


def _number(page: dict[int, Any], kind: int, field: int) -> int:
    """Returns a number of a header's own struct, 0 if it is not there."""
    found = page.get(kind)
    return _whole(found.get(field)) if isinstance(found, dict) else 0


def _pages(file: BinaryIO, start: int, end: int) -> Iterator[dict[int, Any]]:
    """Yields the headers of pages. Raises MalformedPages, OSError."""
    while start < end:
        page, length = _header(file, start, end)
        if any(not isinstance(page.get(field), int) or page[field] < 0 for field in (TYPE, UNCOMPRESSED, COMPRESSED)):
            raise MalformedPages(f"the page at byte {start} has no type or no size")
        start += length + page[COMPRESSED]
        if start > end:
            raise MalformedPages(f"a page ends at byte {start}, its column at {end}")
        yield page


def _header(file: BinaryIO, start: int, end: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of a header, and its length."""
    size = CHUNK
    while True:
        file.seek(start)
        compact = _Compact(file.read(min(size, end - start)))
        try:
            return compact.struct(0), compact.position
        except IndexError:
            if size >= min(LONGEST, end - start):
                raise MalformedPages(f"the header of the page at byte {start} is cut short or too long") from None
            size *= 16


class _Compact:
    """Reads a struct of Thrift's compact protocol, without texts, and without lists of anything else than structs."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Returns whole numbers, structs and lists by their fields' numbers. Raises MalformedPages, IndexError."""
        if depth > DEEPEST:
            raise MalformedPages("a struct is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == STRUCT:
            return self.struct(depth + 1)
        if BYTE < kind <= I64:
            return self._signed()
        if kind in (LIST, SET):
            return self._list(depth)
        if kind not in (BYTE, DOUBLE, BINARY):
            raise MalformedPages(f"a struct has a field of type {kind}")
        self._skip(1 if kind == BYTE else 8 if kind == DOUBLE else self._varint())
        return None

    def _list(self, depth: int) -> list[dict[int, Any]]:
        """Returns the structs of a list, an empty list for others. Raises MalformedPages, IndexError."""
        if depth > DEEPEST:
            raise MalformedPages("a list is nested too deeply")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()  # noqa: PLR2004 - four bits that are all set
        if head & 15 == STRUCT:
            return [self.struct(depth + 1) for _ in range(count)]
        for _ in range(count):
            if head & 15 in (TRUE, FALSE):
                self._skip(1)
            else:
                self._value(head & 15, depth + 1)
        return []

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise IndexError

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _signed(self) -> int:
        coded = self._varint()
        return coded >> 1 ^ -(coded & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                return value
            shift += 7
            if shift > 63:  # noqa: PLR2004 - 64 bits are the most
                raise MalformedPages("a number has more than 64 bits")
