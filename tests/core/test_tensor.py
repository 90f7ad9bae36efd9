"""core.tensor: values and bytes to arrays and back, checked against numpy and the text of the protocol."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dtype import BF16, BY_ONNX, BYTES, DATATYPES, DataType, of_array
from core.errors import InvalidInput
from core.tensor import MAX_RANK, Inexact, checked_shape, flatten, from_raw, from_values, to_raw

SHAPES = [(), (0,), (3,), (2, 0), (2, 3)]
NUMERIC = [datatype for datatype in DATATYPES.values() if not datatype.is_bytes]
INTEGERS = [datatype for datatype in NUMERIC if datatype.numpy.kind in "iu" and datatype is not BF16]
FLOATS = [datatype for datatype in NUMERIC if datatype.is_float]


def nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """The elements as lists of lists."""
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape).tolist()


def sample(datatype: DataType, size: int) -> list[Any]:
    """Elements as JSON has them."""
    if datatype.is_bytes:
        return ["", "ab", "\u65e5\0", "x", "y", "z"][:size]
    if datatype.name == "BOOL":
        return [True, False, True, True, False, False][:size]
    if datatype.is_float:
        return [0.5, -1.0, 3.0, 1024.0, 0.0, -0.25][:size]
    low, high = (0, 255) if datatype is BF16 else (np.iinfo(datatype.numpy).min, np.iinfo(datatype.numpy).max)
    return [int(low), int(high), 1, 0, 2, 100][:size]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", [d for d in DATATYPES.values() if d is not BF16], ids=lambda d: d.name)
def test_every_datatype_takes_flat_and_nested_values_in_every_shape(datatype: DataType, shape: tuple[int, ...]) -> None:
    """The array has the datatype's own type, the shape, and the values."""
    flat = sample(datatype, math.prod(shape))
    expected = [x.encode() for x in flat] if datatype.is_bytes else flat
    forms = [flat] if shape == () else [flat, nested(flat, shape)]
    for data in forms:
        tensor = from_values("x", datatype, shape, data)
        assert tensor.array.dtype == datatype.numpy
        assert tensor.array.shape == shape
        assert tensor.array.reshape(-1).tolist() == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", DATATYPES.values(), ids=lambda d: d.name)
def test_every_datatype_round_trips_through_bytes_in_every_shape(datatype: DataType, shape: tuple[int, ...]) -> None:
    """Little-endian, row-major, BYTES with their lengths."""
    flat = sample(datatype, math.prod(shape))
    if datatype.is_bytes:
        raw = b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in flat)
    else:
        raw = np.array(flat, datatype.numpy).tobytes()
    tensor = from_raw("x", datatype, shape, raw)
    assert tensor.array.shape == shape
    assert tensor.array.dtype == datatype.numpy
    assert bytes(to_raw(tensor)) == raw


def test_bytes_are_read_without_a_copy_where_they_lie_aligned() -> None:
    """A copy is made only of what no runtime should be handed."""
    body = np.arange(9, dtype="<f4").tobytes()
    aligned = from_raw("x", DATATYPES["FP32"], (8,), memoryview(body)[4:])
    assert aligned.array.base is not None
    odd = from_raw("x", DATATYPES["FP32"], (8,), memoryview(b"x" + body)[1:-4])
    assert odd.array.flags.aligned
    assert odd.array.tolist() == list(range(8))


def test_any_set_bit_of_a_bool_byte_is_true() -> None:
    """A byte of 2 inside a numpy bool is undefined behaviour."""
    tensor = from_raw("x", DATATYPES["BOOL"], (3,), b"\x00\x01\x02")
    assert tensor.array.tolist() == [False, True, True]


