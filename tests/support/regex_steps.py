"""Counts the steps that a backtracking matcher takes for a regular expression, as Python's own is one.

The matcher below reads the standard library's parse tree of a pattern and does what sre does, one step per attempt at
a node. sre itself tells nobody how much it tried, and a clock would make a test fail by chance.
"""

from __future__ import annotations

import re
from itertools import chain, islice
from re import _constants as op  # type: ignore[attr-defined] # the parse tree has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORD = re.compile(r"\w")


class Steps:
    """`taken`: attempts at a node of the pattern so far."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        self._flags = pattern.flags
        self._tree = list(parser.parse(text, pattern.flags & ~re.UNICODE))
        self.taken = 0

    def fullmatch(self, text: str) -> bool:
        """Returns what re.fullmatch says."""
        return any(end == len(text) for end in self._sequence(self._tree, text, 0))

    def matches(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans that re.finditer finds, which are what re.sub replaces."""
        found, start = [], 0
        while start <= len(text):
            end = next(self._sequence(self._tree, text, start), None)
            if end is not None:
                found.append((start, end))
            start = start + 1 if end is None or end == start else end
        return found

    def _sequence(self, nodes: Sequence[Any], text: str, at: int) -> Iterator[int]:
        if not nodes:
            yield at
            return
        for end in self._node(nodes[0], text, at):
            yield from self._sequence(nodes[1:], text, end)

    def _node(self, node: Any, text: str, at: int) -> Iterator[int]:
        self.taken += 1
        kind, value = node
        if kind in _KINDS:
            yield from _KINDS[kind](self, value, text, at)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            if (next(self._sequence(list(value[1]), text, at), None) is not None) == (kind is op.ASSERT):
                yield at
        elif at < len(text) and self._takes(kind, value, text[at]):
            yield at + 1

    def _group(self, value: Any, text: str, at: int) -> Iterator[int]:
        return self._sequence(list(value[-1]), text, at)

    def _branch(self, value: Any, text: str, at: int) -> Iterator[int]:
        return chain.from_iterable(self._sequence(list(branch), text, at) for branch in value[1])

    def _anchor(self, value: Any, text: str, at: int) -> Iterator[int]:
        return iter((at,) if self._is_at(value, text, at) else ())

    def _greedy(self, value: Any, text: str, at: int) -> Iterator[int]:
        return self._repeat(*value, text, at)

    def _possessive(self, value: Any, text: str, at: int) -> Iterator[int]:
        return islice(self._repeat(*value, text, at), 1)

    def _repeat(self, least: int, most: Any, body: Any, text: str, at: int) -> Iterator[int]:
        """Yields the ends of a greedy repetition, the longest first; without recursion, as sre keeps a stack."""
        nodes, ends, tries = list(body), [at], [self._sequence(list(body), text, at)]
        while tries:
            end = next(tries[-1], None) if most is op.MAXREPEAT or len(tries) <= most else None
            if end is not None and end > ends[-1]:
                ends.append(end)
                tries.append(self._sequence(nodes, text, end))
                continue
            tries.pop()
            last = ends.pop()
            if len(ends) >= least:
                yield last

    def _is_at(self, where: Any, text: str, at: int) -> bool:
        if where in (op.AT_END, op.AT_END_STRING):
            return at == len(text) or (where is op.AT_END and text[at:] == "\n")
        if where in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return at == 0
        if where is not op.AT_BOUNDARY:
            raise AssertionError(f"the counter does not know the anchor {where}")
        before, after = at > 0 and WORD.match(text[at - 1]), at < len(text) and WORD.match(text[at])
        return bool(before) != bool(after)

    def _takes(self, kind: Any, value: Any, character: str) -> bool:
        if kind is op.ANY:
            return character != "\n" or bool(self._flags & re.DOTALL)
        if kind is op.LITERAL:
            return ord(character) == value
        if kind is op.NOT_LITERAL:
            return ord(character) != value
        if kind is not op.IN:
            raise AssertionError(f"the counter does not know the node {kind}")
        negate = value[0][0] is op.NEGATE
        return any(_is_in(item, character) for item in value[negate:]) != negate


_KINDS: Any = {
    op.SUBPATTERN: Steps._group, op.BRANCH: Steps._branch, op.AT: Steps._anchor, op.MAX_REPEAT: Steps._greedy,
    op.POSSESSIVE_REPEAT: Steps._possessive,
}  # fmt: skip


def _is_in(item: Any, character: str) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    categories = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w"}
    return bool(re.match(categories[value], character))


def characters(pattern: re.Pattern[Any]) -> list[str]:
    """Returns characters that a pattern tells apart: its literals, one of each set, and one that it does not name."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found: dict[str, None] = {}
    waiting: list[Any] = [parser.parse(text, pattern.flags & ~re.UNICODE)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple) and item and item[0] in (op.LITERAL, op.NOT_LITERAL):
            found[chr(item[1])] = None
        elif isinstance(item, tuple) and item and item[0] is op.RANGE:
            found[chr(item[1][1])] = None
        elif isinstance(item, tuple) and item and item[0] is op.IN:
            waiting += item[1][-2:]
        elif isinstance(item, tuple | list | parser.SubPattern):
            waiting += list(item)
        elif item in (op.CATEGORY_DIGIT, op.CATEGORY_WORD):
            found["7"] = None
    return [*found, "\x07"]
