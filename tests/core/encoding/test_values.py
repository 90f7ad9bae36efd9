"""core.encoding.values: parsed JSON becomes arrays, checked against numpy and the text of the protocol."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.v1.values import elements
from core.dtype import BF16, BYTES, DATATYPES, DataType
from core.encoding.jsonio import loads_exact
from core.encoding.values import FEW, SLICE, Inexact, from_values
from core.errors import InvalidInput, shown
from core.float16 import bf16_from_float
from core.tensor import from_raw
from tests.support.samples import SHAPES, nested, sample

NUMERIC = [datatype for datatype in DATATYPES.values() if not datatype.is_bytes]
INTEGERS = [datatype for datatype in NUMERIC if datatype.numpy.kind in "iu" and datatype is not BF16]
FLOATS = [datatype for datatype in NUMERIC if datatype.is_float]


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


@pytest.mark.parametrize("data", [
    [1, 2], [1.0, 2], [[1], [2.0]], np.array([1, 2]), np.array([1, 2], "u8"), np.array([1.0, 2.0]), ["NaN", 2**70], [],
])  # fmt: skip
def test_numbers_of_bfloat16_are_values_and_not_its_bits(data: Any) -> None:
    """Its arrays are of integers, which a request never means."""
    flat = np.array(data, object).reshape(-1)
    made = from_values("x", BF16, (len(flat),), data).array
    assert made.dtype == BF16.numpy
    np.testing.assert_array_equal(made, bf16_from_float(flat.astype(np.float64)))


@pytest.mark.parametrize("data", [[6.8e38], [10**39], np.array([3.4e38]), [1e300]])
def test_numbers_beyond_bfloat16_are_refused(data: Any) -> None:
    """An infinity stays one."""
    with pytest.raises(InvalidInput, match="which is out of range for BF16"):
        from_values("x", BF16, (1,), data)
    assert from_values("x", BF16, (1,), np.array([np.inf])).array.tolist() == [0x7F80]
    with pytest.raises(InvalidInput, match="'x' has true where BF16 needs numbers"):
        from_values("x", BF16, (1,), [True])


@pytest.mark.parametrize("datatype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("form", [list, np.array], ids=["list", "array"])
def test_integers_beyond_either_end_are_refused_by_value(datatype: DataType, form: Any) -> None:
    """The ends themselves are exact."""
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
    """Fractions are not truncated, and text and booleans are refused."""
    with pytest.raises(InvalidInput, match="INT32 needs integers"):
        from_values("x", DATATYPES["INT32"], (1,), data)


def test_a_fraction_of_zero_is_an_integer_as_far_as_doubles_are_exact() -> None:
    """1.0 is 1; 2**53 written as a double may have been another number."""
    for data in ([1.0, 2], np.array([1.0, 2.0])):
        assert from_values("x", DATATYPES["INT8"], (2,), data).array.tolist() == [1, 2]
    for data in ([2.0**53], np.array([2.0**53])):
        told = (
            r"'x' has 9007199254740992.0 where INT64 needs integers; this number may have been rounded: "
            r"write integers from 2\*\*53 on without a point or exponent$"
        )
        with pytest.raises(Inexact, match=told):
            from_values("x", DATATYPES["INT64"], (1,), data)
    for data in ([math.inf], np.array([math.inf])):
        with pytest.raises(Inexact, match="'x' has Infinity where INT64 needs integers$"):
            from_values("x", DATATYPES["INT64"], (1,), data)


def test_64_bit_integers_are_exact() -> None:
    """The cases lie beyond 2**53 and beyond the signed range."""
    data = [2**53 + 1, 2**64 - 1]
    assert from_values("x", DATATYPES["UINT64"], (2,), data).array.tolist() == data
    assert from_values("x", DATATYPES["UINT64"], (2,), np.array(data, np.uint64)).array.tolist() == data
    with pytest.raises(InvalidInput, match=r"has -1, which is out of range for UINT64"):
        from_values("x", DATATYPES["UINT64"], (2,), [2**64 - 1, -1])


@pytest.mark.parametrize("value", ["maybe", "true", 2, -1, 1.5, None])
def test_only_booleans_0_and_1_are_bool(value: Any) -> None:
    """No other value converts to a boolean."""
    with pytest.raises(InvalidInput, match="BOOL"):
        from_values("x", DATATYPES["BOOL"], (1,), [value])
    with pytest.raises(InvalidInput, match="BOOL"):
        from_values("x", DATATYPES["BOOL"], (2,), [True, value])


def test_bool_takes_0_and_1_beside_booleans() -> None:
    """Other servers accept them, too."""
    assert from_values("x", DATATYPES["BOOL"], (3,), [True, 0, 1]).array.tolist() == [True, False, True]
    assert from_values("x", DATATYPES["BOOL"], (2,), np.array([0, 1])).array.tolist() == [False, True]
    assert from_values("x", DATATYPES["BOOL"], (3,), [True, 0.0, 1.0]).array.tolist() == [True, False, True]


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70)])
def test_bool_takes_no_integer_of_any_length_beside_booleans(value: int) -> None:
    """The message names it."""
    with pytest.raises(InvalidInput, match=f"has {value}, which is out of range for BOOL"):
        from_values("x", DATATYPES["BOOL"], (2,), [True, value])


@pytest.mark.parametrize("value", [None, True, "1", {}])
def test_the_value_that_is_not_a_number_is_named(value: Any) -> None:
    """A whole number before it is right, also as 1.0."""
    with pytest.raises(InvalidInput, match=re.escape(f"has {shown(value)} where INT32 needs integers")):
        from_values("x", DATATYPES["INT32"], (3,), [1.0, 2, value])


@pytest.mark.parametrize("datatype", FLOATS, ids=lambda d: d.name)
def test_floats_take_what_stands_for_numbers_that_json_cannot_write(datatype: DataType) -> None:
    """They are the strings of proto3's JSON mapping, and null for NaN."""
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
    """They never become an infinity. An infinity that the client sent stays."""
    data = form([value, math.inf]) if value != 10**39 else [value, 0.5]
    with pytest.raises(InvalidInput, match=f"out of range for {name}"):
        from_values("x", DATATYPES[name], (2,), data)
    assert from_values("x", DATATYPES[name], (1,), [math.inf]).array.tolist() == [math.inf]


