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
ALTOGETHER: Final = 2**22
"""The most characters of several texts that orjson writes. It also ends the process if its buffer cannot grow."""
FEW: Final = 64
"""Characters up to which one of more texts is not written apart, which takes 3 us. V1 writes 65,536 texts at a time."""
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


def array(values: list[str]) -> Any:
    """Returns an array of texts for `jsonio.dumps`, whatever their lengths are together."""
    if _are_short(_sizes(values)):
        return values
    return LongJson(b"[%b]" % b",".join([_members(values[at : at + MANY]) for at in range(0, len(values), MANY)]))


def _members(part: list[str]) -> bytes:
    if len("".join(part)) <= LONGEST:
        return orjson.dumps(part)[1:-1]
    if len(part) == 1:
        return json_of(part[0])
    half = len(part) // 2
    return b"%b,%b" % (_members(part[:half]), _members(part[half:]))


def _escaped(part: str) -> bytes:
    plain = part.encode()
    if b'"' in plain or b"\\" in plain or np.frombuffer(plain, np.uint8).min() < ord(" "):
        return encode_basestring(part)[1:-1].encode()
    return plain


def texts(values: list[str]) -> list[Any]:
    """Returns each text for `jsonio.dumps`, whatever their lengths are, also together if there are not very many."""
    sizes = _sizes(values)
    if _are_short(sizes):
        return values
    longest = LONGEST if sum(sizes) <= ALTOGETHER else FEW
    return [LongJson(json_of(each)) if len(each) > longest else each for each in values]


def _sizes(values: list[str]) -> list[int]:
    """Returns the lengths of MANY texts together. To join short ones takes a quarter of the time of a look at each."""
    if len(values) <= MANY:
        return [len("".join(values))]
    return [len("".join(values[at : at + MANY])) for at in range(0, len(values), MANY)]


def _are_short(sizes: list[int]) -> bool:
    return max(sizes) <= LONGEST and sum(sizes) <= ALTOGETHER
