"""core.encoding.structure: the counts are those of the objects that the standard library would make."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.encoding import structure
from core.encoding.structure import MOST_ARRAYS, MOST_MEMBERS, Structure, check_structure
from core.errors import TooMany

TEXTS = st.text(st.sampled_from('[]{}:"\\ a'), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)


def counted(value: Any) -> tuple[int, int]:
    """Returns the arrays and objects, and the members, of a value."""
    if isinstance(value, str | int):
        return 0, 0
    below = [counted(each) for each in (value.values() if isinstance(value, dict) else value)]
    own = len(value) if isinstance(value, dict) else 0
    return 1 + sum(arrays for arrays, _ in below), own + sum(members for _, members in below)


@settings(deadline=None)
@given(value=VALUES, size=st.integers(1, 9))
def test_strings_do_not_count_wherever_a_slice_ends(value: Any, size: int) -> None:
    """Brackets, colons, quotes and backslashes in strings are text."""
    content = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "SLICE", size)
        found = tuple(structure._outside_strings(content, each) for each in (b"[{", b":"))
    assert found == counted(value)


@pytest.mark.parametrize(
    ("unit", "most", "told"),
    [
        ("[],", MOST_ARRAYS, "arrays and objects"),
        ('{"":0},', MOST_ARRAYS, "arrays and objects"),
        ('"":0,', MOST_MEMBERS, "members"),
    ],
)
def test_a_text_has_a_most_of_each(unit: str, most: int, told: str) -> None:
    """The last accepted number and the first refused number are tried."""
    check_structure((unit * most).encode())
    with pytest.raises(TooMany, match=f"the JSON has {most + 1} {told}; at most {most} are read"):
        check_structure((unit * (most + 1)).encode())


def test_texts_of_brackets_are_not_arrays() -> None:
    """Texts may contain any number of them."""
    check_structure(b'["' + b"[" * (MOST_ARRAYS + 1) + b'"]')


def test_a_text_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule holds however often its reader begins to make objects."""
    counts: list[int] = []
    monkeypatch.setattr(structure, "check_structure", lambda body: counts.append(len(body)))
    text = Structure(b"[]")
    text.check()
    text.check()
    assert counts == [2]
