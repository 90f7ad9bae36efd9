"""What proto3's JSON mapping adds to JSON: bytes, integers of 64 bits, members with two spellings, and messages.

Source: protobuf.dev/programming-guides/json.
"""

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from core.dtype import NDArray
from core.encoding import jsonio
from core.errors import InvalidInput, shown

URL_SAFE: Final = str.maketrans("-_", "+/")
INTEGER: Final = re.compile("-?0*[0-9]{1,20}")
"""A whole number of 64 bits, or of a few more."""
Kind = tuple[str, Callable[[Any], bool]]
LARGEST: Final = np.finfo(np.float32).max
"""The largest FP32. Its shortest digits are beyond it as a double, and readers of Python and JavaScript refuse them."""
SHORTEST_DIGITS: Final = re.compile(rb"3\.4028235e\+?38")
EXACT_DIGITS: Final = b"3.4028234663852886e+38"
REPEATED: Final = 3
"""FieldDescriptorProto.Label of arrays and maps."""
MESSAGE: Final = 11
"""FieldDescriptorProto.Type of objects."""


def check_spellings(document: Mapping[str, Any], fields: Iterable[Any]) -> None:
    """Raises InvalidInput if a field has a value in each of its spellings. protobuf would take the last one.

    `fields`: the message's, as its descriptor has them.
    """
    for field in fields:
        if field.name != field.json_name and field.name in document and field.json_name in document:
            raise InvalidInput(f"'{field.name}' and '{field.json_name}' are the same member; expected one of them")


def unreadable(document: Mapping[str, Any], descriptor: Any, error: str) -> InvalidInput:
    """Returns the refusal of a document that protobuf cannot read as a message. It names the first wrong member.

    `error`: protobuf's own text, which names neither a value nor its place in an array. It is for all other mistakes.
    """
    told = next(_wrong_members(document, descriptor, ""), None) or shown(error)
    return InvalidInput(f"the body is not a {descriptor.name} in JSON: {told}")


def _wrong_members(document: Mapping[str, Any], descriptor: Any, place: str) -> Iterator[str]:
    """Yields what is wrong with the kinds of an object's members. `place`: what stands before their names."""
    for field, is_repeated in _fields(descriptor):
        for name in sorted({field.name, field.json_name} & document.keys()):
            if document[name] is not None:
                wrong = _wrong_parts if is_repeated else _wrong
                yield from wrong(document[name], field, f"{place}{name}")


@cache
def _fields(descriptor: Any) -> Sequence[tuple[Any, bool]]:
    """Returns a message's fields, and whether each is an array or a map, which descriptors told in several ways."""
    from google.protobuf.descriptor_pb2 import DescriptorProto  # noqa: PLC0415 - for a mistake

    described = DescriptorProto()
    descriptor.CopyToProto(described)
    return [(field, each.label == REPEATED) for field, each in zip(descriptor.fields, described.field, strict=True)]


def _wrong_parts(value: Any, field: Any, where: str) -> Iterator[str]:
    """Yields what is wrong with the members of an array or a map."""
    message = field.message_type
    is_map = message is not None and message.GetOptions().map_entry
    if is_map and isinstance(value, dict):
        for key, part in value.items():
            yield from _wrong(part, message.fields_by_name["value"], f"{where}[{shown(key)}]")
    elif not is_map and isinstance(value, list):
        for index, part in enumerate(value):
            yield from _wrong(part, field, f"{where}[{index}]")
    else:
        yield f"{where} is {shown(value)}; expected {'an object' if is_map else 'an array'}"


def _wrong(value: Any, field: Any, where: str) -> Iterator[str]:
    """Yields what is wrong with a single value."""
    if field.type == MESSAGE and isinstance(value, dict):
        yield from _wrong_members(value, field.message_type, f"{where}.")
        return
    expected, fits = KINDS[field.type]
    if not fits(value):
        yield f"{where} is {shown(value)}; expected {expected}"


def _integers(bits: int, low: int) -> Kind:
    """Returns the kind of whole numbers from `low` up, of so many values."""
    high = low + 2**bits - 1

    def fits(value: Any) -> bool:
        if isinstance(value, str):
            return INTEGER.fullmatch(value) is not None and low <= int(value) <= high
        return (type(value) is int or (isinstance(value, float) and value.is_integer())) and low <= value <= high

    return f"a whole number of {bits} bits" + (", not below 0" if low == 0 else ""), fits


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


TEXT: Final[Kind] = ("a string", _is_text)
NUMBER: Final[Kind] = ("a number that a double holds", lambda value: type(value) in (int, float, str))
KINDS: Final[Mapping[int, Kind]] = {
    1: NUMBER,
    2: NUMBER,
    3: _integers(64, -(2**63)),
    4: _integers(64, 0),
    5: _integers(32, -(2**31)),
    8: ("true or false", lambda value: isinstance(value, bool)),
    9: TEXT,
    MESSAGE: ("an object", lambda _: False),
    12: TEXT,
    13: _integers(32, 0),
    14: ("a name or a whole number", lambda value: isinstance(value, str) or type(value) is int),
}
"""The values of a field that are not objects, by FieldDescriptorProto.Type. No message here has one of the others."""


def to_bytes(text: str) -> bytes:
    """Decodes base64: standard or URL-safe, with padding or without. Raises ValueError."""
    if ("-" in text or "_" in text) and text.isascii():  # another text is refused, and would take long to translate
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
    text = jsonio.dumps(jsonio.numbers(array))[1:-1].replace(b",", b'","')
    return jsonio.verbatim(b'["%b"]' % text)


def floats(array: NDArray[Any], written: Any) -> Any:
    """Returns `written`, an array's numbers for `jsonio.dumps`, with digits that every reader takes for an FP32."""
    if array.dtype != np.float32 or not (np.abs(array) == LARGEST).any():
        return written
    return jsonio.verbatim(SHORTEST_DIGITS.sub(EXACT_DIGITS, jsonio.dumps(written)))
