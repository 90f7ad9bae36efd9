"""core.tensor: shapes, and bytes to arrays and back, checked against numpy and the text of the protocol."""

import math
import struct
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core import tensor as tensor_module
from core.dtype import BF16, BY_ONNX, BYTES, DATATYPES, DataType, of_array
from core.errors import InvalidInput
from core.tensor import (
    COPIED,
    MAX_RANK,
    Tensor,
    TextTensor,
    checked_shape,
    flat_texts,
    from_raw,
    is_possible,
    objects,
    to_raw,
)
from tests.support.samples import SHAPES, sample
from tests.support.steps import steps_of


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


def test_a_declared_shape_is_one_that_numpy_can_hold() -> None:
    """-1 stands for any size; numpy counts the other axes of an empty tensor, too."""
    assert all(map(is_possible, [(), (-1,) * 32, (2**48,), (-1, 0, 5)]))
    assert not any(map(is_possible, [(1,) * 33, (2**48, 2), (0, 2**49)]))


def framed(*elements: bytes) -> bytes:
    """Returns the elements as the protocol's text has them, one after the other."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


SHORT: Final = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=63)
ANY: Final = st.one_of(
    SHORT.map(str.encode), st.binary(max_size=9), st.integers(250, 260).map(lambda size: b"x" * size)
)


@given(st.one_of(st.lists(SHORT.map(str.encode), max_size=9), st.lists(ANY, max_size=9)))
@example([b"a", b"x" * 255])
@example([b"a", b"x" * 256])
def test_any_strings_come_back_as_they_were(elements: list[bytes]) -> None:
    """Elements that are read and written as a whole are the same as those that are not: short texts without a NUL."""
    raw = framed(*elements)
    tensor = from_raw("x", BYTES, (len(elements),), memoryview(b"_" + raw)[1:])
    assert tensor.array.tolist() == elements
    assert bytes(to_raw(tensor)) == raw
    assert bytes(to_raw(Tensor("x", BYTES, tensor.array))) == raw
    assert tensor.texts is None or tensor.texts.tolist() == [element.decode() for element in elements]
    is_plain = all(0 < len(each) < 256 and b"\0" not in each for each in elements)
    with suppress(UnicodeDecodeError):
        texts = np.array([each.decode() for each in elements], object)
        assert bytes(to_raw(TextTensor("x", texts))) == raw
        assert (tensor.texts is not None) == (is_plain and len(elements) > 0)


@pytest.mark.parametrize("shape", [(2, 2), (4,), (1, 4, 1)])
@pytest.mark.parametrize("longest", [1, 5, 300, COPIED - 4, COPIED])
def test_long_strings_come_back_as_they_were(longest: int, shape: tuple[int, ...]) -> None:
    """Short tensors are copied before they are cut, and long ones are not; elements are bytes of their own."""
    for elements in ([b"", b"a", bytes(longest), b"\xff\0"], [b"a" * longest, b"b", "\u00e9".encode(), b"c"]):
        raw = framed(*elements)
        tensor = from_raw("x", BYTES, shape, memoryview(raw))
        found = tensor.array.reshape(-1).tolist()
        assert (tensor.shape, found, {*map(type, found)}) == (shape, elements, {bytes})
        assert bytes(to_raw(tensor)) == raw


@pytest.mark.parametrize("text", [b"%d", b"%d" + 200 * b"x"], ids=["short", "longer"])
def test_many_texts_come_back_as_they_were(text: bytes) -> None:
    """More of them than are read and written at once, and longer ones than are written as a whole."""
    elements = [text % number for number in range(COPIED // 8)]
    tensor = from_raw("x", BYTES, (len(elements),), framed(*elements))
    assert (tensor.texts, tensor.array.tolist()) == (None, elements)
    assert bytes(to_raw(tensor.reshaped((2, -1)))) == framed(*elements)
    texts = TextTensor("x", np.array([*map(bytes.decode, elements)], object).reshape(2, -1))
    assert bytes(to_raw(texts)) == framed(*elements)
    assert (texts.array.shape, texts.array.reshape(-1).tolist()) == (texts.shape, elements)


MANY: Final = objects(["\u00e9"] * 4096)
ENCODED: Final = TextTensor("x", MANY).array


@pytest.mark.parametrize("work", [
    lambda: TextTensor("x", MANY).array,
    lambda: to_raw(TextTensor("x", MANY)),
    lambda: to_raw(Tensor("x", BYTES, ENCODED)),
    lambda: flat_texts(Tensor("x", BYTES, ENCODED)),
], ids=["array", "texts to_raw", "to_raw", "flat_texts"])  # fmt: skip
def test_other_threads_run_while_many_elements_are_converted(
    work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can run between the steps of Python code, and one call of C's would convert all elements in one step."""
    monkeypatch.setattr(tensor_module, "TOGETHER", 16)
    assert len(steps_of(work)) > MANY.size // 16


