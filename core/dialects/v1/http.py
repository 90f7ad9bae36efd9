"""/v1: KServe V1 and TensorFlow Serving's REST API, which share their paths, as one protocol for both clients.

If one protocol's clients ignore the other's keys, an answer has the keys of both. If the two contradict each other, the
request decides, or a setting: see v1.predict. Every refusal is {"error": text}. An unknown path or method is refused
with 400 and TensorFlow Serving's text. Sources: TF Serving's RESTful API page; KServe's V1 protocol page.
"""

from collections.abc import Sequence
from typing import Any, Final

from core import operations as ops
from core.dialects.v1.request import ref
from core.encoding import jsonio
from core.errors import Fault, ModelNotFound, ServingError, VersionNotFound, escaped, shown
from core.operations import State
from core.wire import (
    JSON,
    RETRY_SOON,
    Call,
    Decode,
    HttpResponse,
    MethodNotAllowed,
    Reply,
    Right,
    Route,
    RouteNotFound,
    Surface,
    Waits,
    headers_of,
    json_answer,
    status_of,
)

LONGEST: Final = 256
"""Characters of a path, or of a model's name, that a refusal quotes."""
MODEL_SEGMENT: Final = 3
MODELS: Final = "/v1/models/"


def refuse(error: ServingError, method: str, path: str) -> HttpResponse:
    """Returns {"error": text} with the error's HTTP status and headers.

    TF Serving's own texts: an unknown path or method is 400 "Malformed request" and quotes at most 256 characters of
    the path; a missing model or version is "Servable not found". A name is quoted in part, too, if it is longer. A
    model's own path can also begin with /v1. Its query names the model.
    Source: TF Serving's http_rest_api_handler.cc.
    """
    if isinstance(error, RouteNotFound | MethodNotAllowed):
        malformed = f"Malformed request: {method} {_shortened(path)}".encode(errors="replace").decode()
        return json_answer({"error": escaped(malformed)}, 400)
    text = error.message
    if isinstance(error, ModelNotFound | VersionNotFound) and path.lower().startswith(MODELS):
        version = error.version if isinstance(error, VersionNotFound) else ""
        text = f"Servable not found for request: {escaped(_servable(path, version))}"
    return HttpResponse(status_of(error), (JSON, *headers_of(error)), (jsonio.dumps({"error": text}),))


def _servable(path: str, version: str) -> str:
    """Returns Latest(name) or Specific(name, version) for a path that matched a route."""
    _, _, _, *rest = path.split("/")
    names = [*rest[:-1], rest[-1].rpartition(":")[0] or rest[-1]]
    if len(names) >= MODEL_SEGMENT and names[1].lower() == "versions" and names[2].isdecimal():
        version = names[2].lstrip("0") or "0"
    name = _shortened(names[0])
    return f"Specific({name}, {version})" if version else f"Latest({name})"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _names(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ListModels(), lambda names: json_answer({"models": list(names)})


def _verb(name: str) -> Decode:
    def decode(call: Call) -> tuple[ops.Operation, Reply]:
        from core.dialects.v1 import verbs  # noqa: PLC0415 - 5 ms of cold start for servers with other clients

        return verbs.decode(name, call)

    return decode


def _metadata(call: Call) -> tuple[ops.Operation, Reply]:
    from core.dialects.v1.metadata import metadata  # noqa: PLC0415 - as the verbs

    return ops.ModelMetadata(ref(call)), lambda info: json_answer(metadata(info.spec))


# -- status -------------------------------------------------------------------------------------------------------


def _status(call: Call) -> tuple[ops.Operation, Reply]:
    reference = ref(call)
    pinned = reference.version is not None or reference.label is not None

    def reply(result: ops.StatusResult) -> HttpResponse:
        if not result.versions:
            text = _unknown(reference, result.missing)
            return json_answer({"error": text}, 404)._replace(why=(Fault.NOT_FOUND, text))
        dialect = "tfs" if pinned else result.v1_dialect or call.request.options.v1_dialect
        told: dict[str, Any] = {} if dialect == "tfs" else {"name": reference.name, "ready": result.ready}
        if dialect != "kserve":
            told["model_version_status"] = _versions(result.versions)
        if result.ready or dialect == "tfs":
            return json_answer(told)
        return json_answer(told, 503, RETRY_SOON)._replace(why=_failed(reference, result.versions))

    return ops.ModelStatus(reference), reply


def _unknown(reference: ops.ModelRef, missing: str) -> str:
    which = f"version {missing}" if missing else "any versions"
    return f"Could not find {which} of model {escaped(_shortened(reference.name))}"


def _failed(reference: ops.ModelRef, versions: Sequence[ops.IndexEntry]) -> tuple[Fault, str] | None:
    """Returns the newest failure of a load; None for a model that is only not loaded yet."""
    failed = next((entry for entry in reversed(versions) if entry.fault is not None), None)
    if failed is None or failed.fault is None:
        return None
    return failed.fault, f"model {shown(reference.name)} is not ready: {failed.reason}"


def _versions(versions: Sequence[ops.IndexEntry]) -> list[dict[str, Any]]:
    """Returns GetModelStatusResponse's entries, the newest first."""
    return [
        {
            "version": entry.version,
            "state": _state(entry),
            "status": {
                "error_code": "OK" if entry.fault is None else entry.fault.name,
                "error_message": "" if entry.fault is None else entry.reason,
            },
        }
        for entry in reversed(versions)
    ]


def _state(entry: ops.IndexEntry) -> str:
    """Returns the ModelVersionStatus.State: START before the first load; END after an unload or a failure."""
    if entry.state is State.UNAVAILABLE:
        return "START" if entry.fresh else "END"
    return "AVAILABLE" if entry.state is State.READY else "LOADING"


def _named(call: Call) -> ops.ModelRef | None:
    """Returns the model of a long or compressed request; of any other, TensorFlow Serving checks the JSON first."""
    return ref(call) if call.request.is_long else None


def _everywhere(method: str, suffix: str, decode: Decode, about: str, waits: Waits = Waits.STORE) -> list[Route]:
    """Returns a model's routes: those that are asked with GET read, and the others infer."""
    places = {
        "": about,
        "/versions/{version}": f"{about}, of one version",
        "/labels/{label}": f"{about}, of the version with a label",
    }
    model = "/v1/models/{model}"
    right, names = (Right.READ, None) if method == "GET" else (Right.INFER, _named)
    return [
        Route(method, f"{model}{place}{suffix}", decode, text, waits, right, names) for place, text in places.items()
    ]


SURFACE: Final = Surface(
    (
        Route("GET", "/v1/models", _names, "names of the repository's models", right=Right.READ),
        *_everywhere("GET", "", _status, "state of the versions; never loads one"),
        *_everywhere("GET", "/metadata", _metadata, "signatures"),
        *_everywhere("POST", ":predict", _verb("predict"), "inference from rows or columns", Waits.MODEL),
        *_everywhere("POST", ":classify", _verb("classify"), "labels and scores of examples", Waits.MODEL),
        *_everywhere("POST", ":regress", _verb("regress"), "a number for each example", Waits.MODEL),
        *_everywhere("POST", ":explain", _verb("explain"), "predictions with their reasons", Waits.LONG),
    ),
    refuse,
)
