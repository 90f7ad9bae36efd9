"""Finds plugins: by the "module:attribute" strings of this server's tables, then by entry points of packages.

It also finds the version of this distribution.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def resolve(target: str) -> Any:
    """Imports and returns the object of "module:attribute"."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def find(name: str, builtin: Mapping[str, str], group: str) -> Any | None:
    """Returns the plugin of that name: a built-in one, else an entry point of `group`, else None."""
    if name in builtin:
        return resolve(builtin[name])
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms of cold start for a rare case

    for entry in entry_points(group=group, name=name):
        return entry.load()
    return None


def distribution_version() -> str:
    """Returns the version of this distribution, "0" for a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"
