"""Reads long JSON texts into numpy by simdjson: arrays of plain numbers, in a third of the time of Python's lists.

Raises ValueError, TypeError or RuntimeError for every text that is unusual or wrong; jsonio then reads it by other
means. Proxies are simdjson's objects: each belongs to its parser, and is invalid once the parser reads another text.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from core.encoding.keys import has_all_members
from core.encoding.structure import Structure

WORTH_SIMD: Final = 8192
"""Bytes of text from which simdjson's proxies cost less than they save."""
FEW_MEMBERS: Final = 16
"""An object or array of more members is read as a whole: a proxy for each costs more than its numbers could save."""
KEPT_PARSER: Final = 16 * 1024 * 1024
"""A parser that read more than this is dropped: its buffers are several times the text and never shrink."""
THIN: Final = 32
"""Bytes of text per array below which walking over simdjson's proxies costs more than Python's lists."""
MOST_ELEMENTS: Final = 0xFFFFFF
"""The most elements that simdjson counts in an array (its tape has 24 bits for the count).

pysimdjson allocates a list of the counted size and writes all elements into it, beyond its end.
"""
HEAD: Final = 1024
"""Bytes in which the first array of tensors' elements is looked for."""
TEXTS: Final = re.compile(rb':\s*\[[\[\s]*"')
"""Matches the start of an array of texts as a member. orjson makes them in half of simdjson's time."""
# Idle parsers. One belongs to one caller at a time; list.pop and list.append are atomic, so threads may share the list.
_parsers: list[Any] = []


@cache
def _simd() -> Any:
    """Returns the module, imported with the first long text; None where it is not installed."""
    try:
        import simdjson  # noqa: PLC0415 - 3 ms of cold start
    except ImportError:
        return None
    return simdjson


def suits(body: bytes | memoryview, *, among_texts: bool = False) -> bool:
    """Decides whether simdjson is there, is faster, and counts the elements of the text's arrays right.

    `among_texts`: the first array may have texts, such as the names of columns, and a long one of numbers follows.
    """
    return _simd() is not None and (among_texts or TEXTS.search(body, 0, HEAD) is None) and _is_countable(body)


def loads(body: bytes | memoryview, arrays: frozenset[str], *, nested: bool = True) -> Any:
    """Returns the parsed text; lists under the keys `arrays` may be flat int64, uint64 or double arrays.

    `nested`: a list of lists may be such an array, too. Otherwise raises ValueError where one might be.
    """
    structure = Structure(body)
    reader = _Plain(arrays, structure)
    value = _parsed(body, lambda document: reader.read("", document))
    if not nested:
        _check_visited(reader.visited, _count(body, "["))
    return _whole(value, structure)


def loads_shaped(body: bytes | memoryview, *, among_texts: bool = False) -> Any:
    """Returns the parsed text, nested arrays of numbers as arrays of their own shape. `among_texts`: see `suits`."""
    brackets = _count(body, "[")
    if brackets * THIN >= len(body):
        raise ValueError("too many short arrays")
    structure = Structure(body)
    shaper = _Shaper(structure, among_texts=among_texts)
    return _whole(_parsed(body, lambda document: _shaped(document, brackets, shaper)), structure)


def _whole(value: Any, structure: Structure) -> Any:
    """Returns the value. Raises ValueError if simdjson has made objects of it and may have dropped members."""
    if structure.is_checked and not has_all_members(structure.body, value):
        raise ValueError("a key may be there twice")
    return value


def _is_countable(body: bytes | memoryview) -> bool:
    """Decides whether no array of the text, however deep it is nested, has more than MOST_ELEMENTS elements.

    Each element but the last has a comma behind it, so a text of fewer than two bytes an element needs no look.
    """
    return len(body) < 2 * MOST_ELEMENTS or _count(body, ",") < MOST_ELEMENTS


def _count(body: bytes | memoryview, character: str) -> int:
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))


def _parsed(body: bytes | memoryview, read: Callable[[Any], Any]) -> Any:
    """Returns the result of `read` on simdjson's proxy of the document. `read` must not keep a proxy."""
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


class _Plain:
    """Converts proxies to Python objects; to one array each under the keys `arrays`, if their elements allow it.

    `visited`: the arrays that were looked at, without those inside a converted one.
    """

    def __init__(self, arrays: frozenset[str], structure: Structure) -> None:
        self.visited = 0
        self._arrays = arrays
        self._structure = structure

    def read(self, key: str, value: Any) -> Any:
        if isinstance(value, _simd().Object):
            return _members(value, self.read, self._structure)
        if not isinstance(value, _simd().Array):
            return value
        self.visited += 1
        if key in self._arrays:
            return _elements(value, self._structure)
        if len(value) <= FEW_MEMBERS:
            return [self.read("", member) for member in value]
        self._structure.check()
        return value.as_list()


def _members(value: Any, read: Callable[[str, Any], Any], structure: Structure) -> Any:
    if len(value) > FEW_MEMBERS:
        structure.check()
        return value.as_dict()
    # items() would convert everything below to Python objects. Each look-up walks the members from the first, and
    # treats a key as a C string, which ends at a NUL.
    keys = list(value.keys())
    if any("\0" in key for key in keys):
        structure.check()
        return value.as_dict()
    members = {key: read(key, value[key]) for key in keys}
    if len(members) != len(keys):
        raise ValueError("a look-up finds the first of two equal keys")
    return members


def _elements(value: Any, structure: Structure) -> Any:
    """Returns an array's elements: as one flat array if all are numbers of one kind, else as a list."""
    # An attempt that fails stops at the first element of another type, so three attempts cost hardly more than one.
    for of_type, dtype in (("i", np.int64), ("u", np.uint64), ("d", np.float64)):
        try:
            return np.frombuffer(value.as_buffer(of_type=of_type), dtype)
        except (TypeError, ValueError):
            continue
    structure.check()
    return value.as_list()


def _shaped(document: Any, brackets: int, shaper: "_Shaper") -> Any:
    """Returns the document with arrays in their own shapes.

    Raises ValueError for a text that is better read as lists.
    """
    value = shaper.read("", document)
    _check_visited(shaper.arrays, brackets)
    return value


def _check_visited(arrays: int, brackets: int) -> None:
    """Raises ValueError unless as many arrays were visited as the text has brackets: then none was skipped.

    As a buffer, simdjson returns an array's numbers flat, even if other arrays lie between them.
    """
    if arrays != brackets:
        raise ValueError("an array stands between numbers, or a bracket in a string")


class _Shaper:
    """Reads a document's arrays in their shapes. `arrays`: how many it has visited."""

    def __init__(self, structure: Structure, *, among_texts: bool) -> None:
        self.arrays = 0
        self._among_texts = among_texts
        self._structure = structure

    def read(self, _key: str, value: Any) -> Any:
        if isinstance(value, _simd().Object):
            return _members(value, self.read, self._structure)
        if not isinstance(value, _simd().Array):
            return value
        if len(value) and isinstance(value[0], _simd().Object):
            return self._objects(value)
        shape = self._shape(value)
        elements = _elements(value, self._structure)
        if isinstance(elements, list):
            if self._among_texts and len(shape) == 1:
                return elements
            raise ValueError("not an array of numbers")
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
