"""The only module that knows a JSON library: text to objects and numpy arrays, and back.

Three readers, from fast to exact. simdjson reads long arrays of plain numbers straight into numpy (a third of the time
of lists of Python floats); orjson everything else that is strict JSON; the standard library what Python and C++ clients
write beyond it (NaN, Infinity), integers of any length, and the message of what is no JSON at all.
"""

import json
import math
import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from core.errors import InvalidInput, shown

WORTH_SIMD: Final = 8192
"""Bytes of text from which simdjson's proxies cost less than they save."""
FEW_ELEMENTS: Final = 1024
"""Of an array of more, asking numpy first costs less than looking through the text."""
FEW_MEMBERS: Final = 16
"""An object or array of more is read as a whole: a proxy for each costs more than its numbers could save."""
KEPT_PARSER: Final = 16 * 1024 * 1024
"""A parser that read more than this is dropped: its buffers are several times the text and never shrink."""
LONGEST_INTEGER: Final = 400
"""Digits; more are beyond any double, and cost time that grows with their square."""
THIN: Final = 32
"""Bytes of text per array below which walking over simdjson's proxies costs more than Python's lists."""
BEYOND_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-NaN\b|\bInf\b')
"""Strings, to pass over, and what RapidJSON reads as numbers besides NaN, Infinity and -Infinity."""
SPELLINGS: Final = {"Inf": "Infinity", "-NaN": "NaN"}
LONE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
# Idle parsers. One belongs to one caller at a time; list.pop and list.append are atomic, so threads may share the list.
_parsers: list[Any] = []


@cache
def _simd() -> Any:
    """The module, imported with the first long text; None where it is not installed, which changes no result."""
    try:
        import simdjson  # noqa: PLC0415 - 3 ms of cold start
    except ImportError:
        return None
    return simdjson


def loads(body: bytes | memoryview, arrays: frozenset[str] = frozenset()) -> Any:
    """The parsed text; lists under the keys `arrays` may come as flat int64, uint64 or double arrays.

    Integers may have lost digits: beyond 2**53 in a double array, beyond 64 bits in a list. See `loads_exact`.
    Raises InvalidInput that says where the text is no JSON.
    """
    if len(body) >= WORTH_SIMD and _simd() is not None:
        try:
            return _parsed(body, lambda document: _plain(document, arrays, ""))
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
    if len(body) >= WORTH_SIMD and _simd() is not None:
        brackets = int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord("[")))
        if brackets * THIN < len(body):
            try:
                return _parsed(body, lambda document: _shaped(document, brackets))
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


def _parsed(body: bytes | memoryview, read: Callable[[Any], Any]) -> Any:
    """What `read` makes of simdjson's proxy of the document, none of which it may keep."""
    try:
        parser = _parsers.pop()
    except IndexError:
        parser = _simd().Parser()
    # Proxies must be gone before the parser reads again: they live in this expression alone. After an exception the
    # traceback still holds some, so the parser is not put back.
    value = read(parser.parse(body))
    if len(body) <= KEPT_PARSER:
        _parsers.append(parser)
    return value


def _plain(value: Any, arrays: frozenset[str], key: str) -> Any:
    """A simdjson proxy as Python objects, and as one array where `key` says so and its elements allow it."""
    if isinstance(value, _simd().Object):
        return _members(value, lambda key, member: _plain(member, arrays, key))
    if not isinstance(value, _simd().Array):
        return value
    if key in arrays:
        return _elements(value)
    return [_plain(member, arrays, "") for member in value] if len(value) <= FEW_MEMBERS else value.as_list()


def _members(value: Any, read: Callable[[str, Any], Any]) -> Any:
    # items() would make Python objects of everything below. Each look-up walks the members from the first, and takes a
    # key for a C string, which ends at a NUL.
    keys = list(value.keys())
    if len(keys) > FEW_MEMBERS or any("\0" in key for key in keys):
        return value.as_dict()
    members = {key: read(key, value[key]) for key in keys}
    if len(members) != len(keys):
        raise ValueError("a look-up finds the first of two equal keys, the other readers keep the last")
    return members


def _elements(value: Any) -> Any:
    """An array's numbers, as one flat array if they allow it."""
    # An attempt that fails stops at the first element of another type, so three cost hardly more than one.
    for of_type, dtype in (("i", np.int64), ("u", np.uint64), ("d", np.float64)):
        try:
            return np.frombuffer(value.as_buffer(of_type=of_type), dtype)
        except (TypeError, ValueError):
            continue
    return value.as_list()


def _shaped(document: Any, brackets: int) -> Any:
    """Raises ValueError for what is better read as lists.

    As a buffer, simdjson gives an array's numbers flat, whatever lies between them. If the arrays that were looked at
    are as many as the text has brackets, nothing did.
    """
    shaper = _Shaper()
    value = shaper.read("", document)
    if shaper.arrays != brackets:
        raise ValueError("an array stands between numbers, or a bracket in a string")
    return value


class _Shaper:
    """`arrays`: how many have been looked at."""

    def __init__(self) -> None:
        self.arrays = 0

    def read(self, _key: str, value: Any) -> Any:
        if isinstance(value, _simd().Object):
            return _members(value, self.read)
        if not isinstance(value, _simd().Array):
            return value
        if len(value) and isinstance(value[0], _simd().Object):
            return self._objects(value)
        shape = self._shape(value)
        elements = _elements(value)
        if isinstance(elements, list):
            raise ValueError("no array of numbers")  # noqa: TRY004 - of the text's value, not of an argument's type
        return elements.reshape(shape)

    def _objects(self, value: Any) -> Any:
        if len(value) > FEW_MEMBERS:
            raise ValueError("too many proxies")
        self.arrays += 1
        return [self.read("", member) for member in value]

    def _shape(self, value: Any) -> tuple[int, ...]:
        self.arrays += 1
        size = len(value)
        if not size or not isinstance(value[0], _simd().Array):
            return (size,)
        inner = {self._shape(member) for member in value}
        if len(inner) > 1:
            raise ValueError("ragged")
        return (size, *inner.pop())


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

    FP16 and BF16 have to be widened first (core.narrow): the writer knows only what is shortest for 32 and 64 bits.
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
