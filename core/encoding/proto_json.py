"""Scalars of proto3's JSON mapping that JSON cannot express: bytes, and integers of 64 bits."""

import binascii
from typing import Any, Final

from numpy.typing import NDArray

from core.encoding import jsonio

URL_SAFE: Final = str.maketrans("-_", "+/")


def to_bytes(text: str) -> bytes:
    """Decodes base64: standard or URL-safe, with padding or without. Raises ValueError."""
    if "-" in text or "_" in text:
        text = text.translate(URL_SAFE)
    if len(text) % 4:
        stripped = text.rstrip("=")
        text = stripped + "=" * (-len(stripped) % 4)
    return binascii.a2b_base64(text, strict_mode=bool(text))


def from_bytes(content: bytes | memoryview) -> Any:
    """Returns standard base64 for `jsonio.dumps`."""
    return jsonio.verbatim(b'"%b"' % binascii.b2a_base64(content, newline=False))


def integers(array: NDArray[Any]) -> Any:
    """Returns a flat array of 64-bit integers for `jsonio.dumps`, each as a string."""
    if not array.size:
        return []
    text = jsonio.dumps(array)[1:-1].replace(b",", b'","')
    return jsonio.verbatim(b'["%b"]' % text)
