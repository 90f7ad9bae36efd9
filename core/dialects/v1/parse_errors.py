"""TensorFlow Serving's words for text that is not JSON, which are RapidJSON's.

It is imported with the first such text. Source: RapidJSON's error/en.h; TF Serving's json_tensor.cc, ParseJson.
"""

import re
from typing import Final

from core.encoding import spellings
from core.encoding.jsonio import TOO_BIG, NotJson

INVALID: Final = "Invalid value."
NO_NAME: Final = "Missing a name for object member."
NO_COMMA: Final = "Expecting ',' delimiter"
WORDS: Final = {
    "Expecting value": INVALID,
    "Illegal trailing comma before end of array": INVALID,
    "Illegal trailing comma before end of object": NO_NAME,
    "Expecting property name enclosed in double quotes": NO_NAME,
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "not UTF-8": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Extra data": "The document root must not be followed by other values.",
    TOO_BIG: "Number too big to be stored in double.",
}
"""RapidJSON's texts by the beginnings of the standard library's."""
AFTER: Final = {
    "{": "Missing a comma or } after an object member.",
    "[": "Missing a comma or ] after an array element.",
}
UNFINISHED: Final = {
    ".": "Miss fraction part in number.",
    "e": "Miss exponent in number.",
    "E": "Miss exponent in number.",
}
"""By the character at which the standard library ends a number that has begun."""
BRACKETS: Final = re.compile(r'(?s)"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]')
"""Matches strings, to skip them, and brackets."""


def parse_error(body: bytes | memoryview, error: NotJson) -> str:
    """Returns TF Serving's text for an error of `jsonio.loads_lists`.

    >>> parse_error(b'{"instances": [1.0,]}', NotJson("", "Expecting value", 19))
    'JSON Parse error: Invalid value. at offset: 19'
    """
    if not bytes(body).strip():
        return "JSON Parse error: The document is empty"
    text = str(body, "utf-8-sig", "replace")
    offset = _sent(text, error.offset)
    if error.reason == NO_COMMA:
        words = _after(text, offset)
    else:
        words = next((words for start, words in WORDS.items() if error.reason.startswith(start)), error.reason)
    return f"JSON Parse error: {words} at offset: {offset}"


def _sent(text: str, offset: int) -> int:
    """Returns the place in a text as it was sent. `offset`: in the text with the reader's spellings of numbers."""
    longer = 0
    for found in spellings.words(text):
        if offset <= found.start() + longer:
            break
        longer += len(spellings.SPELLINGS[found[0]]) - len(found[0])
    return offset - longer


def _after(text: str, offset: int) -> str:
    """Returns the text for a character that stands where a comma is expected."""
    if text[offset - 1].isdigit() and (unfinished := UNFINISHED.get(text[offset : offset + 1])):
        return unfinished
    opened: list[str] = []
    for found in BRACKETS.finditer(text, 0, offset):
        if found[0] in AFTER:
            opened.append(found[0])
        elif found[0] in "]}":
            opened.pop()
    return AFTER[opened[-1]]
