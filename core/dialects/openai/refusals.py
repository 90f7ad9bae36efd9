"""Refusals as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}.

Source: OpenAI's API reference, "Error codes", and the answers of its service.
"""

from typing import Final

from core.encoding import jsonio
from core.errors import Fault, InvalidInput, ServingError, UnknownLabel
from core.wire import JSON, HttpResponse, MethodNotAllowed, RouteNotFound, headers_of, status_of

INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"
UNKNOWN_MODEL: Final = "model_not_found"
KINDS: Final[dict[Fault, tuple[str, str | None]]] = {
    Fault.INVALID_ARGUMENT: (INVALID, None),
    Fault.NOT_FOUND: (INVALID, UNKNOWN_MODEL),
    Fault.FAILED_PRECONDITION: (SERVER, "model_not_loadable"),
    Fault.RESOURCE_EXHAUSTED: (INVALID, "request_too_large"),
    Fault.UNAVAILABLE: (SERVER, "unavailable"),
    Fault.DEADLINE_EXCEEDED: (SERVER, "timeout"),
    Fault.UNIMPLEMENTED: (INVALID, "not_supported"),
    Fault.UNAUTHENTICATED: (INVALID, "invalid_api_key"),
    Fault.PERMISSION_DENIED: (INVALID, "insufficient_permissions"),
    Fault.INTERNAL: (SERVER, None),
}
"""The type and the code of each kind of failure. Clients decide by the HTTP status, and people by these."""
ROUTING: Final[dict[type[ServingError], str]] = {
    RouteNotFound: "unknown_url",
    MethodNotAllowed: "method_not_supported",
}


class WrongParameter(InvalidInput):
    """A member of the body that is wrong. `param`: its name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def refuse(error: ServingError, _method: str, _path: str) -> HttpResponse:
    """Returns the refusal with the error's HTTP status and headers."""
    kind, code = KINDS[error.fault]
    code = ROUTING.get(type(error), code)
    is_model = code == UNKNOWN_MODEL or isinstance(error, UnknownLabel)
    param = error.param if isinstance(error, WrongParameter) else "model" if is_model else None
    told = {"message": error.message, "type": kind, "param": param, "code": code}
    return HttpResponse(status_of(error), (JSON, *headers_of(error)), (jsonio.dumps({"error": told}),))
