"""Finding pluggable things: "module:attribute" strings of our tables, then entry points of installed packages."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def resolve(target: str) -> Any:
    """What "module:attribute" names, imported now."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def find(name: str, builtin: Mapping[str, str], group: str) -> Any | None:
    """The plugin of that name: ours, else an entry point of `group`; None where there is neither."""
    if name in builtin:
        return resolve(builtin[name])
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms of cold start for what few have

    for entry in entry_points(group=group, name=name):
        return entry.load()
    return None
