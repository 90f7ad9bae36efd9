"""The Open Inference Protocol (KServe V2) over REST: its routes, and all answers except inference.

Sources: the OIP's inference_rest.md; Triton's extension documents for model repository, configuration and statistics.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from core import operations as ops
from core.bounds import check_call
from core.dialects.v2 import infer, refusals
from core.encoding import jsonio
from core.errors import InvalidInput, shown
from core.statistics import Statistics
from core.tensor import TensorSpec
from core.wire import (
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
    json_answer,
)

EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "model_repository",
    "statistics",
)


def _members(call: Call) -> dict[str, Any]:
    """Returns the members of a repository call's body, which is empty or an object. Raises InvalidInput."""
    body = bytes(call.request.content())
    check_call(len(body))
    members = jsonio.loads(body) if body.strip() else {}
    if not isinstance(members, dict):
        raise InvalidInput(f"the body is {shown(members)}; expected an object or nothing")
    parameters = {} if members.get("parameters") is None else members["parameters"]
    if not isinstance(parameters, dict):
        raise InvalidInput(f"'parameters' is {shown(parameters)}; expected an object")
    refuse_foreign(parameters)
    return members


def refuse_foreign(parameters: Iterable[str]) -> None:
    """Raises InvalidInput for parameters that would load a model of the client's own."""
    for name in parameters:
        if name == "config" or name.startswith("file:"):
            raise InvalidInput(f"parameter {shown(name)} is not possible: models are loaded from the repository only")


