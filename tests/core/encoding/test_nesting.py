"""core.encoding.nesting: the elements of lists, and the shape of their nesting."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.encoding.nesting import Ragged, flatten, regular


@given(
    st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=4), max_leaves=20).filter(
        lambda x: isinstance(x, list)
    )
)
def test_flattening_keeps_the_order_of_any_nesting(data: list[Any]) -> None:
    """The oracle is the recursion that a deep body would break."""

    def leaves(value: Any) -> list[Any]:
        return [x for member in value for x in leaves(member)] if isinstance(value, list) else [value]

    assert list(flatten(data)) == leaves(data)


def test_flattening_is_linear_in_the_text() -> None:
    """A list both wide and deep was quadratic when each level was rebuilt."""
    deep: Any = [0]
    for _ in range(900):
        deep = [deep]
    assert len(flatten([deep] + [1] * 100_000)) == 100_001


@pytest.mark.parametrize(
    ("value", "elements", "shape"),
    [(1, [1], ()), ([], [], (0,)), ([[], []], [], (2, 0)), ([[[1], [2]]], [1, 2], (1, 2, 1)), ([{}, 1], [{}, 1], (2,))],
)
def test_the_shape_of_lists_is_their_nesting(value: Any, elements: list[Any], shape: tuple[int, ...]) -> None:
    """A value alone does not have an axis."""
    assert regular(value) == (elements, shape)


@pytest.mark.parametrize(("value", "depth"), [([1, [2]], 1), ([[1], [2, 3]], 1), ([[[1]], [2]], 2), ([[], 1], 1)])
def test_lists_of_unequal_lengths_are_ragged(value: Any, depth: int) -> None:
    """The text names the depth of the first such place."""
    with pytest.raises(Ragged, match=f"is ragged: at depth {depth} "):
        regular(value)
