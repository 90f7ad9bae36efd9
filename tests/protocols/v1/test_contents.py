"""Contents of files as tensors of bytes: the settings' `encoding: bytes`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import alive, predict, read

if TYPE_CHECKING:
    from tests.support.wire import Answer, Wire

CONTENT = bytes(range(256))


def image(wire: Wire, **members: Any) -> Answer:
    """Bytes of the photo model."""
    return predict(wire, "photo", members)


@pytest.mark.row("V1-072", "V1-078")
@pytest.mark.parametrize("content", [CONTENT, b"\xff\0", b"text", b"\0" * 10_000], ids=["all", "two", "text", "long"])
def test_bytes_encoding_feeds_any_content_to_a_tensor_of_bytes(wire: Wire, content: bytes) -> None:
    """One base64 object per row; the answer's last axis goes back into one."""
    value = {"b64": base64.b64encode(content).decode()}
    assert read(image(wire, instances=[value, value])) == {"predictions": [value, value]}
    assert read(image(wire, inputs={"image_bytes": [value]})) == {"outputs": [value]}
    numbers = image(wire, signature_name="numbers", instances=[value])
    assert read(numbers) == {"predictions": [list(content)]}


@pytest.mark.row("V1-072")
@pytest.mark.parametrize("value", [1, [1, 2], None, {"b64": 5}])
def test_bytes_encoding_takes_nothing_but_bytes(wire: Wire, value: object) -> None:
    """As for text."""
    refusal(image(wire, inputs={"image_bytes": [value]}), 400)


@pytest.mark.row("V1-047")
def test_contents_of_unequal_lengths_make_no_tensor_of_bytes(wire: Wire) -> None:
    """400: its rows would be ragged."""
    refusal(image(wire, instances=[{"b64": "AAAA"}, {"b64": "AA=="}]), 400)
    alive(wire)
