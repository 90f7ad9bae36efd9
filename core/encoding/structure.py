"""Counts the arrays, objects and members of a JSON text before a parser makes Python objects of them.

An array of two bytes becomes an object of 56, which Python's collector then visits again and again: a million of them
keep the interpreter for seconds. Numbers and strings are cheap beside that, and the text's length bounds them.
"""

from typing import Final

import numpy as np

from core.errors import TooMany

MOST_ARRAYS: Final = 262_144
"""The most arrays and objects that are read as Python's: as many rows. Long arrays of numbers become numpy's."""
MOST_MEMBERS: Final = 262_144
"""The most members of all objects: 10,000 rows of 26 named values."""
SLICE: Final = 1 << 20


class Structure:
    """A text whose structure is counted at most once, when a reader first makes objects of it."""

    def __init__(self, body: bytes | memoryview) -> None:
        self.body = body
        self.is_checked = False

    def check(self) -> None:
        """Raises TooMany as `check_structure` does."""
        if not self.is_checked:
            check_structure(self.body)
            self.is_checked = True


def check_structure(body: bytes | memoryview) -> None:
    """Raises TooMany for a text of too many arrays, objects or members. The content of strings does not count."""
    if len(body) <= MOST_ARRAYS:
        return
    for characters, most, what in ((b"[{", MOST_ARRAYS, "arrays and objects"), (b":", MOST_MEMBERS, "members")):
        if sum(_count(body, character) for character in characters) <= most:
            continue
        count = _outside_strings(bytes(body), characters)
        if count > most:
            raise TooMany(f"the JSON has {count} {what}; at most {most} are read")


def _count(body: bytes | memoryview, character: int) -> int:
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == character))


def _outside_strings(content: bytes, characters: bytes) -> int:
    """Counts characters that are not part of a string, slice by slice, so that no large array is made."""
    if b'"' not in content:
        return sum(_count(content, character) for character in characters)
    if b"\\" in content:
        content = content.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    count, inside = 0, False
    for start in range(0, len(content), SLICE):
        text = np.frombuffer(content, np.uint8, min(SLICE, len(content) - start), start)
        within = np.bitwise_xor.accumulate((text == ord('"')).view(np.uint8)).view(np.bool_) ^ inside
        inside = bool(within[-1])
        count += sum(int(np.count_nonzero((text == character) & ~within)) for character in characters)
    return count
