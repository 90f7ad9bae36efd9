"""GRPS over protobuf messages: its service. A refusal is an answer, with the failure in its status.

Source: GRPS's grps.proto and interface document.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from core import operations as ops
from core.dialects.grps import json_read, messages
from core.dialects.grps.content import Content
from core.dialects.grps.http import named_model
from core.dialects.grps.inputs import check_count
from core.dialects.grps.json_read import camel
from core.dialects.grps.json_write import write as write_json
from core.dialects.grps.messages import refusal, success
from core.dialects.grps.metadata import of_model, of_server
from core.dialects.grps.outputs import answered
from core.dialects.grps.predict import pinned
from core.dialects.grps.status import unready
from core.encoding.jsonio import NonFinite
from core.errors import ServingError
from core.operations import Deferred, Infer, InferResult, ModelRef, ModelSpec, Stream
from core.records import NamedTuple
from core.rpc import Named, Rpc, RpcMethod, methods
from core.schema.grps import GrpsMessage, Status
from core.wire import Right, Waits

SERVICE: Final = "grps.protos.v1.GrpsService"


class Asked(NamedTuple):
    """A request. `made`: returns its content for a spec, or raises InvalidInput. `written`: encodes an answer."""

    model: str
    made: Callable[[ModelSpec], Content]
    written: Callable[[Content], bytes]

    @property
    def ref(self) -> ModelRef:
        return ModelRef(self.model, dashed=True)

    def bound(self, spec: ModelSpec) -> tuple[Infer, Callable[[InferResult], bytes]]:
        content, written = self.made(spec), self.written
        form = type(content)
        return pinned(content, spec), lambda result: written(answered(result.outputs, form))


def _read(body: bytes) -> Asked:
    """Parses a request. Raises DecodeError, InvalidInput."""
    request = messages.read(body)

    def made(spec: ModelSpec) -> Content:
        check_count(request.tensor_count, spec)
        return request.content()

    return Asked(request.model, made, messages.write)


def _read_json(body: bytes) -> Asked:
    """Parses a request in JSON. Raises InvalidInput."""
    question = json_read.read(body, binary=True)
    return Asked(question.model, lambda _: question.content, _in_json)


def _in_json(content: Content) -> bytes:
    return write_json(content, camel, NonFinite.QUOTED)


def _ref(asked: Asked) -> ModelRef:
    return asked.ref


def _predict(asked: Asked) -> tuple[Deferred, Callable[[bytes], bytes]]:
    return Deferred(asked.ref, asked.bound), lambda answer: answer


def _stream(asked: Asked) -> tuple[Deferred, Callable[[Iterator[bytes]], Iterator[bytes]]]:
    def bound(spec: ModelSpec) -> tuple[Stream, Callable[[Iterable[InferResult]], Iterator[bytes]]]:
        infer, phrase = asked.bound(spec)
        return Stream(infer), partial(map, phrase)

    return Deferred(asked.ref, bound), lambda answers: answers


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


NAMED: Final = Named(("model",), lambda name: ModelRef(name, dashed=True))
GRPS_RPC: Final[tuple[RpcMethod, ...]] = methods(
    SERVICE,
    Rpc("Predict", _predict, Waits.MODEL, _read, _ref, _refusal, read_json=_read_json, right=Right.INFER, named=NAMED),
    Rpc(
        "PredictStreaming",
        _stream,
        Waits.MODEL,
        _read,
        _ref,
        _refusal,
        read_json=_read_json,
        right=Right.INFER,
        named=NAMED,
    ),
    Rpc("Online", _online, Waits.NOTHING, instead=_refusal, right=Right.ADMIN),
    Rpc("Offline", _offline, Waits.NOTHING, instead=_refusal, right=Right.ADMIN),
    Rpc("CheckLiveness", _live, Waits.NOTHING, instead=_refusal, right=Right.OPEN),
    Rpc("CheckReadiness", _ready, Waits.PROBE, instead=_refusal, right=Right.OPEN),
    Rpc("ServerMetadata", _server, instead=_refusal, right=Right.READ),
    Rpc("ModelMetadata", _model, instead=_refusal, right=Right.READ),
)
