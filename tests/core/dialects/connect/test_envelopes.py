"""core.dialects.connect.envelopes: messages in envelopes, and bytes that are not envelopes."""

import gzip
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.connect import envelopes
from core.dialects.connect.codes import UnannouncedCompression
from core.dialects.connect.envelopes import Frame, framed, frames, only
from core.encoding.compression import FREE
from core.errors import InvalidInput, NotSupported, ServingError, TooLarge
from tests.support.connect_client import envelope

LIMIT = 1000


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_envelopes_come_back_as_they_were_written(messages: list[bytes]) -> None:
    """Each envelope is read by itself."""
    body = b"".join(map(framed, messages))
    assert body == b"".join(map(envelope, messages))
    assert [bytes(frame.message(LIMIT)) for frame in frames(memoryview(body), LIMIT, b"")] == messages


def test_compressed_envelopes_are_inflated_where_a_header_said_so() -> None:
    """An empty envelope stays empty, and an uncompressed one is read as it is."""
    body = envelope(gzip.compress(b"abc"), flags=1) + envelope(b"", flags=1) + envelope(b"d")
    found = list(frames(body, LIMIT, b"gzip"))
    assert [bytes(frame.message(LIMIT)) for frame in found] == [b"abc", b"", b"d"]
    with pytest.raises(UnannouncedCompression):
        list(frames(body, LIMIT, b""))


@pytest.mark.parametrize(("body", "kind", "told"), [
    (b"\0", InvalidInput, "inside an envelope's head, at byte 1"),
    (envelope(b"abc")[:-1], InvalidInput, "announces 3 bytes; 2 follow"),
    (envelope(b"abc", flags=2), InvalidInput, "flags 2"),
    (envelope(b"abc", flags=128), InvalidInput, "flags 128"),
    (struct.pack(">BI", 0, 2**32 - 1), TooLarge, "announces 4294967295 bytes; at most 1000"),
    (envelope(bytes(LIMIT + 1)), TooLarge, "announces 1001"),
])  # fmt: skip
def test_an_envelope_that_is_none_is_refused(body: bytes, kind: type[ServingError], told: str) -> None:
    """The envelopes before it have been read."""
    found = frames(envelope(b"first") + body, LIMIT, b"gzip")
    assert bytes(next(found).content) == b"first"
    with pytest.raises(kind, match=told):
        next(found)


def test_what_inflates_to_too_much_is_refused() -> None:
    """So is content that is not gzip."""
    with pytest.raises(TooLarge, match="more than 1000"):
        Frame(gzip.compress(bytes(LIMIT + 1)), b"gzip").message(LIMIT)
    with pytest.raises(InvalidInput, match="not gzip"):
        Frame(b"abc", b"gzip").message(LIMIT)


def test_the_messages_of_a_body_inflate_to_as_much_as_a_body_may() -> None:
    """Each alone might be as large as that. One that is inflated again counts once."""
    large = envelope(gzip.compress(bytes(FREE // 2)), flags=1)
    body = large * 3 + envelope(gzip.compress(b"abc"), flags=1) + envelope(b"d")
    first, second, third, fourth, plain = frames(body, FREE, b"gzip")
    for frame in (first, first, second, first):
        assert len(frame.message(FREE)) == FREE // 2
    told = f"the messages of a body of {len(body)} bytes inflate to more than {FREE} bytes: beyond"
    for frame in (third, fourth):
        with pytest.raises(TooLarge, match=told):
            frame.message(FREE)
    assert bytes(plain.message(FREE)) == b"d"
    with pytest.raises(TooLarge, match="more than 1000 bytes, the most that is accepted"):
        first.message(LIMIT)


def test_the_messages_of_a_large_body_inflate_by_its_size() -> None:
    """A stream may contain messages of zeros, if the others hardly shrink."""
    noise = gzip.compress(os.urandom(FREE), compresslevel=1)
    body = envelope(noise, flags=1) * 2 + envelope(gzip.compress(bytes(FREE)), flags=1) * 2
    assert [len(frame.message(FREE)) for frame in frames(body, 2 * FREE, b"gzip")] == [FREE] * 4


def test_one_message_is_neither_none_nor_two() -> None:
    """GRPC's code for that is UNIMPLEMENTED."""
    frame = Frame(b"x", b"")
    assert only(iter([frame])) is frame
    for wrong in ([], [frame, frame]):
        with pytest.raises(NotSupported, match="this method takes one"):
            only(iter(wrong))


def test_an_answer_longer_than_an_envelope_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length field has four bytes."""
    monkeypatch.setattr(envelopes, "LONGEST", 3)
    assert framed(b"abc") == envelope(b"abc")
    with pytest.raises(TooLarge):
        framed(b"abcd")
