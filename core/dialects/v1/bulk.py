"""Rows in bulk: many records become one inference under V1's rules, and its outputs one JSON text for each record.

A record is a line of JSON or a table's row. What takes time for each record by itself is done here for all of them at
once: reading, stacking, and finding the digits of numbers.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from core.dialects.v1.answer import Output, named
from core.dialects.v1.inputs import from_table
from core.dialects.v1.predict import NO_SIGNATURE, bound, infer_of
from core.dialects.v1.request import V1Question, find_signature
from core.dtype import BYTES, NDArray
from core.encoding import jsonio, simd
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, shown
from core.operations import Infer, ModelSpec
from core.records import NamedTuple
from core.signature import Signature
from core.tensor import Tensor, listed

FIRST: Final = itemgetter(0)
LAST: Final = itemgetter(-1)
COMMA: Final = ord(",")
NUMBERS: Final = "numbers"
LISTS: Final = ({ord("[")}, {ord("]")})
OBJECTS: Final = ({ord("{")}, {ord("}")})
"""The first and last bytes of lines that are all lists, or all objects."""


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
    text = b",".join(lines)
    if len(text) < simd.WORTH_SIMD * len(lines) and (bare := _bare(lines, text)) is not None:
        is_flat = len(text) >= simd.WORTH_SIMD and text[:1] != b"{"
        values = _numbers(*bare) if is_flat else None
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
    inner = b",".join(lines)
    is_worth = len(inner) >= simd.WORTH_SIMD and not any(each in inner for each in b"[{")
    return _numbers(lines, inner) if is_worth else None


def _numbers(lines: Sequence[bytes], inner: bytes) -> NDArray[Any] | None:
    """Returns lines of equally many numbers as one array; None for others. `inner`: the joined lines.

    Without brackets, simdjson reads one long array: rows cost it more than numbers.
    """
    if b'"' in inner or not _are_even(lines, inner):
        return None
    try:
        values = jsonio.loads(b'{"numbers":[%b]}' % inner, frozenset((NUMBERS,)))[NUMBERS]
    except InvalidInput:
        return None
    return values.reshape(len(lines), -1) if isinstance(values, np.ndarray) else None


def _are_even(lines: Sequence[bytes], inner: bytes) -> bool:
    """Decides whether the lines have equally many commas. `inner`: the lines with a comma between each two.

    Then each comma between lines follows on equally many: half of the time of counting them line by line.
    """
    commas = np.flatnonzero(np.frombuffer(inner, np.uint8) == COMMA)
    width = (len(commas) + 1) // len(lines)
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    return np.array_equal(commas[width - 1 :: width], ends[:-1])


def _bare(lines: Sequence[bytes], text: bytes) -> tuple[Sequence[bytes], bytes] | None:
    """Removes the brackets of lines that are lists. Returns the lines, and the text that they make with commas.

    Returns None unless each line is surely one value. `text`: the joined lines.

    It is not enough to count the values of the joined text: `[1` and `2]` become one value there, and a line `3,4`
    becomes two. Three forms are sure. Lists: brackets stand only at the ends of lines. Objects: there are as many
    opening and closing braces as lines. Other values: all commas stand between lines.
    """
    ends = set(map(FIRST, lines)), set(map(LAST, lines))
    if ends == LISTS:
        bare = [line[1:-1] for line in lines]
        inner = b",".join(bare)
        return None if any(each in inner for each in b"[]") else (bare, inner)
    if ends == OBJECTS:
        return (lines, text) if text.count(b"{") == len(lines) == text.count(b"}") else None
    is_plain = not any(each in text for each in b'[{"') and text.count(b",") == len(lines) - 1
    return (lines, text) if is_plain else None


def _texts(output: Output, non_finite: NonFinite | None, before: bytes = b"") -> list[bytes]:
    """Returns the JSON of each row of an output."""
    shape = output.tensor.shape
    if output.tensor.datatype is BYTES or not all(shape):
        return [before + jsonio.dumps(row) for row in output.rows(non_finite)]
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
