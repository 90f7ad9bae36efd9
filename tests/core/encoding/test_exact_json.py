"""core.encoding.exact_json: what was read is written so that it reads back the same."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.encoding import exact_json, jsonio
from core.encoding.exact_json import dumps_exact
from core.encoding.long_json import LONGEST
from core.errors import InvalidInput

READ = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("null"),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=30,
)


@given(READ)
def test_any_value_reads_back_the_same(value: Any) -> None:
    """The standard library reads the same."""
    text = dumps_exact(value)
    assert json.loads(text) == jsonio.loads_exact(text) == value


def test_a_long_text_reads_back_the_same() -> None:
    """It may be a key, a value, or an element of a list."""
    text = '"\u00e9' * LONGEST
    value = {text: text, "a": [1, text, "b"]}
    assert json.loads(dumps_exact(value)) == value


def test_text_of_more_levels_than_python_writes_is_refused() -> None:
    """A reader takes 1024, more than Python 3.11 writes. One record of a batch would else end all others."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="nested too deeply"):
        dumps_exact(value)


def test_what_was_read_can_be_written_to_be_read_again() -> None:
    """The values go beyond strict JSON."""
    text = dumps_exact(jsonio.loads_lists(b'{"a":[NaN,18446744073709551617],"b":"\xc3\xa9"}'))
    assert text == b'{"a":[NaN,18446744073709551617],"b":"\xc3\xa9"}'
    with pytest.raises(InvalidInput, match="the number 1e999 is beyond every double"):
        dumps_exact(jsonio.loads_exact(b"[1e999]"))


@pytest.mark.parametrize("unit", [1.5, math.nan, None, 2**70, "null"], ids=str)
@pytest.mark.parametrize("nest", [
    lambda row: row, lambda row: {"a": {"b": row}, "c": []}, lambda row: [[row], [{}, row]],
], ids=["flat", "object", "lists"])  # fmt: skip
def test_a_long_list_is_written_in_pieces(nest: Any, unit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers stop all other threads until they return, for seconds if they wrote a long list at once."""
    sizes: list[int] = []

    def noting(write: Any) -> Any:
        def noted(value: Any, **options: Any) -> Any:
            sizes.append(len(repr(value)))
            return write(value, **options)

        return noted

    value = nest([unit] * 1000)
    expected = json.dumps(value, separators=(",", ":")).encode()
    monkeypatch.setattr(exact_json, "TOGETHER", 10)
    for writer in (orjson, json):
        monkeypatch.setattr(writer, "dumps", noting(writer.dumps))
    assert dumps_exact(value) == expected
    assert max(sizes) <= len(repr([unit] * 10))
