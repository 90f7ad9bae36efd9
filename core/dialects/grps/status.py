"""The status that every answer of GRPS has; its members are those of the message, in JSON and in protobuf."""

from typing import Any, Final

from core.errors import ServingError
from core.wire import status_of

SUCCESS: Final[dict[str, Any]] = {"code": 200, "msg": "OK", "status": "SUCCESS"}


def failure(error: ServingError) -> dict[str, Any]:
    """`code`: HTTP's number, over gRPC too."""
    return failed(status_of(error), error.message)


def failed(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "msg": message, "status": "FAILURE"}


def unready(reason: str) -> dict[str, Any]:
    """What a load balancer is told."""
    return failed(503, f"Service Unavailable: {reason}")
