"""The status of every answer in GRPS; its members are those of the message, in JSON and in protobuf."""

from typing import Any, Final

from core.errors import ServingError
from core.wire import status_of

SUCCESS: Final[dict[str, Any]] = {"code": 200, "msg": "OK", "status": "SUCCESS"}


def failure(error: ServingError) -> dict[str, Any]:
    """Returns the status of an error. Its code is HTTP's number, over gRPC too."""
    return failed(status_of(error), error.message)


def failed(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "msg": message, "status": "FAILURE"}


def unready(reason: str) -> dict[str, Any]:
    """Returns the status of a server that is not ready, for load balancers."""
    return failed(503, f"Service Unavailable: {reason}")
