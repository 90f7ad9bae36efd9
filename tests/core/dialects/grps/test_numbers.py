"""core.dialects.grps.numbers: which JSON values are elements of which type."""

import math
from typing import Any

import numpy as np
import pytest

from core.dialects.grps.numbers import flat, nested, scalar, to_bytes
from core.dtype import DATATYPES
from core.encoding.jsonio import Oversized
from core.encoding.simd import WORTH_SIMD
from core.errors import InvalidInput
from tests.support.grps_samples import OWN, by_name

INTEGERS = [row for row in OWN if row.numpy.kind in "iu"]
FLOATS = [row for row in OWN if row.is_float]
MANY = WORTH_SIMD


def elements(datatype: Any, data: Any) -> list[Any]:
    """Returns what a flat_ field's value becomes."""
    found = flat("x", datatype, (len(data),), data)
    assert found.datatype is datatype
    assert found.array.dtype == datatype.numpy
    listed: list[Any] = found.array.tolist()
    return listed


@pytest.mark.parametrize("datatype", INTEGERS, **by_name)
def test_integers_are_numbers_or_strings_to_the_last_digit(datatype: Any) -> None:
    """Both ends of every range are exact, in lists of either and of both."""
    ends = [int(np.iinfo(datatype.numpy).min), int(np.iinfo(datatype.numpy).max), 0]
    assert elements(datatype, ends) == ends
    assert elements(datatype, list(map(str, ends))) == ends
    assert elements(datatype, [ends[0], str(ends[1]), 0]) == ends
    assert elements(datatype, [1.0, "1"]) == [1, 1]
    assert elements(datatype, np.array([1, 0])) == [1, 0]


