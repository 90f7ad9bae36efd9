"""core.encoding.compression: HTTP's codings, their limits, and which one a client gets."""

import gzip
import zlib

import pytest

from core.encoding.compression import accepted, deflate, inflate
from core.errors import InvalidInput, TooLarge


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_what_is_compressed_here_the_standard_library_reads_and_the_other_way_round(coding: bytes) -> None:
    """HTTP's deflate is the zlib format."""
    compress, decompress = (gzip.compress, gzip.decompress) if coding == b"gzip" else (zlib.compress, zlib.decompress)
    assert decompress(deflate((b"ab" * 1000, memoryview(b"cd")), coding)) == b"ab" * 1000 + b"cd"
    assert inflate(compress(b"ab" * 1000), coding, 2000) == b"ab" * 1000


def test_a_bomb_is_stopped_at_the_limit() -> None:
    """One byte more than the limit is too much."""
    with pytest.raises(TooLarge, match="more than 1999 bytes"):
        inflate(gzip.compress(b"ab" * 1000), b"gzip", 1999)


@pytest.mark.parametrize(("body", "message"), [
    (b"nonsense", "not gzip data"),
    (gzip.compress(b"abc", mtime=0)[:-3], "cut short"),
    (gzip.compress(b"abc", mtime=0) + b"nonsense", "the gzip body is followed by 8 stray bytes"),
    (gzip.compress(b"abc", mtime=0) + b"\0", "the gzip body is followed by 1 stray bytes"),
    (gzip.compress(b"abc", mtime=0) + b"\x1f", "the gzip body is followed by 1 stray bytes"),
    (gzip.compress(b"abc", mtime=0) + b"\x1f\x8bnonsense", "not gzip data"),
    (b"", "cut short"),
])  # fmt: skip
def test_what_is_not_one_whole_stream_is_refused(body: bytes, message: str) -> None:
    """Half a body must not pass for a small one."""
    with pytest.raises(InvalidInput, match=message):
        inflate(body, b"gzip", 1000)


def test_bytes_after_a_zlib_stream_are_refused() -> None:
    """That format has no members."""
    with pytest.raises(InvalidInput, match="followed by 1 stray bytes"):
        inflate(zlib.compress(b"abc") + b"x", b"deflate", 1000)


def test_a_gzip_body_may_have_members_which_share_the_limit() -> None:
    """Concatenated gzip files have them."""
    body = gzip.compress(b"abc") + gzip.compress(b"") + gzip.compress(b"defg")
    assert inflate(body, b"gzip", 7) == b"abcdefg"
    with pytest.raises(TooLarge):
        inflate(body, b"gzip", 6)
    with pytest.raises(InvalidInput, match="more than 16 members"):
        inflate(gzip.compress(b"") * 17, b"gzip", 1)


@pytest.mark.parametrize(("header", "coding"), [
    (None, None), (b"", None), (b"gzip", b"gzip"), (b"GZIP", b"gzip"), (b"deflate", b"deflate"), (b"*", b"gzip"),
    (b"gzip;q=0", None), (b"gzip;q=0,*", b"deflate"), (b"gzip;q=oops", None), (b"gzip;level=1", b"gzip"),
    (b"identity;q=1, gzip;q=0.5", None), (b"br", None),
])  # fmt: skip
def test_the_best_accepted_coding_is_chosen(header: bytes | None, coding: bytes | None) -> None:
    """RFC 9110's quality values decide, 0 among them."""
    assert accepted(header) == coding
