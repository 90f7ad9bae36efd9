"""SageMaker's multi-model endpoints: it unpacks models into a folder, and asks to load, list and unload them.

A model that was evicted to make room is loaded again when it is asked for, and is not listed meanwhile. Statuses: 409
for a model in memory, 404 for one that is not, 507 where memory is short: SageMaker unloads others and asks again.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from core import operations as ops
from core.bounds import check_call
from core.dialects.platforms import invocations
from core.encoding import jsonio
from core.errors import Fault, InvalidInput, MemoryShort, ModelNotFound, NeverFits, ServingError, shown
from core.wire import (
    JSON,
    Call,
    Dialect,
    HttpResponse,
    Reply,
    Right,
    Route,
    Surface,
    Waits,
    headers_of,
    json_answer,
    status_of,
)

LOADED: Final = 409
SHORT: Final = 507


def dialect(folder: str) -> Dialect:
    """Returns the routes. `folder`: where the platform puts the models."""
    routes = (
        Route("POST", "/models", partial(_load, folder), "load a model", right=Right.ADMIN),
        Route("GET", "/models", partial(_list, folder), "models in memory", right=Right.READ),
        Route("GET", "/models/{model}", partial(_one, folder), "a model in memory", right=Right.READ),
        Route("DELETE", "/models/{model}", _unload, "free a model's memory", right=Right.ADMIN),
        Route(
            "POST", "/models/{model}/invoke", invocations.decode, "inference", Waits.MODEL, Right.INFER, invocations.ref
        ),
    )
    return Dialect("platform", "/models", partial(Surface, routes, refuse))


def refuse(error: ServingError, _method: str = "", _path: str = "") -> HttpResponse:
    """Returns {"error": text}, with 507 where memory is short."""
    status = SHORT if isinstance(error, MemoryShort | NeverFits) else status_of(error)
    return HttpResponse(status, (JSON, *headers_of(error)), (jsonio.dumps({"error": error.message}),))


def _load(folder: str, call: Call) -> tuple[ops.Operation, Reply]:
    body = bytes(call.request.content())
    check_call(len(body))
    members = jsonio.loads(body)
    name, url = (members.get(key) if isinstance(members, dict) else None for key in ("model_name", "url"))
    if not isinstance(name, str) or not isinstance(url, str):
        raise InvalidInput(f"the body is {shown(members)}; expected an object with 'model_name' and 'url'")
    if url.rstrip("/") not in (f"{folder}/{name}", f"{folder}/{name}/model"):
        raise InvalidInput(f"'url' is {shown(url)}; expected {shown(f'{folder}/{name}/model')}")

    def reply(was_loaded: bool) -> HttpResponse:  # noqa: FBT001 - the operation's result
        if was_loaded:
            return json_answer(_shown(folder, name))
        text = f"model {shown(name)} is already loaded"
        return json_answer({"error": text}, LOADED)._replace(why=(Fault.INVALID_ARGUMENT, text))

    return ops.Load(name, anew=False), reply


def _shown(folder: str, name: str) -> dict[str, str]:
    return {"modelName": name, "modelUrl": f"{folder}/{name}/model"}


def _list(folder: str, _: Call) -> tuple[ops.Operation, Reply]:
    """Answers with all models at once, so there is never another page."""

    def reply(entries: Sequence[ops.IndexEntry]) -> HttpResponse:
        names = dict.fromkeys(entry.name for entry in entries)
        return json_answer({"models": [_shown(folder, name) for name in names]})

    return ops.RepositoryIndex(ready_only=True), reply


def _one(folder: str, call: Call) -> tuple[ops.Operation, Reply]:
    name = call.path["model"]

    def reply(result: ops.Readiness) -> HttpResponse:
        return json_answer(_shown(folder, name)) if result.ready else _absent(name)

    return ops.ModelReady(ops.ModelRef(name)), reply


def _unload(call: Call) -> tuple[ops.Operation, Reply]:
    name = call.path["model"]

    def reply(was_there: bool) -> HttpResponse:  # noqa: FBT001 - the operation's result
        return json_answer({}) if was_there else _absent(name)

    return ops.Unload(name), reply


def _absent(name: str) -> HttpResponse:
    error = ModelNotFound(f"model {shown(name)} is not loaded", model=name)
    return refuse(error)._replace(why=(error.fault, error.message))
