"""Rows in bulk: many records become one inference under V1's rules, and its outputs one JSON text for each record.

A record is a line of JSON or a table's row. What takes time for each record by itself is done here for all of them at
once: reading, stacking, and finding the digits of numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dialects.v1.answer import Output, named
from core.dialects.v1.inputs import from_table
from core.dialects.v1.predict import NO_SIGNATURE, bound, infer_of
from core.dialects.v1.request import V1Question, find_signature
from core.dtype import BYTES, NDArray
from core.encoding import jsonio, simd
from core.encoding.jsonio import NonFinite
from core.encoding.values import listed
from core.errors import InvalidInput, shown
from core.operations import Infer, ModelSpec
from core.records import NamedTuple
from core.signature import Signature
from core.tensor import Tensor

COMMA: Final = ord(",")
TOGETHER: Final = 4096
"""The most rows of texts that are lists at a time: Python's collector visits all lists again and again."""
BLANK: Final = ord(" ")
NUMBERS: Final = "numbers"
LIST: Final = b"[]"
OBJECT: Final = b"{}"
"""The first and the last byte of a list, and of an object."""
BYTE: Final = 255


class BoundRows(NamedTuple):
    """The inference of some rows. `signature`: names its outputs."""

    infer: Infer
    signature: Signature | None
    rows: int

    def texts(self, outputs: Sequence[Tensor], non_finite: NonFinite | None, before: bytes = b"") -> list[bytes]:
        """Returns the JSON text of each row's prediction, as an answer under /v1 has it among its "predictions".

        `before`: what each text begins with. Raises InvalidInput for an output without a row for each row, and for NaN
        and infinities if `non_finite` is None.
        """
        return texts(named(outputs, self.signature), self.rows, non_finite, before)


def texts(outputs: Sequence[Output], rows: int, non_finite: NonFinite | None, before: bytes = b"") -> list[bytes]:
    """Returns the JSON text of each row's prediction. Raises InvalidInput as `BoundRows.texts` does."""
    for alias, tensor in outputs:
        if tensor.shape[:1] != (rows,):
            raise InvalidInput(
                f"output {shown(alias)} has the shape {list(tensor.shape)} for {rows} records; expected {rows} rows"
            )
    if len(outputs) == 1:
        return _texts(outputs[0], non_finite, before)
    columns = [_texts(output, non_finite) for output in outputs]
    heads = (jsonio.dumps(output.alias).replace(b"%", b"%%") + b":%b" for output in outputs)
    template = before.replace(b"%", b"%%") + b"{" + b",".join(heads) + b"}"
    return [template % row for row in zip(*columns, strict=True)]


def bind(instances: Any, spec: ModelSpec, signature_name: str = "") -> BoundRows:
    """Returns the inference of rows as "instances" has them. Raises InvalidInput with TF Serving's messages."""
    question = _question({"instances": instances}, signature_name)
    return BoundRows(*bound(question, spec), len(instances))


def bind_table(columns: Mapping[str, Any], rows: int, spec: ModelSpec, signature_name: str = "") -> BoundRows:
    """Returns the inference of a table; see `from_table`. Raises InvalidInput."""
    signature = signature_of(spec, signature_name)
    inputs = from_table(columns, rows, None if signature is None else signature.inputs)
    return BoundRows(infer_of(inputs, signature, spec), signature, rows)


def signature_of(spec: ModelSpec, signature_name: str = "") -> Signature | None:
    """Returns the signature of that name, or the default one; None if the model declares none. Raises InvalidInput."""
    return find_signature(_question({}, signature_name), spec, NO_SIGNATURE)


def _question(document: dict[str, Any], signature_name: str) -> V1Question:
    return V1Question(document | {"signature_name": signature_name}, None, "auto", pinned=False)


def instances(lines: Sequence[bytes]) -> Any:
    """Returns the values of lines of JSON, each without blanks around it, as "instances" has them.

    Lines of numbers may become one array. Raises InvalidInput if a line is not one value, without saying which.
    """
    joined = _Joined(lines)
    text = joined.text
    if len(text) < simd.WORTH_SIMD * len(lines) and (bare := joined.bare()) is not None:
        is_flat = len(text) >= simd.WORTH_SIMD and text[:1] != b"{"
        values = _numbers(joined, bare) if is_flat else None
        if values is None:
            values = jsonio.loads_lists(b"[" + text + b"]")
        elif text[:1] != b"[":
            values = values.reshape(-1)
        if len(values) == len(lines):
            return values
    return [*map(jsonio.loads_shaped, lines)]


