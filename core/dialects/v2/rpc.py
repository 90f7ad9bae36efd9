"""The Open Inference Protocol (KServe V2) over protobuf messages: its service, and all answers except inference.

Sources: the OIP's open_inference_grpc.proto; Triton's extension documents for model repository, configuration and
statistics, and its stream.
"""

from collections.abc import Callable, Sequence
from typing import Final

from core import operations as ops
from core.dialects.v2 import http, refusals, rpc_infer, rpc_json
from core.errors import Fault, InvalidInput, NotSupported, ServingError, shown
from core.operations import ModelRef
from core.rpc import Named, Rpc, RpcMethod, methods
from core.schema.open_inference import (
    InferBatchStatistics,
    InferParameter,
    InferStatistics,
    ModelConfig,
    ModelConfigRequest,
    ModelConfigResponse,
    ModelInferRequest,
    ModelInput,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelOutput,
    ModelReadyRequest,
    ModelReadyResponse,
    ModelStatistics,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    ModelStreamInferResponse,
    ModelVersionPolicy,
    RepositoryIndexRequest,
    RepositoryIndexResponse,
    RepositoryModelLoadRequest,
    RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
    StatisticDuration,
)
from core.statistics import COUNTED, STEPS, Count, Statistics
from core.tensor import TensorSpec
from core.wire import Right, Waits

SERVICE: Final = "inference.GRPCInferenceService"
EXTENSIONS: Final = tuple(name for name in http.EXTENSIONS if name not in ("binary_tensor_data", "generate"))
"""Raw tensors are part of the protocol here, not an extension."""


def _ref(message: ModelReadyRequest | ModelMetadataRequest | ModelConfigRequest | ModelStatisticsRequest) -> ModelRef:
    return ModelRef(message.name, message.version or None)


def _live(_: ServerLiveRequest) -> tuple[ops.Operation, Callable[[ops.Readiness], ServerLiveResponse]]:
    return ops.ServerLive(), lambda result: ServerLiveResponse(live=result.ready)


def _ready(_: ServerReadyRequest) -> tuple[ops.Operation, Callable[[ops.Readiness], ServerReadyResponse]]:
    return ops.ServerReady(), lambda result: ServerReadyResponse(ready=result.ready)


def _model_ready(message: ModelReadyRequest) -> tuple[ops.Operation, Callable[[ops.Readiness], ModelReadyResponse]]:
    return ops.ModelReady(_ref(message)), lambda result: ModelReadyResponse(ready=result.ready)


def _not_ready(_: ModelReadyRequest | None, error: ServingError) -> ModelReadyResponse | None:
    # As in Triton: clients poll until a model is ready, and stop at an error.
    return ModelReadyResponse(ready=False) if error.fault is Fault.NOT_FOUND else None


def _server(_: ServerMetadataRequest) -> tuple[ops.Operation, Callable[[ops.ServerInfo], ServerMetadataResponse]]:
    return ops.ServerMetadata(), lambda info: ServerMetadataResponse(
        name=info.name, version=info.version, extensions=EXTENSIONS
    )


def _model(message: ModelMetadataRequest) -> tuple[ops.Operation, Callable[[ops.ModelInfo], ModelMetadataResponse]]:
    def reply(info: ops.ModelInfo) -> ModelMetadataResponse:
        spec = info.spec
        return ModelMetadataResponse(
            name=spec.name,
            versions=info.versions,
            platform=spec.platform,
            inputs=[_tensor(tensor) for tensor in spec.inputs or ()],
            outputs=[_tensor(tensor) for tensor in spec.outputs or ()],
            parameters={name: InferParameter(string_param=text) for name, text in info.parameters.items()},
        )

    return ops.ModelMetadata(_ref(message)), reply


def _tensor(spec: TensorSpec) -> ModelMetadataResponse.TensorMetadata:
    shape = (-1,) if spec.shape is None else spec.shape
    return ModelMetadataResponse.TensorMetadata(name=spec.name, datatype=spec.datatype.name, shape=shape)


def _config(message: ModelConfigRequest) -> tuple[ops.Operation, Callable[[ops.ModelInfo], ModelConfigResponse]]:
    def reply(info: ops.ModelInfo) -> ModelConfigResponse:
        spec = info.spec
        versions = ModelVersionPolicy.Specific(versions=[int(version) for version in info.versions])
        return ModelConfigResponse(
            config=ModelConfig(
                name=spec.name,
                platform=spec.platform,
                backend=spec.platform.partition("_")[0],
                version_policy=ModelVersionPolicy(specific=versions),
                max_batch_size=spec.batch_size,
                input=[
                    ModelInput(
                        **http.config_tensor(tensor, spec),
                        optional=tensor.optional,
                        format=tensor.format,
                    )
                    for tensor in spec.inputs or ()
                ],
                output=[ModelOutput(**http.config_tensor(tensor, spec)) for tensor in spec.outputs or ()],
                **http.scheduling(spec),
                **http.transactions(spec),
            )
        )

    return ops.ModelMetadata(_ref(message)), reply


