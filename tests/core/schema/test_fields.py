"""core.schema.fields: a message without one of its fields, checked against protobuf."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TooMany
from core.schema import fields
from core.schema.open_inference import ModelInferRequest

RAW: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
PIECES = st.one_of(
    st.builds(lambda raw: fields.head(RAW, len(raw)) + raw, st.binary(max_size=300)),
    st.builds(lambda text: ModelInferRequest(model_name=text).SerializeToString(), st.text(max_size=9)),
    st.builds(lambda text: ModelInferRequest(outputs=[{"name": text}]).SerializeToString(), st.text(max_size=200)),
    st.sampled_from(
        [b"\xa8\x06\x05", b"\xa1\x06" + bytes(8), b"\xad\x06" + bytes(4), b"\xa8\x06" + b"\xff" * 9 + b"\1"]
    ),
)


@given(st.lists(PIECES, max_size=8).map(b"".join))
def test_a_message_that_is_split_says_what_it_said(body: bytes) -> None:
    """Its fields come in any order, with unknown ones of every kind among them."""
    whole = ModelInferRequest.FromString(body)
    split = fields.split(body, RAW)
    if split is None:
        assert b"\xff" * 9 in body
        return
    rest, values = split
    assert list(map(bytes, values)) == list(whole.raw_input_contents)
    del whole.raw_input_contents[:]
    assert ModelInferRequest.FromString(rest) == whole


@given(st.binary(max_size=60))
def test_any_bytes_are_split_or_left_to_protobuf(body: bytes) -> None:
    """Nothing is read beyond the end, and the parts together are the message."""
    split = fields.split(body, RAW)
    if split is not None:
        rest, values = split
        assert len(rest) + sum(map(len, values)) <= len(body)
        assert all(bytes(value) in body for value in values)


def test_a_message_of_very_many_fields_is_left_to_protobuf() -> None:
    """Python reads only a limited number of fields."""
    assert fields.split(b"\x0a\0" * fields.MOST_FIELDS * 2, RAW) is None


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 600_000])
def test_the_head_of_a_field_is_the_one_of_protobuf(size: int) -> None:
    """A varint grows by seven bits."""
    raw = bytes(size)
    assert fields.head(RAW, size) + raw == ModelInferRequest(raw_input_contents=[raw]).SerializeToString()


@given(st.lists(PIECES, max_size=8).map(b"".join))
def test_the_texts_of_a_message_are_those_that_protobuf_finds(body: bytes) -> None:
    """The last of several counts, and an absent field has none; a view of the message gives the same."""
    found = fields.texts(body, [1, 2])
    message = ModelInferRequest.FromString(body)
    assert found in (None, (message.model_name, message.model_version))
    assert fields.texts(memoryview(body), [1, 2]) == found


@pytest.mark.parametrize("body", [b"\x0a\x05ab", b"\x0a\x01\xff", b"\x1a\x00" * 4097])
def test_texts_that_take_protobuf_to_find_are_left_to_it(body: bytes) -> None:
    """The cases are a truncated message, text that is not UTF-8, and too many fields."""
    assert fields.texts(body, [1]) is None


@pytest.mark.parametrize(("body", "text"), [
    (ModelInferRequest(model_name="m", id="7").SerializeToString() + b"\xff" * 99, "7"),
    (ModelInferRequest(model_name="m").SerializeToString(), ""),
    (b"\x2a\x00" * 8 + b"\x1a\x017", ""),
    (b"\x18\x07\x1a\x02\xff\xff", ""),
])  # fmt: skip
def test_a_text_at_the_start_of_a_message_is_found_without_walking_through_it(body: bytes, text: str) -> None:
    """A later one, a number and bytes that are not UTF-8 are left."""
    assert fields.first_text(body, 3) == text
    assert fields.first_text(memoryview(body), 3) == text


def test_parts_are_counted_in_a_message_and_in_those_inside() -> None:
    """Each field has a limit, and all together have one. Bytes that are not a message are left to protobuf."""
    inner = fields.head(5, 2 * 4097) + b"\x1a\x00" * 4097
    fields.check(inner, {})
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(inner, {5: 0})
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(b"\x1a\x00" * 4097, {})
    with pytest.raises(TooMany, match="more than 32768 fields"):
        fields.check((fields.head(5, 2 * 4096) + b"\x1a\x00" * 4096) * 9, {5: 0})
    fields.check(b"\x0a\x05ab", {})
    shape = fields.head(3, 1024) + b"\x01" * 1024
    fields.check(fields.head(5, len(shape)) + shape, {5: 3})
    long = fields.head(3, 1025) + b"\x01" * 1025
    fields.check(fields.head(5, len(long)) + long, {5: 4})
    with pytest.raises(TooMany, match="a shape has 1025 bytes; at most 1024"):
        fields.check(fields.head(5, len(long)) + long, {5: 3})


@pytest.mark.parametrize("size", [0, 5, fields.SLICE, 2 * fields.SLICE + 1])
def test_numbers_are_one_array_however_many(size: int) -> None:
    """Slices are joined in their order."""
    found = fields.array(iter(range(size)), size, np.dtype(np.int64))
    assert (found.dtype, found.tolist()) == (np.int64, list(range(size)))