def numbers(lines: Sequence[bytes]) -> NDArray[Any] | None:
    """Returns lines of JSON's numbers between commas as rows of int64, uint64 or double; None for other lines.

    Few lines are not worth it, and None, too.
    """
    joined = _Joined(lines)
    is_worth = len(joined.text) >= simd.WORTH_SIMD and not any(each in joined.text for each in b"[{")
    return _numbers(joined, joined.text) if is_worth else None


def _numbers(joined: "_Joined", inner: bytes | bytearray) -> NDArray[Any] | None:
    """Returns lines of equally many numbers as one array; None for others. `inner`: the text without brackets.

    Without brackets, simdjson reads one long array: rows cost it more than numbers.
    """
    return None if b'"' in inner or not joined.is_even() else in_rows(inner, joined.lines)


def in_rows(inner: bytes | bytearray, rows: int) -> NDArray[Any] | None:
    """Returns the numbers of a text, with a comma between each two, as rows; None if some are not JSON's numbers.

    The text is without brackets and quotes.
    """
    text = b'{"numbers":[' + inner + b"]}"
    try:
        values = simd.loads(text, frozenset((NUMBERS,)))[NUMBERS] if simd.suits(text) else None
    except (ValueError, RuntimeError):
        return None
    return values.reshape(rows, -1) if isinstance(values, np.ndarray) else None


class _Joined:
    """Lines as one text with a comma between each two. numpy counts and looks at its bytes faster than `bytes` does."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.text = b",".join(lines)
        self.lines = len(lines)
        self._bytes = np.frombuffer(self.text, np.uint8)
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        self._behind = np.cumsum(sizes + 1) - 1  # the place behind each line
        self._starts = self._behind - sizes
        self._has_blank = not sizes.all()

    def is_even(self) -> bool:
        """Decides whether the lines have equally many commas."""
        if self._has_blank:
            return False
        are_commas = self._bytes == COMMA
        total = np.count_nonzero(are_commas)
        each, left = divmod(total + 1, self.lines)
        # A sum in one byte loses multiples of 256. With so few commas on average, no line can have 256 more.
        dtype = np.uint8 if each <= BYTE else np.uint64
        found = np.add.reduceat(are_commas.view(np.uint8), self._starts, dtype=dtype)
        found[-1:] += 1  # the others have the comma behind them, too
        return not left and bool((found == each).all())

    def bare(self) -> bytes | bytearray | None:
        """Returns the text with blanks for the brackets around lines; None unless each line is surely one value.

        It is not enough to count the values of the text: `[1` and `2]` become one value there, and a line `3,4` becomes
        two. Three forms are sure. Lists: brackets stand only at the ends of lines. Objects: there are as many opening
        and closing braces as lines. Other values: all commas stand between lines.
        """
        if self._has_blank:
            return None
        if self._are_all(OBJECT):
            return self.text
        if self._are_all(LIST):
            bare = bytearray(self.text)
            view = np.frombuffer(bare, np.uint8)
            view[self._starts] = view[self._behind - 1] = BLANK
            return bare
        is_plain = not any(each in self.text for each in b'[{"') and self._count(COMMA) == self.lines - 1
        return self.text if is_plain else None

    def _are_all(self, ends: bytes) -> bool:
        """Decides whether all lines begin and end with these bytes, which stand nowhere else."""
        first, last = ends
        return (
            self._bytes[0] == first
            and bool((self._bytes[self._starts] == first).all() and (self._bytes[self._behind - 1] == last).all())
            and self._count(first) == self.lines == self._count(last)
        )

    def _count(self, byte: int) -> int:
        return int(np.count_nonzero(self._bytes == byte))


def _texts(output: Output, non_finite: NonFinite | None, before: bytes = b"") -> list[bytes]:
    """Returns the JSON of each row of an output."""
    shape = output.tensor.shape
    if output.tensor.datatype is BYTES or not all(shape):
        parts = (output.part(start, start + TOGETHER) for start in range(0, shape[0], TOGETHER))
        return [before + jsonio.dumps(row) for part in parts for row in part.rows(non_finite)]
    # The text of the whole array has each row's text, between separators that stand nowhere else.
    inner = len(shape) - 1
    text = jsonio.dumps(output.value(non_finite))
    rows = text[1 + inner : -1 - inner].split(b"]" * inner + b"," + b"[" * inner)
    opened, closed = before + b"[" * inner, b"]" * inner
    if not opened:
        return rows
    return [opened + row + closed for row in rows]


def as_values(column: Any) -> Any:
    """Returns a column as `from_table` takes it: numbers as int64, uint64 or double, everything else as a list."""
    if not isinstance(column, np.ndarray):
        return column
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64}.get(column.dtype.kind)
    return listed(column) if wide is None else column.astype(wide, copy=False)