@pytest.mark.parametrize("count", [3, MANY])
def test_long_lists_of_strings_are_read_as_short_ones_are(count: int) -> None:
    """Another reader reads them."""
    values = [2**53 + 1, -(2**63), 2**63 - 1] * (count // 3)
    assert elements(DATATYPES["INT64"], list(map(str, values))) == values


@pytest.mark.parametrize("datatype", FLOATS, **by_name)
def test_floats_are_numbers_or_strings_and_three_words(datatype: Any) -> None:
    """Lists may mix them."""
    assert elements(datatype, [1, 0.5, "2", "-1.5", "25e-2"]) == [1, 0.5, 2, -1.5, 0.25]
    nan, infinite, negative, one = elements(datatype, ["NaN", "Infinity", "-Infinity", "1"])
    assert math.isnan(nan)
    assert (infinite, negative, one) == (math.inf, -math.inf, 1)


def test_strings_are_bytes_of_their_utf8() -> None:
    """An empty list is not an element of any type."""
    assert elements(DATATYPES["BYTES"], ["żółw", ""]) == ["żółw".encode(), b""]
    assert all(elements(datatype, []) == [] for datatype in OWN)


@pytest.mark.parametrize(("name", "data", "told"), [
    ("INT8", ["-129"], "-129, which is out of range for INT8"),
    ("INT64", ["9223372036854775808"], "9223372036854775808, which is out of range"),
    ("INT64", ["1" + "0" * 98], "an integer of 99 digits, which is out of range"),
    ("INT64", ["9" * 101], "where INT64 needs integers"),
    ("FP16", ["65520"], "65520.0, which is out of range for FP16"),
    ("FP64", ["1e400"], "1e400, which is out of range for FP64"),
    ("FP32", [1, Oversized("-1e400")], "-1e400, which is out of range for FP32"),
    ("INT64", ["1", Oversized("1e400")], "1e400, which is out of range for INT64"),
    ("BYTES", [Oversized("1e400")], "1e400 where BYTES needs strings"),
    ("BYTES", [1], "1 where BYTES needs strings"),
    ("BYTES", ["a", None], "null where BYTES"),
    ("BYTES", [["a"]], "'a'.* where BYTES"),
    ("FP32", np.ones((2, 2)), r"\[\[1.0, 1.0\]\] where FP32 needs numbers"),
    ("FP32", {"a": 1}, "as flat_float32; expected an array"),
    ("INT32", 5, "5 as flat_int32; expected an array"),
    ("INT32", ["1,2", "3"], "'1,2' where INT32 needs integers"),
    ("INT32", ["1", ""], "'' where INT32"),
])  # fmt: skip
def test_what_is_no_element_is_refused_by_its_name_and_value(name: str, data: Any, told: str) -> None:
    """It is never wrapped, cut, or made infinite."""
    with pytest.raises(InvalidInput, match=f"input 'x' has .*{told}"):
        flat("x", DATATYPES[name], (len(data) if hasattr(data, "__len__") else 1,), data)


@pytest.mark.parametrize(
    "odd", [None, True, [1], {}, "a", " 1", "+1", "0x1", "01", "1_0", "inf", "nan", "1.", ".5", "\u0661"]
)
@pytest.mark.parametrize("datatype", [DATATYPES["INT32"], DATATYPES["FP32"]], **by_name)
def test_what_only_looks_like_a_number_is_none(datatype: Any, odd: Any) -> None:
    """The rule holds alone, beside numbers and beside strings."""
    for data in ([odd], [odd, 1], [odd, "1"]):
        with pytest.raises(InvalidInput, match=f"where {datatype.name} needs"):
            flat("x", datatype, (len(data),), data)


def test_the_number_of_elements_is_the_shapes() -> None:
    """Without a shape, there is one element."""
    assert flat("x", DATATYPES["INT8"], (), [1]).array.shape == ()
    assert flat("x", DATATYPES["INT8"], (0, 3), []).array.shape == (0, 3)
    with pytest.raises(InvalidInput, match=r"input 'x' has 0 elements; its shape \[\] needs 1"):
        flat("x", DATATYPES["INT8"], (), [])


@pytest.mark.parametrize("value", [5, "5", 5.0])
def test_a_single_number_has_no_dimension(value: Any) -> None:
    """It is a value of a map."""
    found = scalar("x", DATATYPES["INT64"], value).array
    assert (found.shape, found.item()) == ((), 5)


@pytest.mark.parametrize(("value", "expected"), [
    (0, 0.0), ([1, 2.5], [1.0, 2.5]), ([[[1]], [[2]]], [[[1.0]], [[2.0]]]), (np.ones((1, 2)), [[1.0, 1.0]]),
])  # fmt: skip
def test_nested_lists_are_fp32_in_their_own_shape(value: Any, expected: Any) -> None:
    """A number alone is a scalar."""
    found = nested("ndarray", value)
    assert found.datatype is DATATYPES["FP32"]
    assert found.array.tolist() == expected


def test_what_json_has_no_number_for_may_stand_between_numbers() -> None:
    """Such a token is accepted as it is written."""
    assert np.isnan(nested("ndarray", ["NaN", 1]).array).tolist() == [True, False]


def deep(depth: int) -> Any:
    """Returns one number nested in this many lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [[True], [1, None], [1e300], np.array([1e300])])
def test_a_refusal_of_ndarray_names_the_member_and_not_an_input(value: Any) -> None:
    """The model's input has a name of its own. Every text has the same name for the datatype, too."""
    with pytest.raises(InvalidInput, match=r"^'ndarray' has .* (where|out of range for) FP32") as refused:
        nested("ndarray", value)
    assert "DT_" not in refused.value.message


@pytest.mark.parametrize(("value", "told"), [
    ([], r"'ndarray' is \[\]; an array without numbers"),
    ([[], []], "an array without numbers"),
    ([[1], [1, 2]], "'ndarray' is ragged: at depth 1"),
    ([1, [2]], "'ndarray' is ragged: at depth 1"),
    ([[[1]], [2]], "'ndarray' is ragged: at depth 2"),
    ([1, None], "null where FP32"),
    ([True], "true where FP32"),
    (["1"], "'1' where FP32 needs numbers"),
    ("a", "'a' where FP32"),
    ({"a": 1}, "where FP32"),
    ([1e300], "out of range for FP32"),
    ([1, Oversized("1e400")], "has 1e400, which is out of range for FP32"),
    (deep(33), "more than 32 dimensions"),
    (np.ones((1,) * 33), "more than 32 dimensions"),
    (np.ones(0), "an array without numbers"),
])  # fmt: skip
def test_what_is_no_array_of_numbers_is_refused(value: Any, told: str) -> None:
    """Booleans are refused too, although GRPS's python server counts them."""
    with pytest.raises(InvalidInput, match=told):
        nested("ndarray", value)


@pytest.mark.parametrize(("text", "expected"), [
    ("", b""), ("YQ==", b"a"), ("YQ", b"a"), ("//79", b"\xff\xfe\xfd"), ("__79", b"\xff\xfe\xfd"), ("YWI=", b"ab"),
])  # fmt: skip
def test_base64_is_read_in_both_alphabets_and_without_padding(text: str, expected: bytes) -> None:
    """proto3's JSON mapping permits both."""
    assert to_bytes("k", text) == expected


@pytest.mark.parametrize("text", ["*", "Y Q=", "YQ==YQ==", "Y", "é", "YQ==\n"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    """GRPS's python server skips characters that it does not know."""
    with pytest.raises(InvalidInput, match="input 'k' has .* where s_b needs base64"):
        to_bytes("k", text)
