"""Writes parsed JSON so that `jsonio` reads the same values again: integers of any length, NaN as a token."""

import json
from typing import Any, Final

import orjson

from core.encoding.keys import NESTED
from core.encoding.long_json import LONGEST, json_of
from core.errors import InvalidInput, shown

TOGETHER: Final = 65_536
"""The most elements of a list that are written at a time. No other thread of Python runs meanwhile."""


def dumps_exact(value: Any) -> bytes:
    """Writes a value that `jsonio` has read, as JSON text.

    Raises InvalidInput for a number beyond every double, and for more levels than Python can call. The readers of
    `jsonio` accept 1024 levels.
    """
    text = bytearray()  # the pieces that orjson writes keep some kilobytes each
    try:
        _write(value, text)
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None
    return bytes(text)


def _write(value: Any, text: bytearray) -> None:
    """Appends a value's text in pieces. Other threads can run between two lists or objects."""
    kind = type(value)
    if kind is dict and value:
        mark = b"{"
        for key, member in value.items():
            text += mark + _text(key) + b":"
            _write(member, text)
            mark = b","
        text += b"}"
    elif kind is list and (not NESTED.isdisjoint(map(type, value)) or _has_long_text(value)):
        mark = b"["
        for element in value:
            text += mark
            _write(element, text)
            mark = b","
        text += b"]"
    elif kind is list and len(value) > TOGETHER:
        for start in range(0, len(value), TOGETHER):
            text += b"," if start else b"["
            text += _text(value[start : start + TOGETHER])[1:-1]
        text += b"]"
    else:
        text += _text(value)


def _has_long_text(values: list[Any]) -> bool:
    return str in set(map(type, values)) and any(type(each) is str and len(each) > LONGEST for each in values)


def _text(value: Any) -> bytes:
    """Returns a short value's text. orjson is ten times as fast, but it writes null for NaN, and not all integers."""
    if type(value) is str and len(value) > LONGEST:
        return json_of(value)
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = b"null"
    if b"null" in text:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_beyond).encode()
    return text


def _beyond(value: Any) -> Any:
    raise InvalidInput(f"the number {shown(value)} is beyond every double")
