"""core.jsonio: three readers that must agree, and a writer whose text must read back the same."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import jsonio
from core.errors import InvalidInput

PAD = " " * jsonio.WORTH_SIMD
DATA = frozenset({"data"})


def plain(value: Any) -> Any:
    """Arrays as the lists they stand for."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text() | st.just("inputs"), inner, max_size=20),
    max_leaves=30,
)


@given(JSON)
def test_the_fast_reader_reads_what_the_standard_library_reads(value: Any) -> None:
    """Any JSON value, long enough for every reader."""
    text = json.dumps(value).encode()
    assert plain(jsonio.loads(PAD.encode() + text)) == value
    assert jsonio.loads(text) == value
    assert jsonio.loads_exact(text) == value


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("[1, 2]", "i", [1, 2]),
        ("[[1], [-2]]", "i", [1, -2]),
        ("[1, 18446744073709551615]", "u", [1, 2**64 - 1]),
        ("[1, 2.5]", "f", [1.0, 2.5]),
        ("[]", "i", []),
        ("[true, 1]", None, [True, 1]),
        ('["a"]', None, ["a"]),
        ("[null, 1]", None, [None, 1]),
        ("5", None, 5),
    ],
)
def test_lists_of_plain_numbers_come_as_arrays_where_they_are_long(
    pad: str, text: str, kind: str | None, expected: Any
) -> None:
    """Integers stay integers; what is mixed stays a list."""
    value = jsonio.loads(f'{pad}{{"inputs": [{{"data": {text}}}]}}'.encode(), DATA)["inputs"][0]["data"]
    if pad and kind is not None:
        assert value.dtype.kind == kind
        value = value.tolist()
        assert value == expected
    elif kind is None:
        assert value == expected


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
def test_of_equal_keys_the_last_one_counts(pad: str) -> None:
    """Whatever reader it was."""
    assert jsonio.loads(f'{pad}{{"a": 1, "a": 2}}'.encode()) == {"a": 2}


def test_objects_of_many_members_are_read_whole() -> None:
    """A look-up per member would be quadratic."""
    value = {str(index): [index] for index in range(1000)}
    assert jsonio.loads(json.dumps(value).encode().rjust(jsonio.WORTH_SIMD)) == value


def test_tokens_that_json_does_not_have_are_read() -> None:
    """Python's and C++'s clients write them."""
    value = jsonio.loads(b'{"a": [NaN, Infinity, -Infinity]}')["a"]
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf]


def test_numbers_beyond_everything_are_no_numbers() -> None:
    """They keep their text for the message, and no check takes them."""
    small, large = jsonio.loads_exact(b"[1e999, " + b"9" * 5000 + b"]")
    assert repr(small) == "1e999"
    assert repr(large) == "9" * 5000
    assert jsonio.loads_exact(b"[" + b"9" * 399 + b", 1.5]") == [int("9" * 399), 1.5]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{} x", "not JSON"),
        (b"\xff", "not UTF-8: byte"),
        (b"[" * 100_000, "nested too deeply"),
        (rb'["\ud800"]', "lone surrogate"),
        (rb'{"\udfff": 1}', "lone surrogate"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(body: bytes, message: str) -> None:
    """Short or long."""
    for text in (body, PAD.encode() + body):
        with pytest.raises(InvalidInput, match=message):
            jsonio.loads(text)


def test_pairs_of_surrogates_are_text() -> None:
    """Only lone ones are not."""
    assert jsonio.loads(rb'["\ud83e\udd9c", NaN]')[0] == "\U0001f99c"


def test_a_byte_order_mark_is_no_mistake() -> None:
    """Windows tools write it."""
    assert jsonio.loads(b"\xef\xbb\xbf{}") == {}


def test_without_the_simd_reader_everything_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no wheel of it for every Python."""
    monkeypatch.setattr(jsonio, "_simd", lambda: None)
    assert jsonio.loads(PAD.encode() + b'{"data": [1, 2.5]}', DATA) == {"data": [1, 2.5]}


def test_a_missing_simd_reader_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at the first long text."""
    monkeypatch.setitem(__import__("sys").modules, "simdjson", None)
    assert jsonio._simd.__wrapped__() is None


def test_a_parser_grown_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buffers are several times the text and never shrink."""
    monkeypatch.setattr(jsonio, "_parsers", [])
    jsonio.loads(PAD.encode() + b"[1]")
    assert len(jsonio._parsers) == 1
    monkeypatch.setattr(jsonio, "KEPT_PARSER", 10)
    jsonio.loads(PAD.encode() + b"[1]")
    assert jsonio._parsers == []


@pytest.mark.parametrize("width", ["f2", "f4", "f8"])
def test_floats_are_written_in_the_shortest_digits_of_their_own_width(width: str) -> None:
    """0.1 is 0.1 and reads back as the same bits."""
    array = np.array([0.1, -0.0, 3.0, np.finfo(width).max, np.finfo(width).smallest_subnormal], width)
    text = jsonio.dumps(jsonio.numbers(array))
    assert np.array_equal(np.array(json.loads(text), width), array)
    if width != "f2":
        assert text.startswith(b"[0.1,-0.0,3.0,")


@pytest.mark.parametrize("width", ["f2", "f4", "f8"])
def test_what_is_not_finite_is_written_as_text_that_numpy_reads_back(width: str) -> None:
    """Strict JSON in any position; null where the operator wants it."""
    array = np.array([[math.nan, 1.5], [-math.inf, math.inf]], width)
    text = jsonio.dumps({"data": jsonio.numbers(array)})
    assert text == b'{"data":["NaN",1.5,"-Infinity","Infinity"]}'
    assert np.array_equal(np.array(json.loads(text)["data"], width), array.reshape(-1), equal_nan=True)
    assert jsonio.dumps(jsonio.numbers(array, as_null=True)) == b"[null,1.5,null,null]"