def test_elements_that_are_cut_take_little_more_memory_than_they_need() -> None:
    """A view of each element, until all are cut, would take five times the memory of a short one."""
    count = COPIED // 5
    raw = framed(b"\xff\0") * count
    tracemalloc.start()
    try:
        tensor = from_raw("x", BYTES, (count,), raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tensor.array[-1] == b"\xff\0"
    assert peak < 2 * count * (sys.getsizeof(b"\xff\0") + 8)


def test_texts_are_bytes_for_whoever_asks_for_an_array() -> None:
    """A tensor of texts can be used as any other; a changed copy has the elements that it was given."""
    texts = np.array([["a", "\u00e9"]], object)
    tensor = TextTensor("x", texts)
    encoded = [[b"a", "\u00e9".encode()]]
    assert (tensor.name, tensor.datatype, tensor.shape, tensor.array.tolist()) == ("x", BYTES, (1, 2), encoded)
    assert tensor.array is tensor.array
    other = tensor.renamed("y").reshaped((2,))
    assert (other.name, other.shape, other.texts is not None) == ("y", (2,), True)
    changed = tensor._replace(name="z")
    assert (changed.name, changed.texts, changed.array.tolist()) == ("z", None, encoded)
    numbers = Tensor("n", DATATYPES["INT8"], np.zeros(2, np.int8)).renamed("m").reshaped((2, 1))
    assert (numbers.name, numbers.shape, numbers.texts) == ("m", (2, 1), None)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x01\0\0", "ends inside a length prefix at byte 0 of 3"),
        (b"\x05\0\0\0ab", "an element of 5 bytes where 2"),
        (b"\x01\0\0\0ab\0\0", "ends inside a length prefix at byte 5 of 8"),
        (framed(b"a") + b"\x02\0\0\0b", "an element of 2 bytes where 1"),
        (framed(b"abc") + b"\1" + framed(b"d"), "an element of 257 bytes where 2"),
        (framed(b"a"), "has 1 element; its shape .2. needs 2"),
        (framed(b"a", b"b", b"c"), "has 3 elements; its shape .2. needs 2"),
    ],
)
def test_cut_strings_are_refused(raw: bytes, message: str) -> None:
    """A length is never trusted."""
    with pytest.raises(InvalidInput, match=message):
        from_raw("x", BYTES, (2,), raw)


@given(st.lists(SHORT.map(str.encode), min_size=1, max_size=5), st.data())
def test_a_changed_byte_is_read_as_one_element_after_another(elements: list[bytes], data: st.DataObject) -> None:
    """The elements that are found at once are those that the lengths say, whatever bytes come."""
    raw = bytearray(framed(*elements))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.one_of(st.integers(0, 6), st.integers(0, 255)))
    expected, position = [], 0
    while position + 4 <= len(raw):
        (size,) = struct.unpack_from("<I", raw, position)
        expected.append(bytes(raw[position + 4 : position + 4 + size]))
        position += 4 + size
    for count in {len(elements), len(expected)}:
        try:
            found = from_raw("x", BYTES, (count,), raw).array.tolist()
        except InvalidInput:
            assert position != len(raw) or count != len(expected)
        else:
            assert (found, position) == (expected, len(raw))


def test_the_tables_by_array_and_by_onnx_know_every_row() -> None:
    """BF16 has an ONNX number and no array type of its own."""
    assert set(BY_ONNX.values()) == set(DATATYPES.values())
    for datatype in DATATYPES.values():
        assert of_array(datatype.numpy) is (DATATYPES["UINT16"] if datatype is BF16 else datatype)
    assert of_array(np.dtype("U3")) is of_array(np.dtype("S3")) is BYTES
    assert of_array(np.dtype(">f4")) is DATATYPES["FP32"]
    assert of_array(np.dtype(complex)) is None
