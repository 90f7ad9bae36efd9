"""core.dialects.v1.values is held against a slow reader of the same rules, with base64, ctypes and struct."""

import base64
import ctypes
import math
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.v1.values import (
    Irregular,
    elements,
    flattened,
    is_binary,
    mismatch,
    quoted,
    to_bytes,
    to_tensor,
    type_name,
)
from core.dtype import BF16, BOOL, BYTES, DATATYPES, DataType
from core.encoding.jsonio import Oversized
from core.errors import InvalidInput
from tests.support.samples import SHAPES, nested, sample

INTEGERS = [row for row in DATATYPES.values() if row.numpy.kind in "iu" and row is not BF16]
FLOATS = [row for row in DATATYPES.values() if row.is_float] + [BF16]
EVERY = pytest.mark.parametrize("datatype", DATATYPES.values(), ids=lambda row: row.name)
INT8, INT64, UINT64 = DATATYPES["INT8"], DATATYPES["INT64"], DATATYPES["UINT64"]
FP16, FP32, FP64 = DATATYPES["FP16"], DATATYPES["FP32"], DATATYPES["FP64"]


class Refused(Exception):
    """The oracle has refused the value."""


def element(datatype: DataType, value: Any) -> Any:
    """Returns one value as the array should hold it: a number, or a float's bits."""
    if datatype is BYTES:
        if isinstance(value, dict):
            return base64.b64decode(value["b64"])
        wanted: tuple[type, ...] = (str,)
    else:
        wanted = (bool,) if datatype is BOOL else (int,) if datatype in INTEGERS else (int, float)
    if type(value) not in wanted:
        raise Refused
    if datatype is BYTES:
        return value.encode()
    if datatype in INTEGERS:
        info = np.iinfo(datatype.numpy)
        if not info.min <= value <= info.max:
            raise Refused
    return float_bits(datatype, value) if datatype in FLOATS else value


def float_bits(datatype: DataType, value: float) -> bytes:
    """Rounds to nearest, and to infinity beyond the range. NaN has a single pattern."""
    double = float(value)
    if math.isnan(double):
        return b"NaN"
    if datatype is FP64:
        return struct.pack("<d", double)
    if datatype is FP16:
        try:
            return struct.pack("<e", double)
        except OverflowError:
            return struct.pack("<e", math.copysign(math.inf, double))
    single = struct.pack("<f", ctypes.c_float(double).value)
    return single if datatype is FP32 else upper_half(single)


def upper_half(single: bytes) -> bytes:
    """Rounds a float of 32 bits to the nearest of the two patterns around it, and to the even one halfway."""
    (bits,) = struct.unpack("<I", single)
    upper, lower = divmod(bits, 0x10000)
    return struct.pack("<H", upper + (lower > 0x8000 or (lower == 0x8000 and upper % 2 == 1)))


