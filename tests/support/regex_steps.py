"""Counts the steps that a backtracking matcher, such as Python's own, takes for a regular expression.

The matcher below reads the standard library's parse tree of a pattern and does what sre does, one step per attempt at
a node. sre itself does not report its steps, and a clock would make a test fail by chance.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, groupby, islice
from re import _constants as op  # type: ignore[attr-defined] # the parse tree has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

WORD = re.compile(r"\w")


REPEATS = (op.MAX_REPEAT, op.POSSESSIVE_REPEAT)
CHARACTER = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
"""Nodes that take one character."""
NEVER = str(parser.parse("(?!)"))
"""The parse tree of an expression that matches nothing."""
UNTIL = 80
"""Longer repetitions are not cut: they are too long for a constant."""


def _parse(pattern: re.Pattern[Any]) -> Any:
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return parser.parse(text, pattern.flags & ~re.UNICODE)


@cache
def parsed(pattern: re.Pattern[Any]) -> Any:
    """Returns the standard library's parse tree."""
    return _parse(pattern)


@cache
def cut(pattern: re.Pattern[Any]) -> Any:
    """Returns the parse tree with [0-9]{64} as [0-9]{4}, and so on.

    A repetition of one character that has a bound adds at most that many steps to an attempt, in any text. The cut one
    adds fewer, and neither grows with the text. In a text that repeats one character or two, what follows begins at
    the same one of them: odd bounds stay odd, and even ones even.
    """
    tree = _parse(pattern)
    waiting: list[Any] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, parser.SubPattern):
            item.data = [_cut_node(node) for node in item.data]
            waiting += item.data
        elif isinstance(item, tuple | list):
            waiting += item
    return tree


def _cut_node(node: Any) -> Any:
    kind, value = node
    if kind not in REPEATS or len(value[2].data) != 1 or value[2].data[0][0] not in CHARACTER:
        return node
    least, most, body = value
    if most is op.MAXREPEAT or not 4 < most <= UNTIL:
        return node
    shorter = _shortened(least)
    longer = _shortened(most)
    return kind, (shorter, longer if shorter <= longer else longer + 2, body)


def _shortened(bound: int) -> int:
    return bound if bound <= 4 else 4 - bound % 2


class Steps:
    """`taken`: attempts at a node of the pattern so far. `tree`: parsed(pattern) or cut(pattern)."""

    def __init__(self, pattern: re.Pattern[Any], tree: Any = None) -> None:
        self._flags, self._tree = pattern.flags, (tree or parsed(pattern)).data
        self._taking: dict[tuple[int, str], bool] = {}
        self.taken = 0

    def fullmatch(self, text: str) -> bool:
        """Returns the same as re.fullmatch."""
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
        if len(nodes) == 1:
            yield from self._node(nodes[0], text, at)
            return
        for end in self._node(nodes[0], text, at):
            yield from self._sequence(nodes[1:], text, end)

    def _node(self, node: Any, text: str, at: int) -> Iterator[int]:
        self.taken += 1
        kind, value = node
        if kind in _KINDS:
            yield from _KINDS[kind](self, value, text, at)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            start = at - value[1].getwidth()[0] if value[0] < 0 else at
            found = start >= 0 and next(self._sequence(value[1].data, text, start), None) is not None
            if found == (kind is op.ASSERT):
                yield at
        elif at < len(text) and kind is not op.FAILURE:
            key = id(node), text[at]
            if key not in self._taking:
                self._taking[key] = takes(kind, value, text[at], self._flags)
            if self._taking[key]:
                yield at + 1

    def _group(self, value: Any, text: str, at: int) -> Iterator[int]:
        return self._sequence(value[-1].data, text, at)

    def _atomic(self, value: Any, text: str, at: int) -> Iterator[int]:
        return islice(self._sequence(value.data, text, at), 1)

    def _branch(self, value: Any, text: str, at: int) -> Iterator[int]:
        return chain.from_iterable(self._sequence(branch.data, text, at) for branch in value[1])

    def _anchor(self, value: Any, text: str, at: int) -> Iterator[int]:
        return iter((at,) if self._is_at(value, text, at) else ())

    def _greedy(self, value: Any, text: str, at: int) -> Iterator[int]:
        return self._repeat(*value, text, at)

    def _possessive(self, value: Any, text: str, at: int) -> Iterator[int]:
        return islice(self._repeat(*value, text, at), 1)

    def _repeat(self, least: int, most: Any, body: Any, text: str, at: int) -> Iterator[int]:
        """Yields the ends of a greedy repetition, the longest first; without recursion, as sre keeps a stack."""
        nodes, ends, tries = body.data, [at], [self._sequence(body.data, text, at)]
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


