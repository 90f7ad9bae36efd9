"""The routes of one platform: its health, its inference, and what else it calls.

Health is 200 as soon as the server is ready, with a body that no platform reads. Refusals are {"error": text}, and in
MLflow's form {"error_code": code, "message": text}. Sources: MLflow's scoring_server and its codes of errors.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from core import operations as ops
from core.dialects.v2 import refusals
from core.encoding import jsonio
from core.errors import Fault, ServingError
from core.wire import (
    JSON,
    RETRY_SOON,
    Call,
    Dialect,
    HttpResponse,
    Reply,
    Right,
    Route,
    Surface,
    Waits,
    headers_of,
    status_of,
)

Refuse = Callable[[ServingError, str, str], HttpResponse]
TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
CODES: Final = {
    Fault.INVALID_ARGUMENT: "BAD_REQUEST",
    Fault.NOT_FOUND: "RESOURCE_DOES_NOT_EXIST",
    Fault.FAILED_PRECONDITION: "INVALID_STATE",
    Fault.RESOURCE_EXHAUSTED: "REQUEST_LIMIT_EXCEEDED",
    Fault.UNAVAILABLE: "TEMPORARILY_UNAVAILABLE",
    Fault.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
    Fault.UNIMPLEMENTED: "NOT_IMPLEMENTED",
    Fault.UNAUTHENTICATED: "UNAUTHENTICATED",
    Fault.PERMISSION_DENIED: "PERMISSION_DENIED",
    Fault.INTERNAL: "INTERNAL_ERROR",
}
"""MLflow's names of failures."""


def dialects(health: str, infer: str, folder: str = "", *, as_mlflow: bool = False) -> tuple[Dialect, ...]:
    """Returns the dialects of a platform's paths. `folder`: where it puts models that it asks to load; "" for none.

    Each has one path, and comes before the protocols': Vertex AI's paths may lie below /v1, and the protocols' below
    them, such as /v1/models/iris/metadata.
    """
    refuse: Refuse = _refuse_as_mlflow if as_mlflow else refusals.refuse
    decode = partial(_infer, as_mlflow=as_mlflow)
    routes = [
        Route("GET", health, _ready, "ready", right=Right.OPEN),
        Route("POST", infer, decode, "inference", Waits.MODEL, Right.INFER, _names),
    ]
    if as_mlflow:
        routes += [
            Route("GET", "/health", _ready, "ready", right=Right.OPEN),
            Route("GET", "/version", _version, "this server's version", right=Right.READ),
        ]
    paths = dict.fromkeys(route.pattern for route in routes if route.pattern)  # health and inference may share one
    found = [_at(path, [route for route in routes if route.pattern == path], refuse) for path in paths]
    if not folder:
        return tuple(found)
    from core.dialects.platforms import hosted  # noqa: PLC0415 - for SageMaker's multi-model endpoints

    return (*found, hosted.dialect(folder))


def _at(path: str, routes: Sequence[Route], refuse: Refuse) -> Dialect:
    return Dialect("platform", path, partial(Surface, tuple(routes), refuse), is_single=True)


def _infer(call: Call, *, as_mlflow: bool) -> tuple[ops.Operation, Reply]:
    from core.dialects.platforms import invocations  # noqa: PLC0415 - 5 ms of the start, as the verbs of v1

    return invocations.decode(call, as_mlflow=as_mlflow)


def _names(call: Call) -> ops.ModelRef:
    from core.dialects.platforms import invocations  # noqa: PLC0415 - as above

    return invocations.ref(call)


def _ready(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerReady(), _health


def _health(result: ops.Readiness) -> HttpResponse:
    if result.ready:
        return HttpResponse(200, (TEXT,), (b"\n",))
    return HttpResponse(503, (TEXT, RETRY_SOON), (f"{result.reason}\n".encode(errors="replace"),))


def _version(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerMetadata(), lambda info: HttpResponse(200, (TEXT,), (info.version.encode(),))


def _refuse_as_mlflow(error: ServingError, _method: str = "", _path: str = "") -> HttpResponse:
    told = {"error_code": CODES[error.fault], "message": error.message}
    return HttpResponse(status_of(error), (JSON, *headers_of(error)), (jsonio.dumps(told),))
