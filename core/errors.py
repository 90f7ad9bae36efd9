"""The failures of serving, independent of the protocol.

    ServingError
    |-- InvalidInput        INVALID_ARGUMENT     the client's mistake
    |   `-- UnknownLabel    INVALID_ARGUMENT     a version's label that the model's settings do not have
    |-- TooLarge            RESOURCE_EXHAUSTED   more bytes than this server or its platform carries
    |-- ModelNotFound       NOT_FOUND
    |-- VersionNotFound     NOT_FOUND
    |-- ModelNotLoadable    FAILED_PRECONDITION  permanent until the model or the configuration is repaired
    |-- ModelUnavailable    UNAVAILABLE          may pass by itself: the store did not answer
    |   `-- StillLoading    UNAVAILABLE          the load needs more time than it has; the next request continues it
    |-- ServerBusy          UNAVAILABLE          the limit of waiting requests is reached
    |-- NotSupported        UNIMPLEMENTED
    `-- ModelFailed         INTERNAL             the model itself, or this server

Each protocol maps a Fault to its own number (HTTP status, gRPC code); this module has none.
"""

from enum import Enum, auto
from typing import Any, ClassVar

SHOWN_CHARACTERS = 256


class Fault(Enum):
    """Kinds of failure, under the names of gRPC's status codes."""

    INVALID_ARGUMENT = auto()
    NOT_FOUND = auto()
    FAILED_PRECONDITION = auto()
    RESOURCE_EXHAUSTED = auto()
    UNAVAILABLE = auto()
    UNIMPLEMENTED = auto()
    INTERNAL = auto()


def shown(value: Any, limit: int = SHOWN_CHARACTERS) -> str:
    """Returns the value as a message quotes it: one line, at most `limit` characters.

    >>> shown("x" * 300, limit=8)
    "'xxxx..."
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | bytes | list | tuple):
        value = value[:limit]  # otherwise a client could order the repr of a million elements to show 256 characters
    try:
        text = repr(value)
    except RecursionError:
        text = f"{type(value).__name__} nested too deeply to be shown"
    text = " ".join(text.removeprefix("b").split())  # the b of b'...' is Python's, not the client's
    return text if len(text) <= limit else text[: limit - 3].rstrip("'\"") + "..."


class ServingError(Exception):
    """A failure whose message is sent to the client: one line, without traceback, path or credential."""

    fault: ClassVar[Fault] = Fault.INTERNAL

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds after which a retry makes sense, None if unknown."""
        super().__init__(message)
        # Model code and parsed JSON may contain lone surrogates, which cannot be encoded in an answer.
        self.message = message.encode(errors="replace").decode()
        self.retry_after = retry_after


class InvalidInput(ServingError):
    fault = Fault.INVALID_ARGUMENT


class UnknownLabel(InvalidInput):
    pass


class TooLarge(ServingError):
    fault = Fault.RESOURCE_EXHAUSTED


class ModelNotFound(ServingError):
    fault = Fault.NOT_FOUND


class VersionNotFound(ServingError):
    """`version`: the missing number; the request may have named it by a label."""

    fault = Fault.NOT_FOUND

    def __init__(self, message: str, version: str = "") -> None:
        super().__init__(message)
        self.version = version


class ModelNotLoadable(ServingError):
    fault = Fault.FAILED_PRECONDITION


class ModelUnavailable(ServingError):
    fault = Fault.UNAVAILABLE


class StillLoading(ModelUnavailable):
    pass


class ServerBusy(ServingError):
    fault = Fault.UNAVAILABLE


class NotSupported(ServingError):
    fault = Fault.UNIMPLEMENTED


class ModelFailed(ServingError):
    fault = Fault.INTERNAL
