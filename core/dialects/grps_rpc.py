"""GRPS over protobuf messages: its service. A refusal is an answer, with the failure in its status.

Source: GRPS's grps.proto and interface document.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from core import operations as ops
from core.dialects import grps_json_read
from core.dialects.grps import named_model
from core.dialects.grps_content import Content, Question
from core.dialects.grps_json_read import camel
from core.dialects.grps_json_write import write as write_json
from core.dialects.grps_messages import read, refusal, success, write
from core.dialects.grps_metadata import of_model, of_server
from core.dialects.grps_outputs import answered
from core.dialects.grps_predict import pinned
from core.dialects.grps_status import unready
from core.errors import ServingError
from core.jsonio import NonFinite
from core.operations import Deferred, Infer, InferResult, ModelRef, ModelSpec, Stream
from core.rpc import Rpc, RpcMethod, methods
from core.schema.grps import GrpsMessage, Status
from core.wire import Waits

SERVICE: Final = "grps.protos.v1.GrpsService"
Write = Callable[[Content], bytes]


def _ref(question: Question) -> ModelRef:
    return ModelRef(question.model, dashed=True)


def _predict(question: Question, written: Write = write) -> tuple[Deferred, Callable[[bytes], bytes]]:
    asked = type(question.content)

    def phrase(result: InferResult) -> bytes:
        return written(answered(result.outputs, asked))

    def bind(spec: ModelSpec) -> tuple[Infer, Callable[[InferResult], bytes]]:
        return pinned(question, spec), phrase

    return Deferred(_ref(question), bind), lambda answer: answer


def _stream(
    question: Question, written: Write = write
) -> tuple[Deferred, Callable[[Iterator[bytes]], Iterator[bytes]]]:
    asked = type(question.content)

    def phrase(results: Iterable[InferResult]) -> Iterator[bytes]:
        return (written(answered(result.outputs, asked)) for result in results)

    def bind(spec: ModelSpec) -> tuple[Stream, Callable[[Iterable[InferResult]], Iterator[bytes]]]:
        return Stream(pinned(question, spec)), phrase

    return Deferred(_ref(question), bind), lambda answers: answers


def _in_json(content: Content) -> bytes:
    return write_json(content, camel, NonFinite.QUOTED)


def _predict_json(body: bytes) -> tuple[Deferred, Callable[[bytes], bytes]]:
    return _predict(grps_json_read.read(body, binary=True), _in_json)


def _stream_json(body: bytes) -> tuple[Deferred, Callable[[Iterator[bytes]], Iterator[bytes]]]:
    return _stream(grps_json_read.read(body, binary=True), _in_json)


def _online(_: GrpsMessage) -> tuple[ops.Operation, Callable[[Any], GrpsMessage]]:
    return ops.SetOnline(online=True), _done


def _offline(_: GrpsMessage) -> tuple[ops.Operation, Callable[[Any], GrpsMessage]]:
    return ops.SetOnline(online=False), _done


def _live(_: GrpsMessage) -> tuple[ops.Operation, Callable[[Any], GrpsMessage]]:
    return ops.ServerLive(), _done


def _done(_: Any) -> GrpsMessage:
    return success()


def _ready(_: GrpsMessage) -> tuple[ops.Operation, Callable[[ops.Readiness], GrpsMessage]]:
    def phrase(result: ops.Readiness) -> GrpsMessage:
        return success() if result.ready else GrpsMessage(status=Status(**unready(result.reason)))

    return ops.ServerReady(), phrase


def _server(_: GrpsMessage) -> tuple[ops.Operation, Callable[[Any], GrpsMessage]]:
    return ops.ServerOverview(), lambda overview: success(str_data=of_server(overview))


def _model(message: GrpsMessage) -> tuple[ops.Operation, Callable[[ops.ModelInfo], GrpsMessage]]:
    name = message.str_data if message.HasField("str_data") else None
    return named_model(name), lambda info: success(str_data=of_model(info))


def _refusal(_: Any, error: ServingError) -> GrpsMessage:
    return refusal(error)


GRPS_RPC: Final[tuple[RpcMethod, ...]] = methods(
    SERVICE,
    Rpc("Predict", _predict, Waits.MODEL, read, _ref, _refusal, decode_json=_predict_json),
    Rpc("PredictStreaming", _stream, Waits.MODEL, read, _ref, _refusal, decode_json=_stream_json),
    Rpc("Online", _online, Waits.NOTHING, instead=_refusal),
    Rpc("Offline", _offline, Waits.NOTHING, instead=_refusal),
    Rpc("CheckLiveness", _live, Waits.NOTHING, instead=_refusal),
    Rpc("CheckReadiness", _ready, instead=_refusal),
    Rpc("ServerMetadata", _server, instead=_refusal),
    Rpc("ModelMetadata", _model, instead=_refusal),
)
