"""Reads members of untrusted JSON documents. Each failure is one line that names the document and the member."""

import json
from typing import Any, Final

from core.errors import shown

SHOWN: Final = 64
"""Characters of a wrong value that a message quotes."""


class Unverified(Exception):
    """A version does not have the content or the signer that it must have. The message is one line without paths."""


def parse(text: bytes, what: str) -> Any:
    """Parses JSON. Refuses members that repeat a name, because readers differ in which one they take."""
    try:
        return json.loads(text.decode(), object_pairs_hook=_members)
    except Unverified as repeated:
        raise Unverified(f"{what} {repeated}") from None
    except (ValueError, RecursionError):
        raise Unverified(f"{what} is not JSON") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise Unverified(f"has the member {shown(name, SHOWN)} twice")
        members[name] = value
    return members


def member(document: Any, name: str, kind: type, what: str) -> Any:
    """Returns a member of that type. `what`: the document's name in the message."""
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, kind):
        raise Unverified(f"{what} has no {name}")
    return value


def same(found: Any, expected: str, what: str) -> None:
    """Checks a text. `what`: the member's name in the message."""
    if found != expected:
        raise Unverified(f"{what} is {shown(found, SHOWN)}; expected {expected!r}")
