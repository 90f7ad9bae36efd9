"""GRPS over HTTP: its routes, and all answers except inference.

Every answer except bytes has a status, whose code is the HTTP status. Sources: GRPS's interface document; the answers
of its Python server, without their tracebacks and HTML.
"""

from typing import Any, Final

from core import operations as ops
from core.bounds import check_call
from core.dialects.grps.status import SUCCESS, failure, unready
from core.encoding import jsonio
from core.errors import InvalidInput, ServingError
from core.wire import (
    JSON,
    RETRY_SOON,
    AnyReply,
    Call,
    Decode,
    HttpResponse,
    Reply,
    Right,
    Route,
    Surface,
    Waits,
    headers_of,
)

PREFIX: Final = "/grps/v1"
NO_NAME: Final = "No model name."
EMPTY_NAME: Final = "The model name is empty."
CONTROL: Final = (Right.ADMIN, Waits.NOTHING)
LIVE: Final = (Right.OPEN, Waits.NOTHING)
READY: Final = (Right.OPEN, Waits.PROBE)
INFERENCE: Final = (Right.INFER, Waits.MODEL)
METADATA: Final = (Right.READ, Waits.STORE)
MONITOR: Final = (Right.READ, Waits.STORE)


def answer(status: dict[str, Any] = SUCCESS, **members: Any) -> HttpResponse:
    """Returns {"status": {"code", "msg", "status"}, **members} as JSON; the HTTP status is the code.

    Source: GRPS's interface document.
    """
    return HttpResponse(status["code"], (JSON,), (jsonio.dumps({"status": status, **members}),))


def refuse(error: ServingError, _method: str = "", _path: str = "") -> HttpResponse:
    """Returns the failure of an error as {"status": ...}, with the error's HTTP status and headers."""
    refusal = answer(failure(error))
    return refusal._replace(headers=(*refusal.headers, *headers_of(error)))


def _online(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.SetOnline(online=True), _done


def _offline(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.SetOnline(online=False), _done


def _live(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerLive(), _done


def _done(_: Any) -> HttpResponse:
    return answer()


def _ready(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerReady(), _readiness


def _readiness(result: ops.Readiness) -> HttpResponse:
    if result.ready:
        return answer()
    refusal = answer(unready(result.reason))
    return refusal._replace(headers=(*refusal.headers, RETRY_SOON))


def _server(_: Call) -> tuple[ops.Operation, Reply]:
    from core.dialects.grps.metadata import of_server  # noqa: PLC0415 - as inference

    return ops.ServerOverview(), lambda overview: answer(str_data=of_server(overview))


def _series(call: Call) -> tuple[ops.Operation, Reply]:
    from core.dialects.grps import monitor  # noqa: PLC0415 - as inference

    name = monitor.name_of(call.request.query)
    return ops.ServerSeries(), lambda series: monitor.answer(name, series)


def _metrics(_: Call) -> tuple[ops.Operation, Reply]:
    from core.dialects.grps import monitor  # noqa: PLC0415 - as inference

    return ops.ServerSeries(), monitor.page


def _model(call: Call) -> tuple[ops.Operation, Reply]:
    from core.dialects.grps import json_read, metadata, predict  # noqa: PLC0415 - as inference

    if predict.content_type(call.request) != JSON[1]:
        raise InvalidInput(predict.WRONG_TYPE)
    body = call.request.content()
    check_call(len(body))
    given = json_read.member(json_read.document(body), "str_data")
    selector = named_model(None if given is None else json_read.text(given, "str_data"))
    return selector, lambda info: answer(str_data=metadata.of_model(info))


def named_model(name: str | None) -> ops.ModelMetadata:
    """Returns the question of a request for a model's metadata, whose str_data is the name. Raises InvalidInput."""
    if not name:
        raise InvalidInput(NO_NAME if name is None else EMPTY_NAME)
    return ops.ModelMetadata(ops.ModelRef(name, dashed=True))


def _predict(call: Call) -> tuple[ops.Operation, AnyReply]:
    from core.dialects.grps import predict  # noqa: PLC0415 - 5 ms of cold start for servers with other clients

    return predict.decode(call)


def _named(call: Call) -> ops.ModelRef | None:
    from core.dialects.grps import predict  # noqa: PLC0415 - as inference

    return predict.named(call)


def _routes(methods: str, path: str, decode: Decode, about: str, needs: tuple[Right, Waits]) -> list[Route]:
    """Returns the routes of a path, one for each method."""
    right, waits = needs
    names = _named if waits is Waits.MODEL else None
    return [Route(method, PREFIX + path, decode, about, waits, right, names) for method in methods.split()]


SURFACE: Final = Surface(
    (
        *_routes("GET POST", "/health/online", _online, "this process says that it is ready", CONTROL),
        *_routes("GET POST", "/health/offline", _offline, "this process says that it is not ready", CONTROL),
        *_routes("GET POST", "/health/live", _live, "the process answers", LIVE),
        *_routes("GET POST", "/health/ready", _ready, "as /v2/health/ready, and not set offline", READY),
        *_routes("POST", "/infer/predict", _predict, "inference; loads the model if need be", INFERENCE),
        *_routes("GET POST", "/metadata/server", _server, "the server and its models, as YAML", METADATA),
        *_routes("POST", "/metadata/model", _model, "a model's inputs and outputs, as YAML", METADATA),
        *_routes(
            "GET", "/monitor/series", _series, "one of the server's metrics over time, such as `?name=*qps`", MONITOR
        ),
        *_routes("GET", "/monitor/metrics", _metrics, "a page of all metrics", MONITOR),
    ),
    refuse,
)