def _live(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerLive(), lambda result: json_answer({"live": True}) if result.ready else _health(result)


def _ready(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerReady(), _health


def _health(result: ops.Readiness) -> HttpResponse:
    # Both members: kserve's client reads "ready", and the specification's text has "live".
    if result.ready:
        return json_answer({"live": True, "ready": True})
    return json_answer({"live": True, "ready": False, "error": result.reason}, 503, RETRY_SOON)


def _server(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ServerMetadata(), lambda info: json_answer(
        {"name": info.name, "version": info.version, "extensions": list(EXTENSIONS)}
    )


def _names(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ListModels(), lambda names: json_answer({"models": list(names)})


def _model_ready(call: Call) -> tuple[ops.Operation, Reply]:
    name = call.path["model"]

    def reply(result: ops.Readiness) -> HttpResponse:
        if result.ready:
            return json_answer({"name": name, "ready": True})
        told = {"state": result.state, "reason": result.reason}
        error = f"model {shown(name)} is not ready: {result.reason}"
        why = None if result.fault is None else (result.fault, error)
        return json_answer({"name": name, "ready": False, **told, "error": error}, 503, RETRY_SOON)._replace(why=why)

    return ops.ModelReady(infer.ref(call)), reply


def _model(call: Call) -> tuple[ops.Operation, Reply]:
    def reply(info: ops.ModelInfo) -> HttpResponse:
        spec = info.spec
        return json_answer(
            {
                "name": spec.name,
                "versions": list(info.versions),
                "platform": spec.platform,
                "inputs": [_input(tensor) for tensor in spec.inputs or ()],
                "outputs": [_tensor(tensor) for tensor in spec.outputs or ()],
                **({"parameters": dict(info.parameters)} if info.parameters else {}),
            }
        )

    return ops.ModelMetadata(infer.ref(call)), reply


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    # The protocol cannot express "any rank"; the parameter marks a [-1] that does not mean rank 1.
    shape = [-1] if spec.shape is None else list(spec.shape)
    told: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype.name, "shape": shape}
    parameters = {
        name: True for name, told_so in (("any_rank", spec.shape is None), ("optional", spec.optional)) if told_so
    }
    return {**told, "parameters": parameters} if parameters else told


def _input(spec: TensorSpec) -> dict[str, Any]:
    told, accepts = _tensor(spec), spec.datatype.accepts
    return {**told, "parameters": {**told.get("parameters", {}), "accepts": list(accepts)}} if accepts else told


def _config(call: Call) -> tuple[ops.Operation, Reply]:
    """Answers the model configuration extension, with the members that apply here."""

    def reply(info: ops.ModelInfo) -> HttpResponse:
        spec = info.spec
        return json_answer(
            {
                "name": spec.name,
                "platform": spec.platform,
                "backend": spec.platform.partition("_")[0],
                "version_policy": {"specific": {"versions": [int(version) for version in info.versions]}},
                "max_batch_size": spec.batch_size,
                "input": [
                    {
                        **config_tensor(tensor, spec),
                        "format": tensor.format,
                        "optional": tensor.optional,
                    }
                    for tensor in spec.inputs or ()
                ],
                "output": [config_tensor(tensor, spec) for tensor in spec.outputs or ()],
                **scheduling(spec),
                **transactions(spec),
            }
        )

    return ops.ModelMetadata(infer.ref(call)), reply


def scheduling(spec: ops.ModelSpec) -> dict[str, Any]:
    """Returns the member of Triton's ModelConfig that says how requests are run, if the model has one."""
    if spec.steps:
        steps = [
            {
                "model_name": step.model,
                "model_version": step.version,
                "input_map": dict(step.inputs),
                "output_map": dict(step.outputs),
            }
            for step in spec.steps
        ]
        return {"ensemble_scheduling": {"step": steps}}
    if spec.batching is None:
        return {}
    delay = round(spec.batching.seconds * 1e6)
    batching = {"preferred_batch_size": list(spec.batching.preferred), "max_queue_delay_microseconds": delay}
    return {"dynamic_batching": batching}


def transactions(spec: ops.ModelSpec) -> dict[str, Any]:
    """Returns what Triton's ModelConfig has for a model whose requests have any number of answers, else nothing."""
    return {"model_transaction_policy": {"decoupled": True}} if spec.decoupled else {}


def config_tensor(tensor: TensorSpec, spec: ops.ModelSpec) -> dict[str, Any]:
    """Returns a tensor's members of Triton's ModelConfig. With a batch size, its dims leave the batch's axis out."""
    dims = [-1] if tensor.shape is None else list(tensor.shape)
    return {"name": tensor.name, "data_type": tensor.datatype.triton, "dims": dims[1 if spec.batch_size else 0 :]}


def _all_statistics(_: Call) -> tuple[ops.Operation, Reply]:
    return ops.ModelStatistics(None), _statistics


def _model_statistics(call: Call) -> tuple[ops.Operation, Reply]:
    return ops.ModelStatistics(infer.ref(call)), _statistics


def _statistics(result: Sequence[Statistics]) -> HttpResponse:
    from core.dialects.v2 import statistics  # noqa: PLC0415 - cold start, as below

    return json_answer({"model_stats": [statistics.members(stats) for stats in result]})


def _index(call: Call) -> tuple[ops.Operation, Reply]:
    ready_only = _members(call).get("ready")
    if not isinstance(ready_only, bool | None):
        raise InvalidInput(f"'ready' is {shown(ready_only)}; expected true or false")

    def reply(entries: Sequence[ops.IndexEntry]) -> HttpResponse:
        return json_answer(
            [
                {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
                for entry in entries
            ]
        )

    return ops.RepositoryIndex(bool(ready_only)), reply


def _load(call: Call) -> tuple[ops.Operation, Reply]:
    _members(call)
    return ops.Load(call.path["model"]), _done


def _unload(call: Call) -> tuple[ops.Operation, Reply]:
    _members(call)
    return ops.Unload(call.path["model"]), _done


def _done(_: None) -> HttpResponse:
    return json_answer({})


def _generate(call: Call) -> tuple[ops.Operation, AnyReply]:
    from core.dialects.v2 import generate  # noqa: PLC0415 - cold start of servers with other clients

    return generate.decode(call, stream=False)


def _generate_stream(call: Call) -> tuple[ops.Operation, AnyReply]:
    from core.dialects.v2 import generate  # noqa: PLC0415 - as above

    return generate.decode(call, stream=True)


def _versioned(suffix: str, method: str, decode: Decode, about: str, waits: Waits = Waits.STORE) -> tuple[Route, Route]:
    """Returns a model's routes: those that are asked with GET read, and the others infer."""
    model, right = "/v2/models/{model}", Right.READ if method == "GET" else Right.INFER
    names = infer.ref if waits is Waits.MODEL else None
    return (
        Route(method, f"{model}{suffix}", decode, about, waits, right, names),
        Route(method, f"{model}/versions/{{version}}{suffix}", decode, f"{about}, of one version", waits, right, names),
    )


SURFACE: Final = Surface(
    (
        Route("GET", "/v2", _server, "server metadata", right=Right.READ),
        Route("GET", "/v2/health/live", _live, "the process answers", Waits.NOTHING, Right.OPEN),
        Route(
            "GET",
            "/v2/health/ready",
            _ready,
            "configuration valid, repository answers, its files can be kept, preloaded models loaded",
            Waits.PROBE,
            Right.OPEN,
        ),
        Route("GET", "/v2/models", _names, "names of the repository's models", right=Right.READ),
        # Before {model}: no model can be called stats.
        Route("GET", "/v2/models/stats", _all_statistics, "statistics of the models named so far", right=Right.READ),
        *_versioned("", "GET", _model, "model metadata"),
        *_versioned("/ready", "GET", _model_ready, "whether the model is loaded; never loads it"),
        *_versioned("/config", "GET", _config, "model configuration"),
        *_versioned("/stats", "GET", _model_statistics, "model statistics"),
        *_versioned("/infer", "POST", infer.decode, "inference; loads the model if need be", Waits.MODEL),
        *_versioned("/generate", "POST", _generate, "inference, with inputs and outputs as plain members", Waits.MODEL),
        *_versioned("/generate_stream", "POST", _generate_stream, "the same, as server-sent events", Waits.MODEL),
        Route("POST", "/v2/repository/index", _index, "every model version with its state", right=Right.READ),
        Route(
            "POST",
            "/v2/repository/models/{model}/load",
            _load,
            "look at the repository again and load",
            right=Right.ADMIN,
        ),
        Route("POST", "/v2/repository/models/{model}/unload", _unload, "free the model's memory", right=Right.ADMIN),
    ),
    refusals.refuse,
)
