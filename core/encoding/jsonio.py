"""The only module that knows a JSON library: text to objects and numpy arrays, and back.

Three readers, from fast to exact. simdjson reads long arrays of plain numbers straight into numpy (a third of the time
of lists of Python floats); orjson everything else that is strict JSON; the standard library what Python and C++ clients
write beyond it (NaN, Infinity), integers of any length, and the message of what is no JSON at all.
"""

import json
import math
import re
from enum import Enum
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from core.encoding import simd
from core.errors import InvalidInput, shown

FEW_ELEMENTS: Final = 1024
"""Of an array of more, asking numpy first costs less than looking through the text."""
LONGEST_INTEGER: Final = 400
"""Digits; more are beyond any double, and cost time that grows with their square."""
BEYOND_JSON: Final = re.compile(r'(?s)"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|-NaN\b|\bInf\b')
"""Strings, to pass over, and what RapidJSON reads as numbers besides NaN, Infinity and -Infinity.

A string that does not end matches up to the end of the text: otherwise each quote in it would begin another look for
an end, which takes time by the square of the text's length.
"""
SPELLINGS: Final = {"Inf": "Infinity", "-NaN": "NaN"}
LONE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def loads(body: bytes | memoryview, arrays: frozenset[str] = frozenset()) -> Any:
    """The parsed text; lists under the keys `arrays` may come as flat int64, uint64 or double arrays.

    Integers may have lost digits: beyond 2**53 in a double array, beyond 64 bits in a list. See `loads_exact`.
    Raises InvalidInput that says where the text is no JSON.
    """
    if simd.suits(body):
        try:
            return simd.loads(body, arrays)
        except (ValueError, RuntimeError):  # unusual or wrong: the readers below tell which
            pass
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_exact(body)


def loads_shaped(body: bytes | memoryview) -> Any:
    """As `loads`; arrays of numbers, however nested, may come as int64, uint64 or double arrays of their own shape.

    None is ragged, and none hides a value of another kind: what does comes as lists, as everything may.
    """
    if simd.suits(body):
        try:
            return simd.loads_shaped(body)
        except (ValueError, TypeError, RuntimeError):
            pass
    return loads_lists(body)


def loads_lists(body: bytes | memoryview) -> Any:
    """As `loads`, without arrays; Inf and -NaN are numbers, too."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_exact(body, beyond_json=True)


class NotJson(InvalidInput):
    """`reason` and `offset`: why the text is no JSON, and after how many characters."""

    def __init__(self, message: str, reason: str, offset: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.offset = offset


class Oversized:
    """A number that no double and no 64-bit integer comes near: every check of types and ranges refuses it by name."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def loads_exact(body: bytes | memoryview, *, beyond_json: bool = False) -> Any:
    """The parsed text in Python objects, every integer exact. Raises InvalidInput that says where it is no JSON.

    `beyond_json`: Inf and -NaN are numbers, too, as for RapidJSON.
    """
    try:
        text = str(body, "utf-8-sig")
        if beyond_json:
            text = BEYOND_JSON.sub(lambda found: SPELLINGS.get(found[0], found[0]), text)
        value = json.loads(text, parse_float=_float, parse_int=_integer)
        if LONE_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False, default=repr).encode()
    except UnicodeDecodeError as error:
        raise NotJson(f"the JSON is not UTF-8: byte {error.start}", "not UTF-8", error.start) from None
    except UnicodeEncodeError:
        raise InvalidInput("the JSON has a lone surrogate, which is no Unicode text") from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"the body is not JSON: {error}"[:200], error.msg, error.pos) from None
    return value


def _float(text: str) -> Any:
    value = float(text)
    return Oversized(text) if math.isinf(value) else value


def _integer(text: str) -> Any:
    return int(text) if len(text) < LONGEST_INTEGER else Oversized(text)


def dumps(value: Any) -> bytes:
    """Strict, compact JSON; numpy arrays and `numbers` among the values. Integers are exact decimals."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def dumps_exact(value: Any) -> bytes:
    """Any value that a reader here gave, back as text that it reads alike; integers of any length, NaN as a token.

    Raises InvalidInput for a number beyond every double.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_beyond).encode()


def _beyond(value: Any) -> Any:
    raise InvalidInput(f"the number {shown(value)} is beyond every double")


def verbatim(text: bytes) -> Any:
    """JSON text as a value for `dumps`."""
    return orjson.Fragment(text)


class NonFinite(Enum):
    """How floats stand in JSON that its numbers cannot express: the text of NaN, Infinity and -Infinity."""

    QUOTED = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
    """proto3's JSON mapping: strict JSON that `np.array(data, dtype)` reads back."""
    BARE = (b"NaN", b"Infinity", b"-Infinity")
    """What Python, JavaScript engines' source and RapidJSON write and read."""
    NULL = (b"null", b"null", b"null")


def numbers(array: NDArray[Any], non_finite: NonFinite = NonFinite.QUOTED) -> Any:
    """A numeric or boolean array as `dumps` takes it: nested as its shape is, floats with the fewest digits.

    FP16 and BF16 have to be widened first (core.float16): the writer knows only what is shortest for 32 and 64 bits.
    """
    if not array.ndim and array.dtype.kind != "f":  # the writer takes no arrays without a dimension, not all scalars
        return array.item()
    ready = np.ascontiguousarray(array) if array.ndim else array[()]
    if array.dtype.kind != "f" or non_finite is NonFinite.NULL:
        return ready
    if array.size > FEW_ELEMENTS and np.isfinite(array).all():
        return ready
    # orjson writes null exactly where an element is not finite.
    text = orjson.dumps(ready, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in text:
        return orjson.Fragment(text)
    tokens = [_token(x, non_finite) for x in array[~np.isfinite(array)].tolist()]
    pieces = text.split(b"null")
    woven = b"".join(piece + token for piece, token in zip(pieces, [*tokens, b""], strict=True))
    return orjson.Fragment(woven)


def _token(value: float, non_finite: NonFinite) -> bytes:
    nan, infinity, negative = non_finite.value
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return nan
    return infinity if value > 0 else negative
