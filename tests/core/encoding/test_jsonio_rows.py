"""core.encoding.jsonio: elements of outputs as JSON, for all dialects."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dtype import BF16, DATATYPES
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite, numeric, rows
from core.errors import InvalidInput
from core.float16 import bf16_from_float
from core.tensor import Tensor
from tests.support.samples import SHAPES, nested, sample
from tests.support.v1_samples import output

NUMERIC = [datatype for datatype in DATATYPES.values() if not datatype.is_bytes]
FLOATS = ["FP16", "FP32", "FP64", "BF16"]
INFINITE = {"FP16": [0x7E00, 0x7C00, 0xFC00], "BF16": [0x7FC0, 0x7F80, 0xFF80]}


def text(value: Any) -> str:
    """Returns the text as it is sent."""
    return jsonio.dumps(value).decode()


def not_finite(datatype: str) -> Tensor:
    """Returns NaN, infinity and negative infinity; those of bfloat16 and half are bits."""
    if datatype in INFINITE:
        array = np.array(INFINITE[datatype], np.uint16).view(DATATYPES[datatype].numpy)
    else:
        array = np.array([np.nan, np.inf, -np.inf], DATATYPES[datatype].numpy)
    return Tensor("y", DATATYPES[datatype], array)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", NUMERIC, ids=lambda row: row.name)
def test_numbers_are_nested_as_the_shape_is(datatype: Any, shape: tuple[int, ...]) -> None:
    """The cases are every datatype, and integers at both ends of their range."""
    flat = sample(datatype, math.prod(shape))
    array = np.array(flat, datatype.numpy).reshape(shape)
    if datatype is BF16:
        flat = [0.5, -1.0, 3.0, 1024.0, 0.0, -0.25][: math.prod(shape)]
        array = bf16_from_float(np.array(flat)).reshape(shape)
    tensor = Tensor("y", datatype, array)
    expected = nested(flat, shape)
    assert json.loads(text(numeric(tensor, NonFinite.BARE))) == expected
    if shape:
        assert json.loads(text(rows(tensor, NonFinite.BARE))) == expected


@pytest.mark.parametrize("datatype", FLOATS)
def test_a_tenth_is_written_as_a_tenth(datatype: str) -> None:
    """The rule holds in every width, as numbers, as rows, and alone; whole numbers keep their point."""
    values = np.array([0.1, 3.0])
    array = bf16_from_float(values) if datatype == "BF16" else values.astype(DATATYPES[datatype].numpy)
    tensor = Tensor("y", DATATYPES[datatype], array)
    assert text(numeric(tensor, NonFinite.BARE)) == text(rows(tensor, NonFinite.BARE)) == "[0.1,3.0]"
    assert text(numeric(tensor._replace(array=array[0]), None)) == "0.1"
    assert text(rows(tensor._replace(array=array.reshape(2, 1)), None)) == "[[0.1],[3.0]]"


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize(("policy", "written"), [
    (NonFinite.BARE, "[NaN,Infinity,-Infinity]"),
    (NonFinite.QUOTED, '["NaN","Infinity","-Infinity"]'),
    (NonFinite.NULL, "[null,null,null]"),
], ids=["bare", "quoted", "null"])  # fmt: skip
def test_what_is_not_finite_is_written_as_wanted(datatype: str, policy: NonFinite, written: str) -> None:
    """The rule holds in every width; single rows give the same text."""
    tensor = not_finite(datatype)
    assert text(numeric(tensor, policy)) == written
    assert text(rows(tensor, policy)) == written


@pytest.mark.parametrize("datatype", FLOATS)
def test_what_is_not_finite_can_be_refused_by_the_outputs_name(datatype: str) -> None:
    """The refusal names the setting; finite numbers are accepted."""
    for form in (numeric, rows):
        with pytest.raises(InvalidInput, match=r"output 'y' has NaN or infinite .*DRAGOMAN_NON_FINITE=error"):
            form(not_finite(datatype), None)
    assert text(numeric(output("y", "FP32", [1.5]), None)) == "[1.5]"
    assert text(numeric(output("y", "INT32", [1]), None)) == "[1]"


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from([(-1,), (-1, 1), (-1, 1, 1)]))
def test_rows_are_what_the_whole_is(values: list[float], shape: tuple[int, ...]) -> None:
    """The rule holds with and without elements that are not finite."""
    tensor = Tensor("y", DATATYPES["FP32"], np.array(values, np.float32).reshape(shape))
    assert text(rows(tensor, NonFinite.BARE)) == text(numeric(tensor, NonFinite.BARE))


def test_an_array_of_another_layout_is_read_in_its_own_order() -> None:
    """The cases are columns before rows, every other element, and backwards."""
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (np.asfortranarray(square), square.T, square[:, ::2], square[::-1]):
        tensor = Tensor("y", DATATYPES["FP32"], array)
        assert json.loads(text(rows(tensor, NonFinite.BARE))) == array.tolist()
        assert json.loads(text(numeric(tensor, NonFinite.BARE))) == array.tolist()
