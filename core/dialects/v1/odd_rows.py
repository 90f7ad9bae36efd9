"""Finds the first row that does not fit, after rows have failed as a whole, and words it as TensorFlow Serving does.

Source: TF Serving's json_tensor.h.
"""

from collections.abc import Container
from functools import partial
from typing import Any, Final

from core.dialects.v1.values import Irregular, elements, flattened, is_named, quoted
from core.dtype import DataType
from core.errors import InvalidInput

ROWS: Final = 512
"""Rows that are checked together, in a fiftieth of the time that each by itself takes."""
FAILED: Final = "Failed to process element: {index} of {what!r} list. Error: INVALID_ARGUMENT: {reason}"
MIXED: Final = "{reason} at item {index} of input list"
Expected = tuple[int, tuple[int, ...]]
"""The number of a row's elements, and their shape."""


class WrongRow(InvalidInput):
    """A row that does not fit. `index`: its place. `reason`: what is wrong. `what`: the member that has the rows.

    `form`: TF Serving's message for it.
    """

    def __init__(self, index: int, reason: str, form: str = FAILED, what: str = "instances") -> None:
        super().__init__(form.format(index=index, reason=reason, what=what))
        self.index = index
        self.reason = reason
        self.form = form


def blame(values: list[Any], datatype: DataType | None, *, are_rows: bool) -> None:
    """Raises WrongRow for the first row that does not fit. Rows that fit together are not examined one by one.

    `datatype` None: any. `are_rows`: the values are the rows themselves, of which none may be an object.
    """
    check = partial(_blame_rows, datatype=datatype, are_rows=are_rows)
    expected = check(values[:1], 0, None)
    for start in range(1, len(values), ROWS):
        rows = values[start : start + ROWS]
        if not _alike(rows, expected[1], datatype):
            check(rows, start, expected)


def _alike(rows: list[Any], shape: tuple[int, ...], datatype: DataType | None) -> bool:
    """Decides whether all rows are values of one shape and of the datatype."""
    if dict in set(map(type, rows)):
        return False
    try:
        flat, found = flattened(rows)
        if datatype is not None:
            elements(flat, datatype)
    except InvalidInput:
        return False
    return found == (len(rows), *shape)


def _blame_rows(
    values: list[Any], start: int, expected: Expected | None, datatype: DataType | None, *, are_rows: bool
) -> Expected:
    """Checks rows one by one against the first, which is returned. `start`: the number of the first of `values`."""
    for index, value in enumerate(values, start):
        if are_rows and is_named(value):
            raise WrongRow(index, "Expecting value/list but got object", MIXED)
        try:
            flat, shape = flattened(value)
            if datatype is not None:
                elements(flat, datatype)
            expected = expected or (len(flat), shape)
            if len(flat) != expected[0]:
                raise Irregular(f"Expecting tensor size: {expected[0]} but got: {len(flat)}")
            if shape != expected[1]:
                raise Irregular(f"Expecting shape {_shape(expected[1])} but got: {_shape(shape)}")
        except InvalidInput as error:
            raise WrongRow(index, error.message) from None
    return expected or (0, ())


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def odd_object(index: int, instance: Any, wanted: set[str], known: Container[str]) -> WrongRow:
    """Returns what is wrong with a row that does not have the `wanted` inputs. `known`: all that a row may have."""
    if not isinstance(instance, dict):
        return WrongRow(index, "Expecting object but got list", MIXED)
    foreign = next((name for name in instance if name not in known), None)
    if foreign is not None:
        problem = f"JSON object: does not have named input: {foreign[:256]}"
    else:
        problem = f"JSON object: {quoted(instance)} keys must be equal to: {','.join(sorted(wanted))[:256]}"
    return WrongRow(index, problem)
