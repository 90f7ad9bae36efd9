"""Limits the parts and the bytes of a request, which are counted before objects are made of them.

A part costs a server up to a thousand times what its bytes cost the client: an empty input is two bytes of protobuf,
and microseconds of Python. The bounds are far above what clients send, and far below what a server notices.
"""

import math
from collections.abc import Iterator, Sequence, Sized
from itertools import chain
from typing import Any, Final

from core.errors import InvalidInput, TooLarge, TooMany, shown

MOST_PARTS: Final = 4096
"""The most inputs, outputs, parameters, named values or raw contents of a request. Models have some hundreds."""
MOST_MESSAGES: Final = 1024
"""The most messages of a stream whose requests come as one body."""
MOST_REFUSED: Final = 16
"""The most messages of a stream that are refused in a row; the next refusal ends the stream."""
LONGEST_CALL: Final = 64 * 1024
"""The most bytes of a request that carries no tensors."""
MOST_LEVELS: Final = 32
"""The most arrays and objects around a value in a parameter: models walk through them by recursion."""
RATIO: Final = 20
"""A body may inflate to that many times its size, beyond compression.FREE: tensors as JSON have ratios of 2 to 8."""
MOST_FILLED: Final = 64 * 1024 * 1024
"""The most bytes of inputs that a request leaves to their defaults: an empty row is two bytes long."""
MOST_EMPTY_ROWS: Final = 65_536
"""The most rows of a tensor without elements: [N, 0] in a few bytes would be N rows of an answer."""
MOST_EMPTY: Final = 4 * 1024 * 1024
"""The most elements that its axes would have without the 0: a model that sums over that axis answers with so many."""
MOST_FROM_EMPTY: Final = 64 * 1024 * 1024
"""The most elements in the product of two tensors without elements, as a matrix product along an axis of 0 has them."""


def check_parts(parts: Sized, what: str) -> None:
    """Raises TooMany for more parts than a request may have. `what`: their name in the message."""
    if len(parts) > MOST_PARTS:
        check_number(len(parts), what)


def check_number(count: int, what: str) -> None:
    if count > MOST_PARTS:
        raise TooMany(f"the request has {count} {what}; at most {MOST_PARTS} are accepted")


def check_call(size: int) -> None:
    """Raises TooLarge for a body of `size` bytes that is too long for a request without tensors."""
    if size > LONGEST_CALL:
        raise TooLarge(f"the body has {size} bytes; a request without tensors has at most {LONGEST_CALL}")


def check_values(document: Any) -> None:
    """Raises TooMany for a JSON document of more arrays, objects and other values than a call may have."""
    count = sum(len(level) for level in levels(document))
    if count > MOST_PARTS:
        raise TooMany(f"the JSON has {count} values; a request without tensors has at most {MOST_PARTS}")


def check_levels(name: str, value: Any) -> None:
    """Raises InvalidInput for a parameter of too many arrays and objects around a value."""
    for depth, _ in enumerate(levels(value)):
        if depth > MOST_LEVELS:
            raise InvalidInput(
                f"parameter {shown(name)} has a value in more than {MOST_LEVELS} arrays and objects, one in another"
            )


def levels(value: Any) -> Iterator[Sequence[Any]]:
    """Yields the values of a JSON value, level by level: itself, the members of it, the members of those, ..."""
    level = [value]
    while level:
        yield level
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = list(chain.from_iterable(inner))


def check_filled(size: int) -> None:
    """Raises TooLarge for defaults that would fill too many bytes."""
    if size > MOST_FILLED:
        raise TooLarge(f"the defaults of missing inputs would fill {size} bytes; at most {MOST_FILLED} are filled")


def check_empty(shape: Sequence[int], what: str) -> None:
    """Raises TooMany for a shape with a 0 whose other axes are too long. `what`: the tensor, in the message."""
    rows, others = math.prod(shape[: shape.index(0)]), math.prod(filter(None, shape))
    if rows > MOST_EMPTY_ROWS or others > MOST_EMPTY:
        raise TooMany(
            f"{what} has no elements in its shape {shown([*shape])}; at most {MOST_EMPTY_ROWS} rows, and {MOST_EMPTY} "
            "for all axes that are not 0, are accepted then"
        )


def check_empty_together(shapes: Sequence[Sequence[int]]) -> None:
    """Raises TooMany if a matrix product of two tensors with these shapes, which have a 0, could be too large.

    The product has one of the last two axes of each tensor, and the batch axes that both share. The past keys and
    values of a language model have such a batch in its first step.
    """
    longest = [max(1, *shape[-2:]) for shape in shapes]
    batch = max(math.prod(filter(None, shape)) // size for shape, size in zip(shapes, longest, strict=True))
    one, other = sorted(longest)[-2:]
    count = one * other * batch
    if count > MOST_FROM_EMPTY:
        raise TooMany(
            f"the {len(shapes)} inputs without elements could make a product of {count} elements; at most "
            f"{MOST_FROM_EMPTY} are accepted"
        )
