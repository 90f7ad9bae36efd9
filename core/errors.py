"""What can go wrong while serving, whatever the protocol.

    ServingError
    |-- InvalidInput        INVALID_ARGUMENT     the client's mistake
    |   `-- UnknownLabel    INVALID_ARGUMENT     a version's label that the model's settings do not have
    |-- TooLarge            RESOURCE_EXHAUSTED   more bytes than this server or its platform carries
    |-- ModelNotFound       NOT_FOUND
    |-- VersionNotFound     NOT_FOUND
    |-- ModelNotLoadable    FAILED_PRECONDITION  stays wrong until somebody mends the model or the configuration
    |-- ModelUnavailable    UNAVAILABLE          may pass by itself: the store did not answer
    |   `-- StillLoading    UNAVAILABLE          the load needs more time than it has; the next one goes on with it
    |-- ServerBusy          UNAVAILABLE          more requests wait than may wait
    |-- NotSupported        UNIMPLEMENTED
    `-- ModelFailed         INTERNAL             the model itself, or this server

The protocols give a Fault its number (HTTP status, gRPC code); none stands here.
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
    """The value as a message may quote it: one line, at most `limit` characters.

    >>> shown("x" * 300, limit=8)
    "'xxxx..."
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | bytes | list | tuple):
        value = value[:limit]  # repr of a million elements, to keep 256 characters of it, is work a client could order
    try:
        text = repr(value)
    except RecursionError:
        text = f"{type(value).__name__} nested too deeply to be shown"
    text = " ".join(text.removeprefix("b").split())  # no client wrote Python's b of bytes
    return text if len(text) <= limit else text[: limit - 3].rstrip("'\"") + "..."


class ServingError(Exception):
    """A failure that a client is told about: one line, no traceback, no path, no credential."""

    fault: ClassVar[Fault] = Fault.INTERNAL

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds after which another try makes sense, where that is known."""
        super().__init__(message)
        # Model code and parsed JSON may bring lone surrogates, which no answer could be written with.
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
    """`version`: the number that is not there, which a label may have stood for."""

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
