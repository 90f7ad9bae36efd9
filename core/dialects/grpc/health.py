"""gRPC's health checking protocol (grpc.health.v1): the health of this server, and of each model by its name."""

from collections.abc import Callable, Iterable
from typing import Final

from core import operations as ops
from core.errors import Fault, ServingError
from core.rpc import Rpc, RpcMethod, methods
from core.schema.health import HealthCheckRequest, HealthCheckResponse
from core.wire import Right, Waits

SERVICE: Final = "grpc.health.v1.Health"


def _unknown(_: HealthCheckRequest | None, error: ServingError) -> HealthCheckResponse | None:
    # Check refuses an unknown service; Watch reports it as unknown until it exists.
    return HealthCheckResponse(status="SERVICE_UNKNOWN") if error.fault is Fault.NOT_FOUND else None


def health(services: Iterable[str]) -> tuple[RpcMethod, ...]:
    """Returns the service's methods. The names in `services`, its own name and "" stand for the whole server."""
    server = {"", SERVICE, *services}

    def check(message: HealthCheckRequest) -> tuple[ops.Operation, Callable[[ops.Readiness], HealthCheckResponse]]:
        name = message.service
        operation = ops.ServerReady() if name in server else ops.ModelReady(ops.ModelRef(name))
        return operation, lambda result: HealthCheckResponse(status="SERVING" if result.ready else "NOT_SERVING")

    return methods(
        SERVICE,
        Rpc("Check", check, Waits.PROBE, right=Right.OPEN),
        Rpc("Watch", check, Waits.PROBE, instead=_unknown, watched=True, right=Right.OPEN),
    )
