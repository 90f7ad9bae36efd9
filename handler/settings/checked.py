"""Checks of a publisher's JSON. An error names the wrong value by the path of its key."""

import errno
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from core.errors import shown
from core.tensor import MAX_RANK, is_possible

LONGEST_PATH: Final = 256
"""Characters of a key's path that a message has. A publisher chooses the names of some keys."""
LONGEST_NAME: Final = 255
"""Bytes of a name in a path that file systems take."""
LARGEST: Final = 2**63 - 1
"""The largest whole number that answers, pages and ONNX Runtime can hold."""


class Wrong(Exception):
    """The key `path` has `value`, but `expected` describes the accepted values. `key`: its first part."""

    key = ""

    def __init__(self, path: str, value: Any, expected: str) -> None:
        self.key = re.split(r"[.\[]", path, maxsplit=1)[0]
        path = path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}..."
        super().__init__(f"{path} is {shown(value)}; expected {expected}")


class WrongText(Wrong):
    """A problem without one value to show. `text`: its sentence, without quotes of a file, which may hold a secret."""

    def __init__(self, text: str, key: str = "") -> None:
        self.key = key
        Exception.__init__(self, text)


class Unquoted:
    """Replaces a value in Wrong that could contain a secret. It says only what the value is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


KINDS: Final[Mapping[type, str]] = {list: "an array", str: "a string", bool: "a boolean"}
"""JSON's names for the types of Python. The others are numbers."""


def an_object(value: Any, path: str, *known: str) -> dict[str, Any]:
    """Returns the object. With `known`, an object that only this project defines: another key is a typing error.

    Raises Wrong.
    """
    if not isinstance(value, dict):
        raise Wrong(path, value, "an object")
    for key in value if known else ():
        if key not in known:
            raise Wrong(f"{path}.{key}", value[key], f"no such key; the keys are {', '.join(known)}")
    return value


def members_of(text: bytes) -> dict[str, Any]:
    """Returns the keys of a file. No error quotes a file that is not an object: it may hold a secret. Raises Wrong.

    Lone surrogates and numbers of more than 64 bits are refused: no answer and no page could have them. So is a key
    twice in one object: one of its values would have no effect.
    """
    try:
        value = json.loads(text, parse_int=_whole, object_pairs_hook=_members)
        if b"\\u" in text or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        reason = error.msg.replace("Expecting", "expected")
        where = f"line {error.lineno}, column {error.colno}"
        raise WrongText(f"the file is not JSON: {where}: {reason[:1].lower()}{reason[1:]}") from None
    except (ValueError, RecursionError) as error:
        raise WrongText(f"the file is not JSON: {str(error)[:80]}") from None
    if value and not isinstance(value, dict):
        raise Wrong("the file", Unquoted(KINDS.get(type(value), "a number")), "an object")
    return an_object(value, "the file")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the object with these keys and values. Raises Wrong for a key that is there twice."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise Wrong(f"the key {shown(name)}", Unquoted("there twice in one object"), "it once")
        members[name] = value
    return members


def _whole(digits: str) -> int:
    """Raises ValueError."""
    value = int(digits) if len(digits) <= len(str(-LARGEST)) else LARGEST + 1
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"the number {digits[:16]}... has more than 64 bits")
    return value


def texts(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Wrong(path, value, "an array of text")
    return tuple(value)


def number(value: Any, path: str, least: int) -> int:
    if type(value) is not int or value < least:
        raise Wrong(path, value, f"a whole number from {least} up")
    return value


def a_shape(value: Any, path: str, *, least: int = -1, otherwise: str = "") -> tuple[int, ...]:
    """Returns the shape. `least`: -1 if a size can be left open. `otherwise`: what else is accepted. Raises Wrong."""
    if not isinstance(value, list) or not all(type(size) is int and size >= least for size in value):
        raise Wrong(path, value, f"an array of whole numbers from {least} up{otherwise}")
    if not is_possible(value):
        raise Wrong(path, value, f"at most {MAX_RANK} sizes, and at most 2**48 elements")
    return tuple(value)


def is_below(file: Any) -> bool:
    """Decides whether a publisher's value is a relative path that does not lead out of its folder.

    A path that no file system can have is not one: the system would raise errors that name no key.
    """
    if not isinstance(file, str) or not file.isprintable() or "\\" in file:
        return False
    parts = PurePosixPath(file).parts
    return bool(parts) and not {"..", "/"} & set(parts) and all(len(part.encode()) <= LONGEST_NAME for part in parts)


def size_of(path: Path) -> int:
    """Returns the bytes of a publisher's file. Raises OSError, also for a pipe, which blocks, or an endless device."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return found.st_size