@pytest.mark.parametrize("datatype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("form", [list, np.array], ids=["list", "array"])
def test_integers_beyond_either_end_are_refused_by_value(datatype: DataType, form: Any) -> None:
    """Both ends themselves are exact."""
    info = np.iinfo(datatype.numpy)
    ends = [int(info.min), int(info.max)]
    assert from_values("x", datatype, (2,), ends).array.tolist() == ends
    for beyond in (ends[0] - 1, ends[1] + 1):
        data = [beyond] if form is list or not -(2**63) <= beyond < 2**64 else form([beyond])
        with pytest.raises(InvalidInput, match=rf"'x' has {beyond}, which is out of range for {datatype.name}"):
            from_values("x", datatype, (1,), data)


def test_integers_of_thousands_of_digits_are_refused_without_printing_them() -> None:
    """Python itself refuses to print more than 4300 digits."""
    with pytest.raises(InvalidInput, match="an integer of 301 digits, which is out of range for INT8"):
        from_values("x", DATATYPES["INT8"], (1,), [10**300])
    with pytest.raises(InvalidInput, match="an integer of 351 digits, which is out of range for FP64"):
        from_values("x", DATATYPES["FP64"], (2,), [0.5, 10**350])
    with pytest.raises(InvalidInput, match="an integer of 351 digits, which is out of range for FP32"):
        from_values("x", DATATYPES["FP32"], (2,), [None, 10**350])


@pytest.mark.parametrize("data", [[1.5], np.array([1.5]), [1, 2.5][1:], ["1"], [None], [True], [[1], ["x"]][1]])
def test_only_whole_numbers_are_integers(data: Any) -> None:
    """No truncation, no text, no booleans."""
    with pytest.raises(InvalidInput, match="INT32 needs integers"):
        from_values("x", DATATYPES["INT32"], (1,), data)


def test_a_fraction_of_zero_is_an_integer_as_far_as_doubles_are_exact() -> None:
    """1.0 is 1; 2**53 written as a double may have been another number."""
    for data in ([1.0, 2], np.array([1.0, 2.0])):
        assert from_values("x", DATATYPES["INT8"], (2,), data).array.tolist() == [1, 2]
    for data in ([2.0**53], np.array([2.0**53])):
        with pytest.raises(Inexact):
            from_values("x", DATATYPES["INT64"], (1,), data)


def test_64_bit_integers_are_exact() -> None:
    """Beyond 2**53 and beyond the signed range."""
    data = [2**53 + 1, 2**64 - 1]
    assert from_values("x", DATATYPES["UINT64"], (2,), data).array.tolist() == data
    assert from_values("x", DATATYPES["UINT64"], (2,), np.array(data, np.uint64)).array.tolist() == data
    with pytest.raises(InvalidInput, match=r"has -1, which is out of range for UINT64"):
        from_values("x", DATATYPES["UINT64"], (2,), [2**64 - 1, -1])


@pytest.mark.parametrize("value", ["maybe", "true", 2, -1, 1.5, None])
def test_only_booleans_0_and_1_are_bool(value: Any) -> None:
    """Nothing else has a truth here."""
    with pytest.raises(InvalidInput, match="BOOL"):
        from_values("x", DATATYPES["BOOL"], (1,), [value])
    with pytest.raises(InvalidInput, match="BOOL"):
        from_values("x", DATATYPES["BOOL"], (2,), [True, value])


def test_bool_takes_0_and_1_beside_booleans() -> None:
    """As every peer does."""
    assert from_values("x", DATATYPES["BOOL"], (3,), [True, 0, 1]).array.tolist() == [True, False, True]
    assert from_values("x", DATATYPES["BOOL"], (2,), np.array([0, 1])).array.tolist() == [False, True]


@pytest.mark.parametrize("datatype", FLOATS, ids=lambda d: d.name)
def test_floats_take_what_stands_for_numbers_that_json_cannot_write(datatype: DataType) -> None:
    """Strings of proto3's JSON mapping, and null for NaN."""
    array = from_values("x", datatype, (5,), ["NaN", "Infinity", "-Infinity", None, 1]).array
    assert np.isnan(array[[0, 3]]).all()
    assert array[[1, 2, 4]].tolist() == [math.inf, -math.inf, 1.0]
    assert np.isnan(from_values("x", datatype, (1,), [math.nan]).array).all()


@pytest.mark.parametrize("value", ["1.5", "nan", True, {}])
def test_floats_take_no_other_text_and_no_booleans(value: Any) -> None:
    """Numpy would read "1.5" and True."""
    with pytest.raises(InvalidInput, match="FP32 needs numbers"):
        from_values("x", DATATYPES["FP32"], (2,), [1.0, value])


@pytest.mark.parametrize(("name", "value"), [("FP16", 70000), ("FP16", 7e4), ("FP32", 1e39), ("FP32", 10**39)])
@pytest.mark.parametrize("form", [list, np.array], ids=["list", "array"])
def test_floats_too_large_for_their_width_are_refused(name: str, value: float, form: Any) -> None:
    """Never an infinity that nobody sent; one that somebody sent stays."""
    data = form([value, math.inf]) if value != 10**39 else [value, 0.5]
    with pytest.raises(InvalidInput, match=f"out of range for {name}"):
        from_values("x", DATATYPES[name], (2,), data)
    assert from_values("x", DATATYPES[name], (1,), [math.inf]).array.tolist() == [math.inf]


def test_floats_may_be_written_as_integers_of_any_length() -> None:
    """Rounded to the nearest double."""
    assert from_values("x", DATATYPES["FP64"], (2,), [10**30, 1]).array.tolist() == [1e30, 1.0]


@pytest.mark.parametrize("data", [[1], ["a", 1], [None], [True], np.array([1])])
def test_bytes_take_nothing_but_text(data: Any) -> None:
    """Also where a parser made an array of the list."""
    with pytest.raises(InvalidInput, match="BYTES needs strings"):
        from_values("x", BYTES, (len(data),), data)


def test_an_empty_array_is_empty_bytes() -> None:
    """A parser cannot know the datatype of no elements."""
    assert from_values("x", BYTES, (0,), np.empty(0)).array.shape == (0,)


def test_a_lone_surrogate_is_refused() -> None:
    """It has no UTF-8."""
    with pytest.raises(InvalidInput, match="lone surrogate"):
        from_values("x", BYTES, (1,), ["\ud800"])


@pytest.mark.parametrize("data", [None, 1, "x", {}, True])
def test_data_is_an_array(data: Any) -> None:
    """Not even one element may stand alone."""
    with pytest.raises(InvalidInput, match="needs 'data': an array"):
        from_values("x", DATATYPES["FP32"], (), data)


@pytest.mark.parametrize("shape", [(3,), (1, 2**40), (2**62, 4), (2**63 - 1,) * 32, (0,)])
@pytest.mark.parametrize("data", [[1, 2], np.array([1, 2])], ids=["list", "array"])
def test_the_count_must_fit_the_shape_whatever_its_size(shape: tuple[int, ...], data: Any) -> None:
    """Nothing is allocated and nothing overflows."""
    with pytest.raises(InvalidInput, match="has 2 elements; its shape"):
        from_values("x", DATATYPES["FP32"], shape, data)
    with pytest.raises(InvalidInput, match="8 bytes of binary data"):
        from_raw("x", DATATYPES["FP32"], shape, b"\0" * 8)


def test_an_empty_tensor_must_still_be_addressable() -> None:
    """Numpy refuses what would overflow its strides."""
    with pytest.raises(InvalidInput, match="too large to address"):
        from_values("x", DATATYPES["FP32"], (0, 2**62), [])


@pytest.mark.parametrize("shape", [None, "3", {}, 3, [-1], [1.0], [True], ["1"], [2**63], [[1]], [None]])
def test_a_shape_is_a_list_of_unsigned_integers(shape: Any) -> None:
    """Anything else is named."""
    with pytest.raises(InvalidInput, match="input 'x'"):
        checked_shape(shape, "input 'x'")


def test_a_shape_has_at_most_as_many_dimensions_as_numpy() -> None:
    """32, on every supported version."""
    assert checked_shape([1] * MAX_RANK, "x") == (1,) * MAX_RANK
    with pytest.raises(InvalidInput, match="33 dimensions"):
        checked_shape([1] * (MAX_RANK + 1), "x")


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"\x01\0\0", "ends inside a length prefix at byte 0 of 3"), (b"\x05\0\0\0ab", "an element of 5 bytes where 2")],
)
def test_cut_strings_are_refused(raw: bytes, message: str) -> None:
    """A length is never trusted."""
    with pytest.raises(InvalidInput, match=message):
        from_raw("x", BYTES, (1,), raw)


