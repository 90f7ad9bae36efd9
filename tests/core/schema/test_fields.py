"""core.schema.fields: a message without one of its fields, against protobuf."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    """Fields in any order, unknown ones of every kind among them."""
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
    """Nothing is read beyond the end, and what was split is what was there."""
    split = fields.split(body, RAW)
    if split is not None:
        rest, values = split
        assert len(rest) + sum(map(len, values)) <= len(body)
        assert all(bytes(value) in body for value in values)


def test_a_message_of_very_many_fields_is_left_to_protobuf() -> None:
    """Python goes from field to field for a while only."""
    assert fields.split(b"\x0a\0" * fields.MOST_FIELDS * 2, RAW) is None


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 600_000])
def test_the_head_of_a_field_is_the_one_of_protobuf(size: int) -> None:
    """A varint grows by seven bits."""
    raw = bytes(size)
    assert fields.head(RAW, size) + raw == ModelInferRequest(raw_input_contents=[raw]).SerializeToString()
