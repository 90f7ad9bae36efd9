"""Reads the model that a path under /v1 names."""

from typing import Final

from core.errors import InvalidInput, shown
from core.operations import ModelRef
from core.wire import Call, RouteNotFound

LARGEST_VERSION: Final = 2**63 - 1
MOST_DIGITS: Final = 80
"""The most digits, leading zeros among them: the time of Python's int() grows with the square of their number."""


def ref(call: Call) -> ModelRef:
    """Returns the model, and the version or label, of a path.

    Raises RouteNotFound for a version that is not a number, InvalidInput for one beyond 64 bits.
    """
    version = call.path.get("version")
    if version is None:
        return ModelRef(call.path["model"], None, call.path.get("label"))
    if not (version.isascii() and version.isdecimal()):
        raise RouteNotFound(f"a version is a number, not {shown(version)}")
    if len(version) > MOST_DIGITS or int(version) > LARGEST_VERSION:
        raise InvalidInput(f"version {shown(version)} is beyond 64 bits")
    number = int(version)
    return ModelRef(call.path["model"], str(number), zero_is_newest=not number)