@pytest.mark.parametrize("text", ["1e400", "-1e400", "9" * 400])
@pytest.mark.parametrize("datatype", NUMERIC, ids=lambda d: d.name)
def test_a_number_beyond_every_double_is_out_of_range(datatype: DataType, text: str) -> None:
    """The message has it as the client wrote it."""
    data = loads_exact(f"[{text}, 0.5]".encode())
    with pytest.raises(InvalidInput, match=rf"has {text[:250]}[9.]*, which is out of range for {datatype.name}"):
        from_values("x", datatype, (2,), data)


LARGEST = (2 - 2**-23) * 2.0**127
"""The largest number of FP32."""


@pytest.mark.parametrize("size", [1, 2, FEW, FEW + 1, SLICE + 1])
@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 3.4e38, 1.9e19, 0.1, math.inf, math.nan])
def test_what_fits_is_rounded_wherever_it_stands(value: float, size: int) -> None:
    """The largest of few and of many elements is checked, and NaN and infinities; one more digit is refused."""
    data = [0.5] * (size - 1) + [value]
    array = from_values("x", DATATYPES["FP32"], (size,), data).array
    assert np.array_equal(array, np.array(data, np.float32), equal_nan=True)
    if abs(value) == LARGEST:
        with pytest.raises(InvalidInput, match="out of range for FP32"):
            from_values("x", DATATYPES["FP32"], (size,), [*data[:-1], value * 1.000001])


ENDS = [2**bits + more for bits in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64) for more in (-1, 0)] + [65504, 65519, 65520]
"""The ends of the datatypes' ranges."""


@given(
    datatype=st.sampled_from(NUMERIC),
    data=st.lists(st.sampled_from(ENDS).flatmap(lambda x: st.sampled_from([x, -x, float(x)])), min_size=1, max_size=4)
    | st.lists(st.floats(width=32), min_size=1, max_size=4),
    convert=st.sampled_from([lambda data, kind: from_values("x", kind, (len(data),), data).array, elements]),
)
def test_few_numbers_are_converted_as_many_are(datatype: DataType, data: list[Any], convert: Any) -> None:
    """Python compares few numbers, and numpy many. The conversions are V2's and TensorFlow Serving's.

    A refusal names one of the numbers that are out of range.
    """

    def found(zeros: int) -> Any:
        try:
            array = convert([*data, *[0] * zeros], datatype)
        except InvalidInput as error:
            return type(error), error.message.partition(", which ")[2]
        return array.dtype, array[: len(data)].tobytes()

    assert found(0) == found(FEW)


@pytest.mark.parametrize("name", ["FP16", "FP32", "FP64"])
def test_integers_of_a_parser_are_rounded_to_floats(name: str) -> None:
    """Every integer of 64 bits is in the range of FP32 and FP64; FP16's range is checked."""
    ends = np.array([-(2**63), 2**63 - 1]), np.array([0, 2**64 - 1], np.uint64)
    for data in (np.array([-2049, 2047]), *ends):
        if name == "FP16" and data[1] > 2**16:
            with pytest.raises(InvalidInput, match="out of range for FP16"):
                from_values("x", DATATYPES[name], (2,), data)
        else:
            array = from_values("x", DATATYPES[name], (2,), data).array
            assert array.tolist() == [float(DATATYPES[name].numpy.type(each)) for each in data]


def test_floats_may_be_written_as_integers_of_any_length() -> None:
    """They are rounded to the nearest double."""
    assert from_values("x", DATATYPES["FP64"], (2,), [10**30, 1]).array.tolist() == [1e30, 1.0]


@pytest.mark.parametrize("data", [[1], ["a", 1], [None], [True], np.array([1])])
def test_bytes_take_nothing_but_text(data: Any) -> None:
    """The rule holds even if a parser made an array of the list."""
    with pytest.raises(InvalidInput, match="BYTES needs strings"):
        from_values("x", BYTES, (len(data),), data)


def test_an_empty_array_is_empty_bytes() -> None:
    """A parser cannot know the datatype of no elements."""
    assert from_values("x", BYTES, (0,), np.empty(0)).array.shape == (0,)


def test_a_lone_surrogate_is_refused() -> None:
    """UTF-8 cannot encode it."""
    with pytest.raises(InvalidInput, match="lone surrogate"):
        from_values("x", BYTES, (1,), ["\ud800"])


@pytest.mark.parametrize("data", [None, 1, "x", {}, True])
def test_data_is_an_array(data: Any) -> None:
    """Even one element must not stand alone."""
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
