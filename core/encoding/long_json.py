"""Writes JSON whose long pieces lie in memory that Python allocates, so that a failed allocation is a MemoryError.

orjson does not check whether it got its memory, and ends the process if it did not. For a text it asks for eight times
the bytes, rounded up to a power of two.
"""

from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import orjson

LONGEST: Final = 2**18
"""The most characters of a text, and bytes of other JSON, that orjson writes or copies."""
TOGETHER: Final = 2**16
"""Characters of a long text that are written at a time. Other threads of Python can run between two pieces."""
MANY: Final = 1024
"""Texts that are joined at a time."""
PLACE: Final = orjson.Fragment(b"\0")
"""Stands for a long piece. JSON text has no such byte."""


class LongJson:
    """A value's JSON, for `jsonio.dumps`. orjson does not know this class, and asks for another value in its place."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


def dumps(value: Any, option: int) -> bytes:
    """Returns orjson's JSON with the text of each LongJson inserted. Raises orjson.JSONEncodeError."""
    found: list[bytes] = []

    def placed(each: Any) -> Any:
        if type(each) is not LongJson:
            raise TypeError
        found.append(each.text)
        return PLACE

    around = orjson.dumps(value, default=placed, option=option).split(b"\0")
    pieces = [b""] * (len(around) + len(found))
    pieces[::2], pieces[1::2] = around, found
    return b"".join(pieces)


def text(value: str) -> Any:
    """Returns a text for `jsonio.dumps`, whatever its length. Raises TypeError for a lone surrogate in a long one."""
    return value if len(value) <= LONGEST else LongJson(json_of(value))


def json_of(text: str) -> bytes:
    """Returns a long text's JSON. Raises TypeError for a lone surrogate."""
    parts = (text[start : start + TOGETHER] for start in range(0, len(text), TOGETHER))
    try:
        return b'"%b"' % b"".join(map(_escaped, parts))
    except UnicodeEncodeError as error:
        raise TypeError(f"a text is not Unicode: {error.reason}") from None


def _escaped(part: str) -> bytes:
    plain = part.encode()
    if b'"' in plain or b"\\" in plain or np.frombuffer(plain, np.uint8).min() < ord(" "):
        return encode_basestring(part)[1:-1].encode()
    return plain


def texts(values: list[str]) -> list[Any]:
    """Returns the result of `text` for each text. To join short ones takes a quarter of the time of a look at each."""
    if len(values) <= MANY:
        are_short = len("".join(values)) <= LONGEST
    else:
        are_short = all(len("".join(values[at : at + MANY])) <= LONGEST for at in range(0, len(values), MANY))
    return values if are_short else [text(value) for value in values]