@given(
    st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=4), max_leaves=20).filter(
        lambda x: isinstance(x, list)
    )
)
def test_flattening_keeps_the_order_of_any_nesting(data: list[Any]) -> None:
    """Against the recursion that a deep body would break."""

    def leaves(value: Any) -> list[Any]:
        return [x for member in value for x in leaves(member)] if isinstance(value, list) else [value]

    assert list(flatten(data)) == leaves(data)


def test_flattening_is_linear_in_the_text() -> None:
    """A list both wide and deep was quadratic when each level was rebuilt."""
    deep: Any = [0]
    for _ in range(900):
        deep = [deep]
    assert len(flatten([deep] + [1] * 100_000)) == 100_001


def test_the_tables_by_array_and_by_onnx_know_every_row() -> None:
    """BF16 has an ONNX number and no array type of its own."""
    assert set(BY_ONNX.values()) == set(DATATYPES.values())
    for datatype in DATATYPES.values():
        assert of_array(datatype.numpy) is (DATATYPES["UINT16"] if datatype is BF16 else datatype)
    assert of_array(np.dtype("U3")) is of_array(np.dtype("S3")) is BYTES
    assert of_array(np.dtype(">f4")) is DATATYPES["FP32"]
    assert of_array(np.dtype(complex)) is None
