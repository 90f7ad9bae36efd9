"""What proto3's JSON mapping adds to JSON: bytes, integers of 64 bits, and members with two spellings."""

import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.dtype import NDArray
from core.encoding import jsonio
from core.errors import InvalidInput

URL_SAFE: Final = str.maketrans("-_", "+/")


def check_spellings(document: Mapping[str, Any], fields: Iterable[Any]) -> None:
    """Raises InvalidInput if a field has a value in each of its spellings. protobuf would take the last one.

    `fields`: the message's, as its descriptor has them.
    """
    for field in fields:
        if field.name != field.json_name and field.name in document and field.json_name in document:
            raise InvalidInput(f"'{field.name}' and '{field.json_name}' are the same member; expected one of them")


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
