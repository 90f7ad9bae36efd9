"""Checks of a publisher's JSON. An error names the wrong value by the path of its key."""

from typing import Any

from core.errors import shown


class Wrong(Exception):
    """The key `path` has `value`, but `expected` describes the accepted values."""

    def __init__(self, path: str, value: Any, expected: str) -> None:
        super().__init__(f"{path} is {shown(value)}; expected {expected}")


def an_object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(path, value, "an object")
    return value


def only(members: dict[str, Any], path: str, *known: str) -> dict[str, Any]:
    """Returns the members of an object that only this project defines. Raises Wrong for another key: a typing error."""
    for key, value in members.items():
        if key not in known:
            raise Wrong(f"{path}.{key}", value, f"no such key; the keys are {', '.join(known)}")
    return members


def texts(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Wrong(path, value, "an array of text")
    return tuple(value)


def number(value: Any, path: str, least: int) -> int:
    if type(value) is not int or value < least:
        raise Wrong(path, value, f"a whole number from {least} up")
    return value


def is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= -1 for size in value)
