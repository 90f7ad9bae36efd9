"""The only module that knows a JSON library: text to objects and numpy arrays, and back.

Three readers, from fast to exact. simdjson reads long arrays of plain numbers straight into numpy (a third of the time
of lists of Python floats); orjson everything else that is strict JSON; the standard library what Python and C++ clients
write beyond it (NaN, Infinity), integers of any length, and the message of what is no JSON at all.
"""

import json
import math
import re
from functools import cache
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from core.errors import InvalidInput

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
            return _loads_simd(body, arrays)
        except (ValueError, RuntimeError):  # unusual or wrong: the readers below tell which
            pass
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_exact(body)


class Oversized:
    """A number that no double and no 64-bit integer comes near: every check of types and ranges refuses it by name."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def loads_exact(body: bytes | memoryview) -> Any:
    """The parsed text in Python objects, every integer exact. Raises InvalidInput that says where it is no JSON."""
    try:
        text = str(body, "utf-8-sig")
        value = json.loads(text, parse_float=_float, parse_int=_integer)
        if LONE_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the JSON is not UTF-8: byte {error.start}") from None
    except UnicodeEncodeError:
        raise InvalidInput("the JSON has a lone surrogate, which is no Unicode text") from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}"[:200]) from None
    return value


def _float(text: str) -> Any:
    value = float(text)
    return Oversized(text) if math.isinf(value) else value


def _integer(text: str) -> Any:
    return int(text) if len(text) < LONGEST_INTEGER else Oversized(text)


def _loads_simd(body: bytes | memoryview, arrays: frozenset[str]) -> Any:
    try:
        parser = _parsers.pop()
    except IndexError:
        parser = _simd().Parser()
    # Proxies must be gone before the parser reads again: they live in this expression alone. After an exception the
    # traceback still holds some, so the parser is not put back.
    value = _plain(parser.parse(body), arrays, "")
    if len(body) <= KEPT_PARSER:
        _parsers.append(parser)
    return value


def _plain(value: Any, arrays: frozenset[str], key: str) -> Any:
    """A simdjson proxy as Python objects, and as one array where `key` says so and its elements allow it."""
    if isinstance(value, _simd().Object):
        return _members(value, arrays)
    if not isinstance(value, _simd().Array):
        return value
    if key in arrays:
        return _elements(value)
    return [_plain(member, arrays, "") for member in value] if len(value) <= FEW_MEMBERS else value.as_list()


def _members(value: Any, arrays: frozenset[str]) -> Any:
    # items() would make Python objects of everything below. Each look-up walks the members from the first, and takes a
    # key for a C string, which ends at a NUL.
    keys = list(value.keys())
    if len(keys) > FEW_MEMBERS or any("\0" in key for key in keys):
        return value.as_dict()
    members = {key: _plain(value[key], arrays, key) for key in keys}
    if len(members) != len(keys):
        raise ValueError("a look-up finds the first of two equal keys, the other readers keep the last")
    return members


def _elements(value: Any) -> Any:
    # An attempt that fails stops at the first element of another type, so three cost hardly more than one.
    for of_type, dtype in (("i", np.int64), ("u", np.uint64), ("d", np.float64)):
        try:
            return np.frombuffer(value.as_buffer(of_type=of_type), dtype)
        except (TypeError, ValueError):
            continue
    return value.as_list()


def dumps(value: Any) -> bytes:
    """Strict, compact JSON; numpy arrays and `numbers` among the values. Integers are exact decimals."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def numbers(array: NDArray[Any], *, as_null: bool = False) -> Any:
    """A numeric or boolean array as `dumps` takes it: flat, and floats in the shortest digits of their own width.

    NaN and infinities become "NaN", "Infinity" and "-Infinity" (proto3's JSON mapping: strict JSON that
    `np.array(data, dtype)` reads back), or null.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind != "f" or as_null or (flat.size > FEW_ELEMENTS and np.isfinite(flat).all()):
        return flat
    # orjson writes null exactly where an element is not finite.
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in text:
        return orjson.Fragment(text)
    tokens = [_token(x) for x in flat[~np.isfinite(flat)].tolist()]
    pieces = text.split(b"null")
    woven = b"".join(piece + token for piece, token in zip(pieces, [*tokens, b""], strict=True))
    return orjson.Fragment(woven)


def _token(value: float) -> bytes:
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return b'"NaN"'
    return b'"Infinity"' if value > 0 else b'"-Infinity"'
