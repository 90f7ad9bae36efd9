"""RapidJSON's spellings of numbers beyond JSON: Inf and -NaN. TensorFlow Serving's clients may send them."""

import re
from collections.abc import Iterator
from typing import Final

SPELLINGS: Final = {"Inf": "Infinity", "-NaN": "NaN"}
"""The spellings of Python's reader."""
WORD: Final = re.compile(r'(?s)"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|-NaN\b|\bInf\b')
"""Matches strings, to skip them, and the words.

A string without an end matches up to the end of the text. Otherwise each quote in it would start another search for an
end, in time that grows with the square of the text's length.
"""
LONGEST: Final = max(map(len, SPELLINGS))
WINDOW: Final = 2**16
"""Characters that are searched at once. No other thread runs meanwhile."""


def words(text: str) -> Iterator[re.Match[str]]:
    """Yields where a text has one of the words outside of its strings, in time linear in its length."""
    if not any(word in text for word in SPELLINGS):
        return
    start, size = 0, WINDOW
    while start < len(text):
        end = start + size
        after = max(start, end - LONGEST)  # a word may be cut off
        for found in WORD.finditer(text, start, end):
            if found.end() == end < len(text):  # this match may be cut off, too
                after = found.start()
                break
            after = max(after, found.end())
            if found[0] in SPELLINGS:
                yield found
        size = WINDOW if after > start else 2 * size
        start = after if end < len(text) else len(text)


def spelled(text: str) -> str:
    """Returns the text with the spellings of Python's reader."""
    pieces: list[str] = []
    start = 0
    for found in words(text):
        pieces += (text[start : found.start()], SPELLINGS[found[0]])
        start = found.end()
    return "".join((*pieces, text[start:])) if pieces else text
