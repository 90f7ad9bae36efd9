"""Text to objects and numpy arrays, and back. Beside it, only `simd`, `keys` and `exact_json` know a JSON library.

It has three readers, from fast to exact. simdjson reads long arrays of plain numbers straight into numpy (a third of
the time of lists of Python floats). orjson reads all other strict JSON. The standard library reads the extensions that
Python and C++ clients write (NaN, Infinity) and integers of any length, and words the error for text that is not JSON.
"""

import json
import math
import re
from collections import Counter
from enum import Enum
from typing import Any, Final

import numpy as np
import orjson

from core.dtype import BF16, FP16, NDArray
from core.encoding import long_json, simd, spellings
from core.encoding.keys import has_all_members
from core.encoding.long_json import LONGEST, LongJson
from core.encoding.simd import WORTH_SIMD
from core.encoding.structure import MOST_ARRAYS, check_structure
from core.errors import InvalidInput, shown
from core.tensor import Tensor

FEW_ELEMENTS: Final = 1024
"""An array of more elements is tested for NaN and infinities by numpy, which takes less time than a text search."""
TOGETHER: Final = 2**18
"""The most elements that are written at a time. The writer stops all other threads meanwhile: 40 ms for so many."""
LONGEST_INTEGER: Final = 400
"""The most digits; more are beyond any double, and take time that grows with their square."""
LONG: Final = 256 * 1024
"""Bytes of text from which the standard library alone would keep the interpreter for ten milliseconds."""
OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
TRAILING_COMMA: Final = re.compile(r",[ \t\r\n]*(?=[\]}])")
"""Matches what Python 3.13 takes for the place of an error that other readers see at the bracket."""
KINDS: Final = bytes(ord("0") if 48 <= each < 58 else ord("e") if each in b"eE" else 32 for each in range(256))  # noqa: PLR2004
"""A table for bytes.translate, which takes a tenth of a regular expression's time, in which no other thread runs.
It has "0" for each digit, and "e" for the letter of an exponent."""
MANY_DIGITS: Final = b"0" * 300
CONSTANTS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NUMBERS: Final = re.compile(r'(?s)"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|-?[0-9][0-9.eE+-]*+')
"""Matches a JSON text's strings, to skip them, and its numbers."""
TOO_BIG: Final = "Number too big"
LONE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def loads(body: bytes | memoryview, arrays: frozenset[str] = frozenset(), *, nested: bool = True) -> Any:
    """Returns the parsed text; lists under the keys `arrays` may be flat int64, uint64 or double arrays.

    `nested`: lists of lists may be such arrays, too.
    Integers may have lost digits: beyond 2**53 in a double array, beyond 64 bits in a list. See `loads_exact`.
    Raises InvalidInput that names the place where the text stops being JSON, or the key that an object has twice.
    """
    if len(body) >= WORTH_SIMD and simd.suits(body):
        try:
            return simd.loads(body, arrays, nested=nested)
        except (ValueError, RuntimeError):  # unusual or wrong: the readers below decide which
            pass
    if len(body) > MOST_ARRAYS:
        check_structure(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_exact(body)
    return value if has_all_members(body, value) else loads_exact(body)


def loads_shaped(body: bytes | memoryview, *, among_texts: bool = False) -> Any:
    """Returns the parsed text as `loads` does; nested arrays of numbers may be arrays of their own shape.

    Such an array is int64, uint64 or double. Ragged arrays, and arrays with a value of another kind, are lists. Any
    array may be lists. `among_texts`: as for `simd.suits`.
    """
    if len(body) >= WORTH_SIMD and simd.suits(body, among_texts=among_texts):
        try:
            return simd.loads_shaped(body, among_texts=among_texts)
        except (ValueError, TypeError, RuntimeError):
            pass
    return loads_lists(body)


def loads_lists(body: bytes | memoryview) -> Any:
    """Returns the parsed text as `loads` does, without arrays; Inf and -NaN are numbers, too."""
    check_structure(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_exact(body, beyond_json=True)
    return value if has_all_members(body, value) else loads_exact(body, beyond_json=True)


class NotJson(InvalidInput):
    """Text that is not JSON. `reason`: why, in the standard library's words. `offset`: after how many characters."""

    def __init__(self, message: str, reason: str, offset: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.offset = offset


class Oversized:
    """A number beyond every double and 64-bit integer. Every check of types and ranges refuses it, with its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def loads_exact(body: bytes | memoryview, *, beyond_json: bool = False) -> Any:
    """Returns the parsed text in Python objects, every integer exact. Raises InvalidInput as `loads` does.

    `beyond_json`: as RapidJSON reads it: Inf and -NaN are numbers, too, and one beyond every double is an error.
    """
    check_structure(body)
    try:
        text = str(body, "utf-8-sig")
        if beyond_json:
            text = spellings.spelled(text)
        numbers = _Numbers()
        # The standard library reads numbers by itself in a quarter of the time that it takes with these functions. They
        # are Python code, so that other threads may run between the numbers of a long text.
        odd: dict[str, Any] = {"parse_float": numbers.real, "parse_int": numbers.integer}
        hooks = odd if len(body) > LONG or _has_odd_numbers(body) else {}
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, **hooks)
        if numbers.oversized and beyond_json:
            raise _too_big(text, numbers.oversized)
        if LONE_SURROGATE.search(text):
            _encode_texts(value)
    except UnicodeDecodeError as error:
        raise NotJson(f"the JSON is not UTF-8: byte {error.start}", "not UTF-8", error.start) from None
    except UnicodeEncodeError:
        raise InvalidInput("the JSON has a lone surrogate, which is not Unicode text") from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        comma = TRAILING_COMMA.match(error.doc, error.pos)
        told = "it is empty" if not error.doc or error.doc.isspace() else str(error)
        raise NotJson(f"the body is not JSON: {told}"[:200], error.msg, comma.end() if comma else error.pos) from None
    return value


def _encode_texts(value: Any) -> None:
    """Raises UnicodeEncodeError for a lone surrogate. It is a loop in Python, so other threads run during it."""
    left = [value]
    while left:
        each = left.pop()
        if type(each) is str:
            each.encode()
        elif type(each) is list:
            left += each
        elif type(each) is dict:
            left += (*each, *each.values())


def _has_odd_numbers(body: bytes | memoryview) -> bool:
    """Decides whether a number may be beyond all doubles, or have too many digits; if in doubt, it may."""
    kinds = bytes(body).translate(KINDS)
    return b"0e" in kinds or MANY_DIGITS in kinds


def _constant(text: str) -> float:
    """Returns NaN or an infinity. It is a function in Python so that other threads run during a long array of NaN."""
    return CONSTANTS[text]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidInput(f"the JSON has the member {shown(twice)} twice in one object; expected it once")
    return members


class _Numbers:
    """Reads a text's numbers. `oversized`: the text of the first that no double holds, "" if there is none."""

    def __init__(self) -> None:
        self.oversized = ""

    def real(self, text: str) -> Any:
        value = float(text)
        return self._beyond(text) if math.isinf(value) else value

    def integer(self, text: str) -> Any:
        return int(text) if len(text) < LONGEST_INTEGER else self._beyond(text)

    def _beyond(self, text: str) -> Oversized:
        self.oversized = self.oversized or text
        return Oversized(text)


def _too_big(text: str, number: str) -> NotJson:
    offset = next((found.start() for found in NUMBERS.finditer(text) if found[0] == number), 0)
    return NotJson(f"the number {shown(number)} is beyond every double", TOO_BIG, offset)


def dumps(value: Any) -> bytes:
    """Returns strict, compact JSON; values may be numpy arrays and results of `numbers`. Integers are exact.

    A long text must be a result of `long_json.text`: orjson ends the process if it does not get the memory for it.
    """
    try:
        return orjson.dumps(value, option=OPTIONS)
    except orjson.JSONEncodeError:
        return long_json.dumps(value, OPTIONS)


def verbatim(text: bytes) -> Any:
    """Returns JSON text as a value for `dumps`."""
    return orjson.Fragment(text) if len(text) <= LONGEST else LongJson(text)


class NonFinite(Enum):
    """The text of NaN, Infinity and -Infinity, which JSON's numbers cannot express."""

    QUOTED = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
    """proto3's JSON mapping: strict JSON that `np.array(data, dtype)` reads back."""
    BARE = (b"NaN", b"Infinity", b"-Infinity")
    """The tokens that Python, JavaScript engines' source and RapidJSON write and read."""
    NULL = (b"null", b"null", b"null")


def numbers(array: NDArray[Any], non_finite: NonFinite = NonFinite.QUOTED) -> Any:
    """Returns a numeric or boolean array for `dumps`: nested as its shape is, floats with the fewest digits.

    FP16 and BF16 must be widened first (core.float16): the writer knows the shortest digits for 32 and 64 bits only.
    """
    if not array.ndim and array.dtype.kind != "f":  # the writer refuses arrays without a dimension, and some scalars
        return array.item()
    ready = np.ascontiguousarray(array) if array.ndim else array[()]
    is_plain = array.dtype.kind != "f" or non_finite is NonFinite.NULL
    is_plain = is_plain or (array.size > FEW_ELEMENTS and bool(np.isfinite(array).all()))
    if is_plain and array.size <= TOGETHER:
        return ready
    # orjson writes null exactly where an element is not finite.
    text = _text(ready)
    if is_plain or b"null" not in text:
        return verbatim(text)
    tokens = [_token(x, non_finite) for x in array[~np.isfinite(array)].tolist()]
    pieces = text.split(b"null")
    woven = b"".join(piece + token for piece, token in zip(pieces, [*tokens, b""], strict=True))
    return verbatim(woven)


def _text(array: Any) -> bytes:
    """Returns the text of an array or a scalar; that of a large array is written in pieces."""
    if array.size <= TOGETHER:
        return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    each = array[0].size
    if each > TOGETHER:
        return b"[%b]" % b",".join(map(_text, array))
    step = TOGETHER // each
    first, *others = [memoryview(_text(array[start : start + step])) for start in range(0, len(array), step)]
    return b",".join([first[:-1], *(piece[1:-1] for piece in others[:-1]), others[-1][1:]])


def _token(value: float, non_finite: NonFinite) -> bytes:
    nan, infinity, negative = non_finite.value
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return nan
    return infinity if value > 0 else negative


def rows(tensor: Tensor, non_finite: NonFinite | None) -> list[Any]:
    """Returns what `numeric` returns for each element of the first axis; of a large tensor, its text."""
    array, kind = tensor.array, tensor.array.dtype.kind
    if array.size > TOGETHER:
        return [verbatim(dumps(numeric(Tensor(tensor.name, tensor.datatype, row), non_finite))) for row in array]
    if tensor.datatype.name in ("FP32", "FP64") and np.isfinite(array).all():
        return list(np.ascontiguousarray(array))
    if kind in "iub" and tensor.datatype is not BF16:
        return array.tolist() if array.ndim == 1 else list(np.ascontiguousarray(array))
    return [numeric(Tensor(tensor.name, tensor.datatype, row), non_finite) for row in tensor.array]


def numeric(tensor: Tensor, non_finite: NonFinite | None) -> Any:
    """Returns numbers or booleans, nested as the tensor's shape is.

    Raises InvalidInput for NaN and infinities if `non_finite` is None.
    """
    array = tensor.array
    if tensor.datatype is FP16 or tensor.datatype is BF16:
        from core.float16 import widened  # noqa: PLC0415 - cold start: few models have 16 bits

        array = widened(array, tensor.datatype)
    if non_finite is None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidInput(
                f"output {shown(tensor.name)} has NaN or infinite elements, for which JSON has no number "
                "(DRAGOMAN_NON_FINITE=error)"
            )
        return numbers(array, NonFinite.NULL)
    return numbers(array, non_finite)
