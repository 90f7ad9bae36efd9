"""A look at a long JSON text for the few short members at its start, without parsing what follows."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

START: Final = 4096
"""Bytes of a text that are read."""
BEFORE: Final = rb'\s*+\{(?:\s*+"[^"\\]*+"\s*+:\s*+"[^"\\]*+"\s*+,)*?\s*+"(?:%b)"\s*+:\s*+"([^"\\]*+)"\s*+[,}]'
"""Matches an object up to a member that is plain text. Only members of plain text are before it."""


def member(body: bytes | memoryview, spellings: Sequence[str]) -> str | None:
    """Returns the text of an object's member, "" if the object has none; None if that takes a parser to find out.

    >>> member(b'{"id": "1", "model": "a", "data": [1, 2]}', ["model"]), member(b'{"data": []}', ["model"])
    ('a', '')
    """
    content = bytes(body)
    count = sum(content.count(b'"%b"' % spelling.encode()) for spelling in spellings)
    if not count:
        return None if b"\\u" in content[:START] else ""
    found = _pattern(tuple(spellings)).match(content[:START]) if count == 1 else None
    try:
        return None if found is None else found[1].decode()
    except UnicodeDecodeError:
        return None


@cache
def _pattern(spellings: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(BEFORE % "|".join(spellings).encode())
