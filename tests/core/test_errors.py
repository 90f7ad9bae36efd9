"""core.errors: the classes, their faults and statuses, and texts."""

import math
from typing import Any

import numpy as np
import pytest

from core import errors
from core.errors import Fault, InvalidInput, ServingError, VersionNotFound, copied, shown
from core.wire import STATUS


def leaves(kind: type[ServingError]) -> list[type[ServingError]]:
    """Returns every class below, itself included."""
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


def test_every_class_of_the_module_stands_in_its_drawing_with_its_fault() -> None:
    """The tree in the docstring has every class."""
    assert errors.__doc__ is not None
    drawn = dict(line.replace("|", " ").split()[1:3] for line in errors.__doc__.splitlines() if "--" in line)
    here = {kind.__name__: kind.fault.name for kind in leaves(ServingError) if kind.__module__ == errors.__name__}
    del here["ServingError"]
    assert drawn == here


def test_every_fault_has_an_http_status() -> None:
    """No fault depends on a default."""
    assert set(STATUS) == set(Fault)


def test_a_message_never_breaks_the_answer_that_carries_it() -> None:
    """Lone surrogates come from model code and parsed JSON."""
    assert InvalidInput("a\ud800b").message == "a?b"


def test_a_copy_of_an_error_has_all_but_its_traceback() -> None:
    """And the pause that it is given."""
    with pytest.raises(VersionNotFound) as raised:
        raise VersionNotFound("no", "7", model="m", hint="why")
    made = copied(raised.value, 2.5)
    assert isinstance(made, VersionNotFound)
    assert (made.message, made.version, made.model, made.hint, made.retry_after) == ("no", "7", "m", "why", 2.5)
    assert (str(made), made.__traceback__) == ("no", None)


class Counted:
    """Counts how often one of them was written."""

    number = 0

    def __repr__(self) -> str:
        Counted.number += 1
        return "c"


@pytest.mark.parametrize("wrapped", [
    lambda each: each, lambda each: [each], lambda each: {"a": each}, lambda each: {"a": [{"b": each}]},
    lambda each: [[1], each], lambda each: {Counted(): each},
])  # fmt: skip
@pytest.mark.parametrize("made", [lambda each: [each] * 10**6, lambda each: dict.fromkeys(range(10**6), each)])
def test_no_more_of_a_value_is_made_than_is_shown(wrapped: Any, made: Any) -> None:
    """A client chooses the size of a value that its refusal quotes, and where in it the long part is."""
    Counted.number = 0
    assert len(shown(wrapped(made(Counted())))) <= 256
    assert 0 < Counted.number < 256


def test_a_value_may_be_nested_to_any_depth() -> None:
    """No level beyond those that are shown is looked at."""
    deep: Any = 1
    for level in range(100_000):
        deep = {"a": deep} if level % 2 else [deep]
    assert shown(deep) == "{'a': [" * 36 + "{..."


@pytest.mark.parametrize(("value", "text"), [
    ("x", "'x'"),
    ("a\nb", r"'a\nb'"),
    (b"\xff", r"'\xff'"),
    ([1] * 10_000, "[" + "1, " * 84 + "..."),
    ({"a": 1, 2: [None, (1,)]}, "{'a': 1, 2: [null, (1,)]}"),
    ([True, {"a": False}, "None", "nan"], "[true, {'a': false}, 'None', 'nan']"),
    ([math.nan, math.inf, -math.inf], "[NaN, Infinity, -Infinity]"),
    (math.nan, "NaN"),
    ({"a": [[1] * 9] * 10_000}, "{'a': [" + ("[" + ", ".join("1" * 9) + "], ") * 8 + "[1, 1, 1, 1, 1..."),
    (np.ones((2, 1, 9), int), "[[[" + ", ".join("1" * 9) + "]], [[" + ", ".join("1" * 9) + "]]]"),
    (np.ones((9,) * 5, bool), str(np.ones((9,) * 5, bool).tolist()).lower()[:253] + "..."),
    (None, "null"),
    (True, "true"),
])  # fmt: skip
def test_a_value_is_shown_on_one_line_of_bounded_length(value: object, text: str) -> None:
    """It has at most 256 characters."""
    assert shown(value) == text
    assert len(shown(value)) <= 256
