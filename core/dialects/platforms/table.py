"""CSV: rows of cells in, rows of outputs out, as SageMaker's built-in algorithms and MLflow exchange them.

SageMaker's CSV has no line of names, and MLflow's has one. The parameter "header" of the content type decides (RFC
4180), else the first line does (`are_names`). Rows of numbers are read as JSON, in a tenth of the time of a
CSV reader. Sources: SageMaker's "Common data formats for inference"; RFC 4180.
"""

import csv
from codecs import BOM_UTF8
from collections.abc import Collection, Sequence
from contextlib import suppress
from io import StringIO
from math import isinf
from typing import Any, Final

from core.dialects.platforms.frames import DataFrame, checked, tensors
from core.dialects.v1 import bulk
from core.dtype import BOOL, DataType
from core.encoding import jsonio, simd
from core.encoding.csv_record import RECORD
from core.encoding.jsonio import NonFinite, Oversized
from core.encoding.structure import MOST_ARRAYS
from core.errors import InvalidInput, TooLarge, shown
from core.operations import ModelSpec
from core.tensor import Tensor, flat_texts

WHAT: Final = "text/csv"
MOST_CELLS: Final = 1_000_000
"""The most cells that are read one by one: half a second, and 100 MB. Plain numbers are not."""
SHORTEST_ROW: Final = 16
"""The fewest bytes that rows have on average, line ends included, in a table of MOST_ARRAYS rows or more. An answer in
CSV takes 165 bytes of memory for a row."""
IN_CELLS: Final = bytes(set(range(256)) - set(b",\n"))
"""All bytes except those that end a cell."""
BOOLEANS: Final = {"true": True, "false": False}
MISSING: Final = frozenset({"na", "n/a", "null", "none"})
"""How tables write a missing number, beside NaN and an empty cell."""
HEADERS: Final = {"present": True, "absent": False}
csv.field_size_limit(2**31 - 1)  # of the process; 131,072 by default. Bodies and records have limits of their own.


def read(body: bytes, spec: ModelSpec, header: str = "") -> tuple[Tensor, ...]:
    """Returns the inputs. `header`: "present", "absent", or "" for whichever the first line is. Raises InvalidInput.

    Numbers that are not what the model takes are read again cell by cell, so that the message names the wrong one as
    it was written.
    """
    text = body.removeprefix(BOM_UTF8).strip(b"\r\n")
    first, rest = _parted(text)
    names = _names(first, spec, header) if header or rest else None
    if names is not None:
        text = rest
    if not text.strip():
        raise InvalidInput(f"{WHAT!r} has no rows; expected at least one")
    has_texts = any(tensor.datatype.is_bytes for tensor in spec.inputs or ())
    numbers = None if has_texts else _of_numbers(text, names)
    if numbers is not None:
        with suppress(InvalidInput):
            return tensors(checked(numbers, WHAT), spec)
    texts = checked(_of_texts(text, names), WHAT)
    if spec.inputs is None:
        with suppress(InvalidInput):  # booleans beside numbers
            return tensors(_with_null(texts, text), spec)
    return tensors(texts, spec)


def _parted(text: bytes) -> tuple[bytes, bytes]:
    """Returns the first record, whose quoted cells may have line ends, and the other ones."""
    line, _, rest = text.partition(b"\n")
    if b'"' not in line:
        return line, rest
    found = RECORD.match(text)
    end = len(text) if found is None else found.end()
    return (text[:end], text[end + 1 :]) if text[end : end + 1] == b"\n" else (text, b"")


def _names(line: bytes, spec: ModelSpec, header: str) -> tuple[str, ...] | None:
    """Returns the names in the first line, None if it is a row. Raises InvalidInput."""
    if header not in ("", *HEADERS):
        raise InvalidInput(f"the content type has header={shown(header)}; expected present or absent")
    first = tuple(cell.strip() for cell in next(_lines(line), ()))
    inputs = spec.inputs or ()
    has_texts = any(tensor.datatype.is_bytes for tensor in inputs)
    is_header = (
        HEADERS[header] if header else are_names(first, frozenset(each.name for each in inputs), has_texts=has_texts)
    )
    if is_header and len(set(first)) != len(first):
        raise InvalidInput(f"the CSV's first line is {shown(first)}; expected each name once")
    return first if is_header else None


def are_names(first: Collection[str], inputs: frozenset[str], *, has_texts: bool) -> bool:
    """Decides whether the first line of a table has the names of its columns.

    It does if it contains the name of an input. If no input takes text, it also does if no cell is empty or a value.
    """
    return not inputs.isdisjoint(first) or not (has_texts or any(map(_is_value, first)))