_KINDS: Any = {
    op.SUBPATTERN: Steps._group, op.BRANCH: Steps._branch, op.AT: Steps._anchor, op.MAX_REPEAT: Steps._greedy,
    op.POSSESSIVE_REPEAT: Steps._possessive, op.ATOMIC_GROUP: Steps._atomic,
}  # fmt: skip


CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


def takes(kind: Any, value: Any, character: str, flags: int) -> bool:
    """Decides whether a node takes a character."""
    if kind is op.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.NOT_LITERAL:
        return ord(character) != value
    if kind is not op.IN:
        raise AssertionError(f"the counter does not know the node {kind}")
    negate = value[0][0] is op.NEGATE
    return any(_is_in(item, character) for item in value[negate:]) != negate


def _is_in(item: Any, character: str) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    return bool(re.match(CATEGORIES[value], character))


def characters(pattern: re.Pattern[Any]) -> list[str]:
    """Returns characters that a pattern tells apart: its literals, one of each set, and one that it does not name."""
    found: dict[str, None] = {}
    waiting: list[Any] = [parsed(pattern)]
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


def loses_its_place(pattern: re.Pattern[Any]) -> bool:
    """Decides whether Python before 3.11.5 goes on in a wrong place (python/cpython#106052).

    That is behind a possessive group whose last repetition failed after it had taken something, unless `(?!)` was its
    last alternative, or what failed was a single character, for which sre does not move.
    """
    waiting: list[Any] = [parsed(pattern)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple) and len(item) == 2 and item[0] is op.POSSESSIVE_REPEAT:
            body = item[1][2].data
            branches = body[0][1][1] if len(body) == 1 and body[0][0] is op.BRANCH else [item[1][2]]
            gives_back = str(branches[-1]) == NEVER
            if not gives_back and any(kind not in CHARACTER for each in branches for kind, _ in each.data[1:]):
                return True
        if isinstance(item, tuple | list | parser.SubPattern):
            waiting += list(item)
    return False


WORDS = 4
"""Different characters in a run of literals that no text of the attacks contains."""


def classes(pattern: re.Pattern[Any]) -> list[str]:
    """Returns one of the `characters` for each set of nodes that take the same ones.

    The matcher takes the same steps for two characters that the same nodes take. The literals of a word, such as
    localhost, count for none: a text that repeats two characters has no four different ones in a row, so the matcher
    leaves a word after a few steps, and what follows the word is never tried.
    """
    nodes: list[Any] = []
    waiting: list[Any] = [parsed(pattern)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, parser.SubPattern):
            waiting += _without_words(item.data)
        elif isinstance(item, tuple) and item and any(item[0] is kind for kind in CHARACTER):
            nodes.append(item)
        elif isinstance(item, tuple | list):
            waiting += item
    found: dict[tuple[bool, ...], str] = {}
    for character in reversed(characters(pattern)):
        taken = (takes(*node, character, pattern.flags) for node in nodes)
        found.setdefault((bool(WORD.match(character)), *taken), character)
    return list(found.values())[::-1]


def _without_words(nodes: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for is_literal, run in groupby(nodes, key=lambda node: node[0] is op.LITERAL):
        members = list(run)
        if not is_literal or len({node[1] for node in members}) < WORDS:
            kept += members
    return kept
