"""The error codes of Connect and gRPC-Web, and the refusals of these protocols beside those of the operations.

Sources: the Connect protocol's "Error Codes"; gRPC's statuscodes.md, whose names Fault uses.
"""

from typing import ClassVar, Final

from core.errors import Fault, ServingError
from core.records import NamedTuple
from core.wire import Header


class Code(NamedTuple):
    """`name`: Connect's, in JSON. `number`: gRPC's. `status`: the HTTP status of a unary Connect answer."""

    name: str
    number: int
    status: int


CODES: Final = {
    code.name: code
    for code in (
        Code("unknown", 2, 500),
        Code("invalid_argument", 3, 400),
        Code("deadline_exceeded", 4, 504),
        Code("not_found", 5, 404),
        Code("permission_denied", 7, 403),
        Code("resource_exhausted", 8, 429),
        Code("failed_precondition", 9, 400),
        Code("unimplemented", 12, 501),
        Code("internal", 13, 500),
        Code("unavailable", 14, 503),
        Code("unauthenticated", 16, 401),
    )
}
"""The codes that this server sends."""
OF_FAULT: Final = {fault: CODES[fault.name.lower()] for fault in Fault}


class EdgeError(ServingError):
    """A refusal under a code that no Fault has, or with an HTTP status that no code has.

    `fault`: its reason in the log and in metrics. `status`: 0 for the code's. `headers`: those of a unary answer.
    """

    code: ClassVar[Code]
    status: ClassVar[int] = 0

    def __init__(self, message: str, *headers: Header) -> None:
        super().__init__(message)
        self.headers = headers


class DeadlineExceeded(EdgeError):
    fault = Fault.DEADLINE_EXCEEDED
    code = CODES["deadline_exceeded"]


class UnknownCompression(EdgeError):
    """An unknown compression. `headers`: the supported ones."""

    fault = Fault.UNIMPLEMENTED
    code = CODES["unimplemented"]


class UnannouncedCompression(EdgeError):
    """A compressed message without a header that names the compression. gRPC's compression.md requires this code."""

    code = CODES["internal"]


class UnknownMethod(EdgeError):
    fault = Fault.UNIMPLEMENTED
    code = CODES["unimplemented"]
    status = 404


class WrongVerb(EdgeError):
    """A refused HTTP method. Connect's clients derive this code from the status. `headers`: Allow."""

    fault = Fault.UNIMPLEMENTED
    code = CODES["unknown"]
    status = 405


class WrongType(EdgeError):
    """A refused content type. Connect's clients derive this code from the status. `headers`: Accept-Post."""

    fault = Fault.INVALID_ARGUMENT
    code = CODES["unknown"]
    status = 415


def code_of(error: ServingError) -> Code:
    return error.code if isinstance(error, EdgeError) else OF_FAULT[error.fault]


def number_of(error: ServingError) -> int:
    """Returns the number of gRPC's code.

    gRPC's clients derive no code from an HTTP status beside it, and UNKNOWN is the code of a server's mistake.
    """
    return (OF_FAULT[Fault.UNIMPLEMENTED] if isinstance(error, WrongVerb | WrongType) else code_of(error)).number
