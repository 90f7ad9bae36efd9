"""core.dialects.grpc.health: the health of the server, and of each model by its name."""

from typing import Final

import pytest

from core import operations as ops
from core.dialects.grpc.health import health as health_methods
from core.errors import ModelFailed, ModelNotFound
from core.operations import ModelRef
from core.schema import health

SERVICE: Final = "inference.GRPCInferenceService"
METHODS: Final = {method.rpc.name: method for method in health_methods([SERVICE, "a.B"])}


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_health_checking_asks_for_the_server_or_for_a_model(method: str) -> None:
    """The server is checked under the names of its services, this one included, and under the empty name."""
    for name in ("", SERVICE, "a.B", "grpc.health.v1.Health"):
        assert METHODS[method].rpc.decode(health.HealthCheckRequest(service=name))[0] == ops.ServerReady()
    operation, phrase = METHODS[method].rpc.decode(health.HealthCheckRequest(service="m"))
    assert operation == ops.ModelReady(ModelRef("m"))
    assert phrase(ops.Readiness(ready=True)).status == health.HealthCheckResponse(status="SERVING").status
    assert phrase(ops.Readiness(ready=False)).status == health.HealthCheckResponse(status="NOT_SERVING").status


def test_who_watches_an_unknown_model_is_told_when_it_comes() -> None:
    """A check of one is refused."""
    instead = METHODS["Watch"].rpc.instead
    assert instead is not None
    unknown = health.HealthCheckResponse(status="SERVICE_UNKNOWN")
    assert instead(health.HealthCheckRequest(), ModelNotFound("m")) == unknown
    assert instead(health.HealthCheckRequest(), ModelFailed("m")) is None
    assert METHODS["Check"].rpc.instead is None
