"""core.dialects.connect.requests: bodies in base64. Heads are in test_protocol."""

import base64
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.connect import requests
from core.errors import InvalidInput


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_text_may_come_in_pieces_with_padding_of_their_own(content: bytes, cuts: list[int], strip: bool) -> None:  # noqa: FBT001 - both ways
    """The last piece may lack its padding."""
    bounds = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    text = b"".join(base64.b64encode(content[start:end]) for start, end in pairwise(bounds))
    whole = memoryview(text.rstrip(b"=") if strip else text)
    assert requests.from_text(whole) == content
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "SLICE", 8)
        assert requests.from_text(whole) == content


@pytest.mark.parametrize("piece", [b"AAA=", b"AA=="])
def test_a_long_text_takes_little_more_memory_than_its_own(piece: bytes) -> None:
    """The rule holds however much of it is padding."""
    text = piece * 2_000_000
    tracemalloc.start()
    try:
        content = requests.from_text(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content == bytes(len(content))
    assert most < 3 * len(text)


@pytest.mark.parametrize(
    "text", [b"=", b"====", b"A===", b"AA=A", b"AB=CDEFG", b"A", b"AAAAA", b"AA!A", b"AA A", b"\xff" * 4]
)
def test_text_that_is_no_base64_is_refused(text: bytes) -> None:
    """Padding is permitted only at the end of four characters."""
    with pytest.raises(InvalidInput, match="not base64 text"):
        requests.from_text(text)


@pytest.mark.parametrize("timeout", [requests.connect_timeout, requests.grpc_timeout])
@pytest.mark.parametrize("headers", [{}, {b"connect-timeout-ms": b"", b"grpc-timeout": b""}])
def test_a_call_without_a_timeout_has_none(timeout: Callable[..., float | None], headers: dict[bytes, bytes]) -> None:
    """A header without a value counts as absent."""
    assert timeout(headers) is None
