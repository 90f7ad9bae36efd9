"""A look at a long JSON text for the few short members at its start, without parsing what follows."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

START: Final = 4096
"""Bytes of a text that are matched."""
ESCAPE: Final = b"\\u00"
MOST_ESCAPES: Final = 65_536
"""The most escapes that are looked at: thirty milliseconds in which no other thread runs. A parser reads more."""
BEFORE: Final = rb'\s*+\{(?:\s*+"[^"\\]*+"\s*+:\s*+"[^"\\]*+"\s*+,)*?\s*+"(?:%b)"\s*+:\s*+"([^"\\]*+)"\s*+[,}]'
"""Matches an object up to a member that is plain text. Only members of plain text are before it."""


def member(body: bytes | memoryview, spellings: Sequence[str]) -> str | None:
    """Returns the text of an object's member, "" if the object has none; None if that takes a parser to find out.

    >>> member(b'{"id": "1", "model": "a", "data": [1, 2]}', ["model"]), member(b'{"data": []}', ["model"])
    ('a', '')
    """
    content = bytes(body)
    count = sum(content.count(b'"%b"' % spelling.encode()) for spelling in spellings)
    if _may_be_escaped(content, tuple(spellings)):
        return None
    if not count:
        return ""
    found = _pattern(tuple(spellings)).match(content[:START]) if count == 1 else None
    try:
        return None if found is None else found[1].decode()
    except UnicodeDecodeError:
        return None


@cache
def _pattern(spellings: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(BEFORE % "|".join(spellings).encode())


def _may_be_escaped(content: bytes, spellings: tuple[str, ...]) -> bool:
    """Decides whether a text anywhere can be one of the names, written with an escape. Names are ASCII."""
    count = content.count(ESCAPE)
    return count > MOST_ESCAPES or (count > 0 and _escaped(spellings).search(content) is not None)


@cache
def _escaped(spellings: tuple[str, ...]) -> re.Pattern[bytes]:
    """Returns what matches a name from its first escape on. Before that it looks back at as many bytes as are fixed."""
    names = [spelling.encode() for spelling in spellings]
    return re.compile(
        rb"\\u00(?:%b)"
        % b"|".join(
            b'%b(?<="%b\\\\u00..)%b"' % (_digits(name[at]), name[:at], b"".join(map(_character, name[at + 1 :])))
            for name in names
            for at in range(len(name))
        )
    )


def _character(code: int) -> bytes:
    return rb"(?:%c|\\u00%b)" % (code, _digits(code))


def _digits(code: int) -> bytes:
    """Returns what matches a character's two hexadecimal digits."""
    return b"".join(b"[%c%c]" % (digit, digit ^ 32) if digit > ord("9") else b"%c" % digit for digit in b"%02x" % code)