def _statistics(
    message: ModelStatisticsRequest,
) -> tuple[ops.Operation, Callable[[Sequence[Statistics]], ModelStatisticsResponse]]:
    if message.version and not message.name:
        raise InvalidInput(f"'version' is {shown(message.version)} without a 'name'; expected both, or neither")

    def reply(result: Sequence[Statistics]) -> ModelStatisticsResponse:
        return ModelStatisticsResponse(model_stats=[_model_statistics(stats) for stats in result])

    return ops.ModelStatistics(_ref(message) if message.name else None), reply


def _model_statistics(stats: Statistics) -> ModelStatistics:
    def counted(count: Count) -> StatisticDuration:
        return StatisticDuration(count=count.times, ns=count.ns)

    return ModelStatistics(
        name=stats.name,
        version=stats.version,
        last_inference=stats.last_inference_ms,
        inference_count=stats.inference_count,
        execution_count=stats.execution_count,
        inference_stats=InferStatistics(**{name: counted(getattr(stats, name)) for name in COUNTED}),
        batch_stats=[
            InferBatchStatistics(batch_size=rows, **dict(zip(STEPS, map(counted, steps), strict=True)))
            for rows, *steps in stats.batches
        ],
    )


def _refuse_repository(name: str) -> None:
    """Raises NotSupported, in Triton's words, for the name of one of several repositories. "" is all of them."""
    if name:
        raise NotSupported("'repository_name' specification is not supported")


def _index(
    message: RepositoryIndexRequest,
) -> tuple[ops.Operation, Callable[[Sequence[ops.IndexEntry]], RepositoryIndexResponse]]:
    _refuse_repository(message.repository_name)

    def reply(entries: Sequence[ops.IndexEntry]) -> RepositoryIndexResponse:
        return RepositoryIndexResponse(
            models=[
                RepositoryIndexResponse.ModelIndex(name=e.name, version=e.version, state=e.state.value, reason=e.reason)
                for e in entries
            ]
        )

    return ops.RepositoryIndex(message.ready), reply


def _load(message: RepositoryModelLoadRequest) -> tuple[ops.Operation, Callable[[None], RepositoryModelLoadResponse]]:
    _refuse_repository(message.repository_name)
    http.refuse_foreign(message.parameters)
    return ops.Load(message.model_name), lambda _: RepositoryModelLoadResponse()


def _unload(
    message: RepositoryModelUnloadRequest,
) -> tuple[ops.Operation, Callable[[None], RepositoryModelUnloadResponse]]:
    _refuse_repository(message.repository_name)
    http.refuse_foreign(message.parameters)
    return ops.Unload(message.model_name), lambda _: RepositoryModelUnloadResponse()


def _told(
    request: rpc_infer.ProtoRequest | rpc_json.JsonRequest | ModelInferRequest, error: ServingError
) -> ModelStreamInferResponse:
    message = request if isinstance(request, ModelInferRequest) else request.message
    return ModelStreamInferResponse(error_message=error.message, infer_response=rpc_infer.ended(message))


NAMED: Final = Named(("model_name", "model_version"), lambda name, version: ModelRef(name, version or None))
V2_RPC: Final[tuple[RpcMethod, ...]] = methods(
    SERVICE,
    Rpc("ServerLive", _live, Waits.NOTHING, right=Right.OPEN),
    Rpc("ServerReady", _ready, Waits.PROBE, right=Right.OPEN),
    Rpc("ModelReady", _model_ready, instead=_not_ready, right=Right.READ),
    Rpc("ServerMetadata", _server, right=Right.READ),
    Rpc("ModelMetadata", _model, right=Right.READ),
    Rpc(
        "ModelInfer",
        rpc_infer.decode,
        Waits.MODEL,
        rpc_infer.read,
        rpc_infer.ref,
        read_json=rpc_json.read,
        decode_json=rpc_json.decode,
        right=Right.INFER,
        named=NAMED,
        rest=rpc_infer.rest,
    ),
    Rpc(
        "ModelStreamInfer",
        rpc_infer.decode_streamed,
        Waits.MODEL,
        rpc_infer.read,
        rpc_infer.ref,
        _told,
        read_json=rpc_json.read,
        decode_json=rpc_json.decode_streamed,
        right=Right.INFER,
        named=NAMED,
        id_field="id",
    ),
    Rpc("ModelConfig", _config, right=Right.READ),
    Rpc("ModelStatistics", _statistics, right=Right.READ),
    Rpc("RepositoryIndex", _index, right=Right.READ),
    Rpc("RepositoryModelLoad", _load, right=Right.ADMIN),
    Rpc("RepositoryModelUnload", _unload, right=Right.ADMIN),
    worded=refusals.worded,
)
