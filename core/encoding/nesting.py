"""The lists of parsed JSON: their elements in row-major order, and the shape of their nesting."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any


class Ragged(Exception):
    """Lists of unequal lengths, or lists beside values. Its text is the rest of a sentence about the lists."""


def regular(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the elements of regularly nested lists, and their shape. Raises Ragged.

    >>> regular([[1, 2, 3], [4, 5, 6]])
    ([1, 2, 3, 4, 5, 6], (2, 3))
    """
    flat: list[Any] = [value]
    shape: list[int] = []
    while True:
        kinds = set(map(type, flat))
        if list not in kinds:
            return flat, tuple(shape)
        sizes = set(map(len, flat)) if len(kinds) == 1 else ()
        if len(sizes) != 1:
            raise Ragged(f"is ragged: at depth {len(shape)} not all members are arrays of one length")
        shape += sizes
        flat = list(chain.from_iterable(flat))


def flatten(data: Sequence[Any]) -> Sequence[Any]:
    """Returns the elements of lists with any nesting, in row-major order, in time linear in their text."""
    while True:
        kinds = set(map(type, data))
        if list not in kinds:
            return data
        if len(kinds) > 1:
            return list(_walk(data))
        data = list(chain.from_iterable(data))


def _walk(data: Sequence[Any]) -> Iterator[Any]:
    """Yields elements where lists and elements are mixed, one by one: a rebuild per level would be quadratic."""
    stack = [iter(data)]
    while stack:
        for value in stack[-1]:
            if type(value) is list:
                stack.append(iter(value))
                break
            yield value
        else:
            stack.pop()
