"""gRPC's health checking protocol (grpc.health.v1): of this server, and of each model by its name."""

from collections.abc import Callable
from typing import Final

from core import operations as ops
from core.errors import Fault, ServingError
from core.rpc import Rpc, methods
from core.schema.health import HealthCheckRequest, HealthCheckResponse

SERVICE: Final = "grpc.health.v1.Health"
SERVER: Final = ("", "inference.GRPCInferenceService")
"""Names under which a client asks for the server as a whole."""


def _check(message: HealthCheckRequest) -> tuple[ops.Operation, Callable[[ops.Readiness], HealthCheckResponse]]:
    operation = ops.ServerReady() if message.service in SERVER else ops.ModelReady(ops.ModelRef(message.service))
    return operation, lambda result: HealthCheckResponse(status="SERVING" if result.ready else "NOT_SERVING")


def _unknown(_: HealthCheckRequest | None, error: ServingError) -> HealthCheckResponse | None:
    # Check refuses what it does not know; who watches is told when it comes.
    return HealthCheckResponse(status="SERVICE_UNKNOWN") if error.fault is Fault.NOT_FOUND else None


HEALTH: Final = methods(SERVICE, Rpc("Check", _check), Rpc("Watch", _check, instead=_unknown, watched=True))