def _is_value(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return cell.lower() in BOOLEANS or cell.lower() in MISSING
    return has_plain_digits(cell)


def _of_numbers(text: bytes, names: tuple[str, ...] | None) -> DataFrame | None:
    """Returns the frame of rows that read as JSON's numbers, None for any others."""
    if b"[" in text or b"{" in text or b'"' in text:
        return None
    text = text.replace(b"\r\n", b"\n")
    if text.count(b"\n") + 1 >= MOST_ARRAYS:  # too many to read as lists
        return _of_many_numbers(text, names)
    try:
        rows = jsonio.loads_shaped(b"[[" + text.replace(b"\n", b"],[") + b"]]")
    except InvalidInput:
        return None
    return DataFrame(names, rows)


def _of_many_numbers(text: bytes, names: tuple[str, ...] | None) -> DataFrame | None:
    """Returns the frame of equally long rows, None for any others, and for too many."""
    ends = text.translate(None, IN_CELLS) + b"\n"
    row, _, _ = ends.partition(b"\n")
    count = len(ends) // (len(row) + 1)
    if count > _most_rows(text) or ends != (row + b"\n") * count:
        return None
    rows = bulk.in_rows(text.replace(b"\n", b","), count)
    return None if rows is None else DataFrame(names, rows)


def _most_rows(text: bytes) -> int:
    if not simd.suits(text):  # only simdjson reads so many numbers
        return MOST_ARRAYS - 1
    return max(MOST_ARRAYS - 1, (len(text) - text.count(b"\r")) // SHORTEST_ROW + 1)


def _of_texts(text: bytes, names: tuple[str, ...] | None) -> DataFrame:
    """Raises InvalidInput, TooLarge."""
    count = text.count(b",") + text.count(b"\n") + 1
    if count > MOST_CELLS:
        most = f"at most {MOST_CELLS} are read, or {_most_rows(text)} rows of plain numbers"
        raise TooLarge(f"the CSV has {count} cells; {most}")
    return DataFrame(names, [row for row in _lines(text) if row], values)


def _with_null(frame: DataFrame, text: bytes) -> DataFrame:
    """Returns the frame with numbers, and null for empty cells, if all other cells are numbers; else the texts."""
    if b'"' in text or not _has_empty_cell(text):  # a number in quotes is a text
        return frame
    lines = (",".join(cell.strip() or "null" for cell in row) for row in frame.rows)
    return _of_numbers("\n".join(lines).encode(), frame.columns) or frame


def _has_empty_cell(text: bytes) -> bool:
    """Decides whether a text without quotes has an empty cell. Only with one, the reader of numbers can do better."""
    bare = b"\n%b\n" % text.translate(None, b" \t\r")
    return any(ends in bare for ends in (b",,", b",\n", b"\n,", b"\n\n"))


def _lines(text: bytes) -> Any:
    """Yields the rows of cells. Raises InvalidInput."""
    try:
        yield from csv.reader(StringIO(text.decode(), newline=""), strict=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the CSV is not UTF-8: byte {error.start}") from None
    except csv.Error as error:
        raise InvalidInput(f"the body is not CSV: {error}") from None


def values(cells: Sequence[str], datatype: DataType) -> list[Any]:
    """Returns the values of cells; one that has another type's text is left as it is, and refused later."""
    if datatype.is_bytes:
        return list(cells)
    known = {cell: _value(cell.strip(), datatype) for cell in set(cells)}
    return [known[cell] for cell in cells]


def _value(cell: str, datatype: DataType) -> Any:
    if datatype is BOOL and cell.lower() in BOOLEANS:
        return BOOLEANS[cell.lower()]
    if not cell or cell == "null":  # JSON has it, too, where all cells are its numbers
        return None
    if not has_plain_digits(cell):
        return cell
    for kind in (int, _double):
        with suppress(ValueError):
            return kind(cell)
    return cell


def _double(text: str) -> Any:
    """Returns the number; digits beyond every double are not an infinity, in JSON neither. Raises ValueError."""
    value = float(text)
    return Oversized(text) if isinf(value) and any(map(str.isdigit, text)) else value


def has_plain_digits(text: str) -> bool:
    """Decides whether a text that Python reads as a number has ASCII digits alone, and no 1_0."""
    return "_" not in text and text.isascii()


def write(outputs: Sequence[Tensor]) -> bytes:
    """Returns a line for each row, with the elements of all outputs in it. Raises InvalidInput."""
    sizes = {tensor.shape[0] if tensor.shape else -1 for tensor in outputs}
    if len(sizes) != 1 or -1 in sizes:
        shapes = {tensor.name: list(tensor.shape) for tensor in outputs}
        raise InvalidInput(f"the outputs have the shapes {shown(shapes)}, which are not rows of one table: accept JSON")
    columns = [_rows(tensor) for tensor in outputs]
    # Readers skip a line without text, so an empty text alone in its row is quoted.
    return b"".join((b",".join(row) or b'""') + b"\n" for row in zip(*columns, strict=True))


def _rows(tensor: Tensor) -> list[bytes]:
    rows = tensor.shape[0]
    width = tensor.array.size // rows if rows else 0
    if not width:
        return [b""] * rows
    if not tensor.datatype.is_bytes:
        text = jsonio.dumps(jsonio.numeric(tensor.reshaped((rows, width)), NonFinite.BARE))
        return text[2:-2].split(b"],[")
    texts = [_quoted(text) for text in flat_texts(tensor)]
    return [",".join(texts[start : start + width]).encode() for start in range(0, len(texts), width)]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(each in text for each in ',"\r\n') else text
