"""Scalars in proto3's JSON mapping that JSON itself has no form for: bytes, and integers of 64 bits."""

import binascii
from typing import Any, Final

from numpy.typing import NDArray

from core.encoding import jsonio

URL_SAFE: Final = str.maketrans("-_", "+/")


def to_bytes(text: str) -> bytes:
    """What base64 stands for: standard or URL-safe, with padding or without. Raises ValueError."""
    if "-" in text or "_" in text:
        text = text.translate(URL_SAFE)
    if len(text) % 4:
        stripped = text.rstrip("=")
        text = stripped + "=" * (-len(stripped) % 4)
    return binascii.a2b_base64(text, strict_mode=bool(text))


def from_bytes(content: bytes | memoryview) -> Any:
    """Standard base64, as `jsonio.dumps` takes it."""
    return jsonio.verbatim(b'"%b"' % binascii.b2a_base64(content, newline=False))


def integers(array: NDArray[Any]) -> Any:
    """A flat array of 64-bit integers, each as a string, as `jsonio.dumps` takes it."""
    if not array.size:
        return []
    text = jsonio.dumps(array)[1:-1].replace(b",", b'","')
    return jsonio.verbatim(b'["%b"]' % text)
