"""core.tensor: shapes, and bytes to arrays and back, checked against numpy and the text of the protocol."""

import math
import struct
from typing import Any

import numpy as np
import pytest

from core.dtype import BF16, BY_ONNX, BYTES, DATATYPES, DataType, of_array
from core.errors import InvalidInput
from core.tensor import COPIED, MAX_RANK, Tensor, checked_shape, from_raw, to_raw
from tests.support.samples import SHAPES, sample


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", DATATYPES.values(), ids=lambda d: d.name)
def test_every_datatype_round_trips_through_bytes_in_every_shape(datatype: DataType, shape: tuple[int, ...]) -> None:
    """Bytes are little-endian and row-major, and BYTES have their lengths."""
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
    """Only bytes that no runtime should get are copied."""
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


@pytest.mark.parametrize("shape", [None, "3", {}, 3, [-1], [1.0], [True], ["1"], [2**63], [[1]], [None]])
def test_a_shape_is_a_list_of_unsigned_integers(shape: Any) -> None:
    """The refusal names anything else."""
    with pytest.raises(InvalidInput, match="input 'x'"):
        checked_shape(shape, "input 'x'")


def test_a_shape_has_at_most_as_many_dimensions_as_numpy() -> None:
    """It is 32, on every supported version of numpy."""
    assert checked_shape([1] * MAX_RANK, "x") == (1,) * MAX_RANK
    with pytest.raises(InvalidInput, match="33 dimensions"):
        checked_shape([1] * (MAX_RANK + 1), "x")


@pytest.mark.parametrize("longest", [0, 5, COPIED - 4, COPIED])
def test_strings_come_back_as_they_were(longest: int) -> None:
    """Short tensors are copied before they are cut, and long ones are not; elements are bytes of their own."""
    elements = [b"", b"a", bytes(longest), b"\xff\0"]
    array = np.empty(4, object)
    array[:] = elements
    raw = to_raw(Tensor("x", BYTES, array.reshape(2, 2)))
    found = from_raw("x", BYTES, (4,), memoryview(raw)).array.tolist()
    assert found == elements
    assert {*map(type, found)} == {bytes}


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"\x01\0\0", "ends inside a length prefix at byte 0 of 3"), (b"\x05\0\0\0ab", "an element of 5 bytes where 2")],
)
def test_cut_strings_are_refused(raw: bytes, message: str) -> None:
    """A length is never trusted."""
    with pytest.raises(InvalidInput, match=message):
        from_raw("x", BYTES, (1,), raw)


def test_the_tables_by_array_and_by_onnx_know_every_row() -> None:
    """BF16 has an ONNX number and no array type of its own."""
    assert set(BY_ONNX.values()) == set(DATATYPES.values())
    for datatype in DATATYPES.values():
        assert of_array(datatype.numpy) is (DATATYPES["UINT16"] if datatype is BF16 else datatype)
    assert of_array(np.dtype("U3")) is of_array(np.dtype("S3")) is BYTES
    assert of_array(np.dtype(">f4")) is DATATYPES["FP32"]
    assert of_array(np.dtype(complex)) is None
