"""core.schema.fields: a message without one of its fields, checked against protobuf."""

from typing import Final

import numpy as np
import pytest
from google.protobuf.message import DecodeError
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
    assert split is not None
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
    assert found == (message.model_name, message.model_version)
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
    assert fields.first_texts(body, [3]) == [text]
    assert fields.first_texts(memoryview(body), [3]) == [text]


def test_parts_are_counted_in_a_message_and_in_those_inside() -> None:
    """Each field has a limit, and all together have one."""
    inner = fields.head(5, 2 * 4097) + b"\x1a\x00" * 4097
    fields.check(inner, {})
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(inner, {5: 0})
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(b"\x1a\x00" * 4097, {})
    with pytest.raises(TooMany, match="more than 32768 fields"):
        fields.check((fields.head(5, 2 * 4096) + b"\x1a\x00" * 4096) * 9, {5: 0})
    shape = fields.head(3, 1024) + b"\x01" * 1024
    fields.check(fields.head(5, len(shape)) + shape, {5: 3})
    long = fields.head(3, 1025) + b"\x01" * 1025
    fields.check(fields.head(5, len(long)) + long, {5: 4})
    with pytest.raises(TooMany, match="a shape has 1025 bytes; at most 1024"):
        fields.check(fields.head(5, len(long)) + long, {5: 3})


def test_too_many_parts_have_the_name_of_their_field() -> None:
    """Those in a message that is a field have it, too. A field that the message does not know has its number."""
    kind = ModelInferRequest.DESCRIPTOR
    inner = b"\x12\x00" * 4097
    cases = ((b"\x2a\x00" * 4097, "'inputs'"), (fields.head(5, len(inner)) + inner, "'datatype'"))
    for body, told in (*cases, (b"\xf8\x07\x01" * 4097, "field 127")):
        with pytest.raises(TooMany, match=f"more than 4096 values of {told}"):
            fields.check(body, {5: 0}, kind)


MANY: Final = b"\x1a\x00" * 4097


@pytest.mark.parametrize("first", [
    b"\x78" + b"\xff" * 9 + b"\1",
    b"\x78" + b"\x80" * 6 + b"\0",
    b"\x7b\x7c",
    b"\x7b\x7b\x08\1\x7c\x7c",
    b"\x79" + bytes(8) + b"\x7d" + bytes(4),
    b"\xaa\x80\x80\x80\0\0",
    b"\x2a" + b"\x80" * 9 + b"\0",
])  # fmt: skip
def test_no_field_that_protobuf_reads_ends_the_count(first: bytes) -> None:
    """Parts behind a negative number, a long varint, a group or a long key are counted, at both levels."""
    assert len(ModelInferRequest.FromString(first + MANY).id) == 0
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(first + MANY, {})
    inner = first + MANY
    with pytest.raises(TooMany, match="more than 4096 values of field 3"):
        fields.check(fields.head(5, len(inner)) + inner, {5: 0})


@pytest.mark.parametrize("body", [
    b"\x0a\x05ab", b"\x78" + b"\xff" * 10 + b"\1", b"\x0a" + b"\x80" * 10 + b"\0", b"\x7b", b"\x7c", b"\x7e",
    b"\x2a\x01\x7b\x7c",
])  # fmt: skip
def test_what_cannot_be_counted_is_refused_as_by_protobuf(body: bytes) -> None:
    """The cases are truncated, of no wire type, a varint that is too long, and groups without a beginning or an end."""
    with pytest.raises(DecodeError):
        ModelInferRequest.FromString(body)
    with pytest.raises(DecodeError):
        fields.check(body, {5: 0})


@given(st.lists(PIECES | st.sampled_from([b"\x7b\x0a\1a\x7c", b"\x2b\x2c"]), max_size=8).map(b"".join))
def test_every_message_that_protobuf_reads_can_be_counted(body: bytes) -> None:
    """Unknown fields of every kind and groups are among them. A text inside a group is not the message's."""
    message = ModelInferRequest.FromString(body)
    fields.check(body, {5: 3})
    assert fields.texts(body, [1]) == (message.model_name,)


@pytest.mark.parametrize("size", [0, 5, fields.SLICE, 2 * fields.SLICE + 1])
def test_numbers_are_one_array_however_many(size: int) -> None:
    """Slices are joined in their order."""
    found = fields.array(iter(range(size)), size, np.dtype(np.int64))
    assert (found.dtype, found.tolist()) == (np.int64, list(range(size)))