def oracle(datatype: DataType, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the elements and the shape, by recursion."""
    if not isinstance(value, list):
        return [element(datatype, value)], ()
    parts = [oracle(datatype, member) for member in value]
    if any(before[1] != after[1] for before, after in pairwise(parts)):
        raise Refused
    return [x for flat, _ in parts for x in flat], (len(value), *(parts[0][1] if parts else ()))


def held(array: Any, datatype: DataType) -> list[Any]:
    """Returns the elements of an array in the oracle's form."""
    if datatype not in FLOATS:
        return list(array.reshape(-1).tolist())
    wide = np.isnan(array) if datatype is not BF16 else (array & 0x7FFF) > 0x7F80
    bits = [x.tobytes() for x in array.reshape(-1)]
    return [b"NaN" if nan else x for nan, x in zip(wide.reshape(-1), bits, strict=True)]


ODD = st.none() | st.booleans() | st.integers(-300, 300) | st.just(1.0) | st.just("1") | st.just({})
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
B64 = st.binary(max_size=5).map(lambda raw: {"b64": base64.b64encode(raw).decode()})


def values(datatype: DataType) -> st.SearchStrategy[Any]:
    """Values of the datatype, near the ends of its range more often."""
    if datatype is BYTES:
        return TEXT | B64
    if datatype is BOOL:
        return st.booleans()
    if datatype in FLOATS:
        # bfloat16 is read by way of 32 bits: a double would be rounded twice, here and in TF Serving.
        small = st.integers(-(2**24), 2**24)
        return small | st.floats(width=32) if datatype is BF16 else small | st.floats() | st.floats(width=16)
    info = np.iinfo(datatype.numpy)
    low, high = int(info.min), int(info.max)
    return st.integers(low, high) | st.sampled_from([low, high, low - 1, high + 1])


@st.composite
def regular(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    """A value, or lists nested regularly."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape)
    return nested(draw(st.lists(inner, min_size=count, max_size=count)), tuple(shape))


@EVERY
@given(data=st.data())
def test_values_of_the_datatype_are_taken_as_they_are_nested(datatype: DataType, data: st.DataObject) -> None:
    """Integers stay in range, floats are rounded, strings may be base64. The oracle decides what else is refused."""
    agrees(datatype, data.draw(regular(values(datatype))))


@EVERY
@given(data=st.data())
def test_whatever_else_is_refused(datatype: DataType, data: st.DataObject) -> None:
    """The values may be of any kind, nested in any way. Both accept the same ones, and refuse the rest."""
    leaves = values(datatype) | values(datatype) | ODD
    agrees(datatype, data.draw(st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=8)))


def agrees(datatype: DataType, value: Any) -> None:
    """Checks that the tensor is the oracle's, or that both refuse."""
    try:
        expected = oracle(datatype, value)
    except (Refused, KeyError):
        with pytest.raises(InvalidInput):
            to_tensor("x", datatype, value)
        return
    tensor = to_tensor("x", datatype, value)
    assert (tensor.name, tensor.datatype, tensor.array.dtype) == ("x", datatype, datatype.numpy)
    assert (held(tensor.array, datatype), tensor.array.shape) == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@EVERY
def test_an_array_that_the_parser_made_is_read_as_its_lists(datatype: DataType, shape: tuple[int, ...]) -> None:
    """Arrays of int64, uint64 and doubles give the same tensor as lists, or are refused."""
    count = math.prod(shape)
    for flat in ([0, 1, 100, 2, 5, 0], [255, 128, 2**16, 2**32, 2**63 - 1, 3], [2**64 - 1] * 6, [0.5, -1.0] * 3):
        kind = np.float64 if type(flat[0]) is float else np.uint64 if max(flat) > 2**63 else np.int64
        array = np.array(flat[:count], kind).reshape(shape)
        try:
            expected = to_tensor("x", datatype, nested(flat[:count], shape)).array
        except InvalidInput:
            with pytest.raises(InvalidInput):
                to_tensor("x", datatype, array)
            continue
        found = to_tensor("x", datatype, array).array if count or kind is np.int64 else expected
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert held(found, datatype) == held(expected, datatype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@EVERY
def test_every_datatype_in_every_shape(datatype: DataType, shape: tuple[int, ...]) -> None:
    """A value that is not a list has no dimension."""
    flat = [0.5, 1.0, -2.0, 3, 0, 8][: math.prod(shape)] if datatype is BF16 else sample(datatype, math.prod(shape))
    agrees(datatype, nested(flat, shape))
    assert to_tensor("x", datatype, nested(flat, shape)).array.shape == shape


@pytest.mark.parametrize(("datatype", "value", "message"), [
    (FP32, "1.0", 'JSON Value: "1.0" Type: String is not of expected type: float'),
    (FP32, [1.0, None], "JSON Value: null Type: Null is not of expected type: float"),
    (FP64, [True], "JSON Value: true Type: Bool is not of expected type: double"),
    (FP16, {"a": 1}, 'JSON Value: {"a": 1} Type: Object is not of expected type: half'),
    (BF16, ["NaN"], 'JSON Value: "NaN" Type: String is not of expected type: bfloat16'),
    (FP32, Oversized("1e400"), "JSON Value: 1e400 Type: Number is not of expected type: float"),
    (FP32, [0, 10**350], f"JSON Value: {'1' + '0' * 252}... Type: Number is not of expected type: float"),
    (INT64, 1.0, "JSON Value: 1.0 Type: Number is not of expected type: int64"),
    (INT64, 2**63, f"JSON Value: {2**63} Type: Number is not of expected type: int64, which holds -{2**63} to"),
    (INT64, 2**64, f"JSON Value: {2**64} Type: Number is not of expected type: int64"),
    (UINT64, [1, -1], "JSON Value: -1 Type: Number is not of expected type: uint64, which holds 0 to"),
    (UINT64, [2**64 - 1, -1], "JSON Value: -1 Type: Number is not of expected type: uint64"),
    (INT8, 300, "JSON Value: 300 Type: Number is not of expected type: int8, which holds -128 to 127"),
    (BOOL, [True, 0], "JSON Value: 0 Type: Number is not of expected type: bool"),
    (BYTES, 5, "JSON Value: 5 Type: Number is not of expected type: string"),
    (BYTES, ["a", None], "JSON Value: null Type: Null is not of expected type: string"),
    (BYTES, {"b64": 5}, 'JSON Value: {"b64": 5} not formatted correctly for base64 data'),
    (BYTES, {"b64": "", "x": 1}, 'JSON Value: {"b64": "", "x": 1} not formatted correctly for base64 data'),
    (BYTES, np.array([1]), "JSON Value: 1 Type: Number is not of expected type: string"),
    (BOOL, np.array([1.5]), "JSON Value: 1.5 Type: Number is not of expected type: bool"),
    (INT64, np.array([1.5, 2.0]), "JSON Value: 1.5 Type: Number is not of expected type: int64"),
    (INT8, np.array([7, 128]), "JSON Value: 128 Type: Number is not of expected type: int8, which holds"),
    (BYTES, "\ud800", "JSON Value: a string with a lone surrogate, which is not Unicode text"),
    (BYTES, [{"b64": ""}, "\ud800"], "JSON Value: a string with a lone surrogate, which is not Unicode text"),
    (FP32, nested([1.0], (1,) * 33), "tensor parsing error: 'x' has more than 32 dimensions"),
    (FP32, np.ones((1,) * 33), "tensor parsing error: 'x' has more than 32 dimensions"),
])  # fmt: skip
def test_the_first_value_that_does_not_fit_is_named_as_tf_serving_names_it(
    datatype: DataType, value: Any, message: str
) -> None:
    """The message has the value, bounded, its kind, and the expected type."""
    with pytest.raises(InvalidInput) as refusal:
        to_tensor("x", datatype, value)
    assert refusal.value.message.startswith(message)


@pytest.mark.parametrize(("value", "message"), [
    ([[1, 2], [3]], "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    ([[[1], [2]], [[3], [4, 5]]], "Encountered list at unexpected size: 2 at level: 2 expected size: 1"),
    ([[], [1]], "Encountered list at unexpected size: 1 at level: 1 expected size: 0"),
    ([[1], 2], "JSON Value: 2, found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ([[], None], "JSON Value: null, found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ([1, [2]], "Encountered list at unexpected level: 1 expected < 1"),
    ([[1], [[2]]], "Encountered list at unexpected level: 2 expected < 2"),
])  # fmt: skip
def test_where_the_nesting_is_irregular_is_named(value: Any, message: str) -> None:
    """The first elements define the shape; no value is checked before that."""
    for datatype in (FP32, BYTES):
        with pytest.raises(Irregular) as refusal:
            to_tensor("x", datatype, value)
        assert refusal.value.message == message


def test_flattening_is_no_recursion() -> None:
    """The client chooses the depth."""
    deep: Any = 7
    for _ in range(5000):
        deep = [deep]
    flat, shape = flattened(deep)
    assert (list(flat), shape) == ([7], (1,) * 5000)


@given(raw=st.binary(max_size=40), padding=st.sampled_from(["", "=", "=="]), spaced=st.booleans())
def test_base64_is_read_with_or_without_padding_and_white_space(*, raw: bytes, padding: str, spaced: bool) -> None:
    """The alphabet is the standard one, and the bytes are the same."""
    coded = base64.b64encode(raw).decode()
    text = coded.rstrip("=")
    text += padding if len(coded.rstrip("=") + padding) % 4 == 0 else ""
    text = "\r\n".join([text[:3], text[3:5] + " ", "\t" + text[5:]]) if spaced else text
    assert to_bytes({"b64": text}) == raw


@pytest.mark.parametrize(
    "text", ["A", "AAAAA", "A=A=", "YQ==YQ==", "_-8=", "Y\u00e9==", "!", "a\0b=", "YQ===", "YWI==", "YWJj=", "="]
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    """The web-safe alphabet is refused, too, and no text is decoded in part."""
    with pytest.raises(InvalidInput, match="Unable to base64 decode"):
        to_bytes({"b64": text})


def test_a_plain_string_is_never_decoded() -> None:
    """The rule holds however much it looks like base64. Bytes of a default stay unchanged."""
    assert to_bytes("aGVsbG8=") == b"aGVsbG8="
    assert to_bytes(b"\xff") == b"\xff"


@pytest.mark.parametrize(("value", "binary"), [
    ({"b64": ""}, True), ({"b64": 1}, False), ({"b64": "", "a": 1}, False), ({}, False), ("b64", False),
    (["b64"], False),
])  # fmt: skip
def test_only_one_key_with_text_is_a_binary_value(value: Any, *, binary: bool) -> None:
    """Every other object may be an object of names."""
    assert is_binary(value) is binary


def test_long_values_are_shown_in_part() -> None:
    """A client cannot cause a long message."""
    assert len(mismatch("x" * 10_000, INT8).message) < 350
    assert quoted("a'b") == '"a\'b"'
    assert quoted([False][0]) == "false"


def test_a_deeply_nested_value_is_shown_in_part() -> None:
    """The client chooses the depth."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert mismatch(deep, INT8).message.startswith("JSON Value: " + '{"a": ' * 42 + "{... Type: Object")


def test_types_have_tensorflows_names() -> None:
    """They are in lower case."""
    assert [type_name(row) for row in (FP16, FP32, FP64, BF16, BYTES)] == [
        "half",
        "float",
        "double",
        "bfloat16",
        "string",
    ]


def test_no_elements_are_an_empty_array_of_any_type() -> None:
    """An example's default may be empty."""
    for datatype in DATATYPES.values():
        assert elements([], datatype).dtype == datatype.numpy
        assert elements([], datatype).shape == (0,)


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_what_is_not_finite_is_shown_as_clients_write_it(value: float, text: str) -> None:
    """Python's spelling is not used."""
    with pytest.raises(InvalidInput, match=f"JSON Value: {text} Type: Number is not of expected type: int32"):
        to_tensor("x", DATATYPES["INT32"], [value])
