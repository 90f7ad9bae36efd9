"""A request of one protocol as an inference, and an inference as a request of another one; and back with the answer.

The decoding is the server's own. So is the phrasing: whatever protocol brings the outputs, they are written as the
request's protocol writes them, and compared with the answer in the log.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from core.dialects import DIALECTS
from core.dialects.rpcs import RPCS
from core.dtype import BF16, BYTES, DATATYPES
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite, numeric
from core.errors import InvalidInput, ServingError
from core.operations import Deferred, Infer, InferResult, ModelSpec, RequestedOutput
from core.records import NamedTuple
from core.router import Router
from core.schema.open_inference import InferParameter, ModelInferRequest
from core.signature import NONE
from core.tensor import Tensor, TensorSpec, to_raw
from core.wire import Call, HttpRequest
from handler.commands import v1_signatures
from handler.commands.replay.recorded import CALLS, Exchange, Payload
from handler.commands.v1_signatures import ChosenSignature

METHODS: Final = {method.path: method for method in RPCS}
BINARY: Final = "application/octet-stream"
PARAMETERS: Final = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


class Meant(NamedTuple):
    """The inference that a request means. `phrased`: returns the answer in the request's own protocol."""

    infer: Infer
    phrased: Callable[[InferResult], Payload]


class Untranslatable(Exception):
    """A request that another protocol cannot carry. The message says why."""


def meant(exchange: Exchange, spec: Callable[[], ModelSpec]) -> Meant:
    """Returns the inference of a request. `spec`: asks the server for the model, if its description is needed.

    Raises Untranslatable, and ServingError for a request that is not one.
    """
    decode = _of_call if exchange.protocol in CALLS else _of_route
    operation, reply, written = decode(exchange)
    version = getattr(getattr(operation, "ref", None), "version", None)
    if isinstance(operation, Deferred):
        operation, reply = _bound(operation, exchange, spec())
    if not isinstance(operation, Infer):
        raise Untranslatable(f"{type(operation).__name__.lower()} is possible only over its own protocol")
    if operation.raw is not None:
        raise Untranslatable("its bytes have no shape")
    ref = operation.ref._replace(name=exchange.model or operation.ref.name, version=version, label=None)
    return Meant(operation._replace(ref=ref), lambda result: written(reply(result)))


def _bound(operation: Deferred, exchange: Exchange, spec: ModelSpec) -> tuple[Any, Any]:
    """Returns the inference of a request whose tensors the model describes. Raises Untranslatable."""
    if exchange.protocol == "v1" and not spec.signatures:
        raise Untranslatable("the names that V1's clients have for its outputs are not known over gRPC")
    if exchange.path.endswith((":classify", ":regress")):
        raise Untranslatable("examples are possible only over their own protocol")
    try:
        return operation.decode(spec)
    except ServingError as error:
        raise Untranslatable(error.message) from None


def _of_route(exchange: Exchange) -> tuple[Any, Any, Callable[[Any], Payload]]:
    dialect = next((each for each in DIALECTS if each.owns(exchange.path)), None)
    if dialect is None:
        raise Untranslatable(f"no protocol has the path {exchange.path}")
    route, values = Router(dialect).find("POST", exchange.path)
    body = exchange.request
    headers = {b"content-type": body.kind.encode()}
    if body.length:
        headers[dialect.json_length] = body.length.encode()
    request = HttpRequest("POST", exchange.path, headers, body.content, query=body.query.encode())
    operation, reply = route.decode(Call(request, values))

    def written(response: Any) -> Payload:
        found = dict(response.headers)
        kind = found.get(b"content-type", b"").decode()
        return Payload(b"".join(response.parts), kind, found.get(dialect.json_length, b"").decode())

    return operation, reply, written


def _of_call(exchange: Exchange) -> tuple[Any, Any, Callable[[Any], Payload]]:
    method = METHODS.get(exchange.path)
    if method is None:
        raise Untranslatable(f"no protocol has the path {exchange.path}")
    is_json = "json" in exchange.request.kind
    message: Any = (method.read_json if is_json else method.read)(exchange.request.content)
    operation, reply = ((is_json and method.rpc.decode_json) or method.rpc.decode)(message)

    def written(answer: Any) -> Payload:
        if not isinstance(answer, bytes):
            answer = method.write_json(answer) if is_json else answer.SerializeToString()
        return Payload(answer, exchange.request.kind)

    return operation, reply, written


def to_message(infer: Infer) -> bytes:
    """Returns a ModelInferRequest, with raw tensors. Raises Untranslatable."""
    request = ModelInferRequest(model_name=infer.ref.name, model_version=infer.ref.version or "")
    for tensor in infer.inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype.name, shape=tensor.array.shape)
        request.raw_input_contents.append(bytes(to_raw(tensor)))
    for output in infer.outputs:
        added = request.outputs.add(name=output.name)
        if output.classes:
            added.parameters["classification"].int64_param = output.classes
    for name, value in infer.parameters.items():
        kind = PARAMETERS.get(type(value))
        if kind is None:
            raise Untranslatable(f"parameter {name} is {type(value).__name__}, for which protobuf has no field")
        request.parameters[name].CopyFrom(InferParameter(**{kind: value}))
    return request.SerializeToString()


def to_v2(infer: Infer, *, binary: bool) -> Payload:
    """Returns a V2 body; `binary`: with all tensors after its JSON. Raises Untranslatable."""
    parts: list[bytes] = []
    members = [_member(tensor, parts if binary else None) for tensor in infer.inputs]
    document: dict[str, Any] = {"inputs": members}
    if infer.outputs:
        document["outputs"] = [_requested(output) for output in infer.outputs]
    parameters = dict(infer.parameters) | ({"binary_data_output": True} if binary else {})
    if parameters:
        document["parameters"] = parameters
    head = jsonio.dumps(document)
    return Payload(b"".join((head, *parts)), BINARY, str(len(head))) if binary else Payload(head)


def _member(tensor: Tensor, parts: list[bytes] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype.name, "shape": tensor.array.shape}
    if parts is None:
        return found | {"data": _flat(tensor)}
    raw = bytes(to_raw(tensor))
    parts.append(raw)
    return found | {"parameters": {"binary_data_size": len(raw)}}


def _requested(output: RequestedOutput) -> dict[str, Any]:
    return {"name": output.name, **({"parameters": {"classification": output.classes}} if output.classes else {})}


def _flat(tensor: Tensor) -> Any:
    if tensor.datatype is BF16:
        raise Untranslatable(f"input {tensor.name} is BF16, which JSON does not carry: use --protocol v2-binary")
    if tensor.datatype is not BYTES:
        return numeric(tensor._replace(array=tensor.array.reshape(-1)), NonFinite.QUOTED)
    return _texts(tensor)


def _texts(tensor: Tensor) -> list[str]:
    try:
        return [element.decode() for element in tensor.array.flat]
    except UnicodeDecodeError:
        raise Untranslatable(f"input {tensor.name} has bytes that are not UTF-8, as JSON needs") from None


def signature_of(infer: Infer, spec: Callable[[], ModelSpec]) -> ChosenSignature | None:
    """Returns the signature that has the tensors of an inference; None if the server does not describe the model.

    `spec`: as for `meant`. Raises Untranslatable.
    """
    if infer.parameters or any(output.classes for output in infer.outputs):
        raise Untranslatable("V1 has no parameters and no classes")
    try:
        known = spec()
    except Untranslatable:
        return None  # the answer to the request shows whether the model is there
    outputs = [output.name for output in infer.outputs or known.outputs or ()]
    found = v1_signatures.chosen(known.signatures, [tensor.name for tensor in infer.inputs], outputs)
    if found is None:
        raise Untranslatable("no signature of the model has these inputs and outputs for V1's clients")
    return found


def to_v1(infer: Infer, signature: ChosenSignature | None) -> Payload:
    """Returns a V1 body with columns. Raises Untranslatable."""
    return Payload(v1_signatures.body(signature, {tensor.name: _nested(tensor) for tensor in infer.inputs}))


def _nested(tensor: Tensor) -> Any:
    if tensor.datatype is not BYTES:
        return numeric(tensor, NonFinite.BARE)
    values: Any = _texts(tensor)
    for size in reversed(tensor.array.shape[1:]):
        values = [values[start : start + size] for start in range(0, len(values), size)] if size else []
    return values if tensor.array.shape else values[0]


def from_v1(body: Payload, signature: ChosenSignature | None) -> Sequence[Tensor]:
    """Returns the outputs of a V1 answer with columns. Raises Untranslatable, ServingError."""
    from core.encoding.values import from_values  # noqa: PLC0415 - for this protocol alone

    specs = {} if signature is None else signature.outputs
    document = json.loads(body.content)
    found = document.get("outputs", document.get("predictions"))
    if not isinstance(found, dict):
        found = {next(iter(specs)): found} if len(specs) == 1 else {}
    if not found or not found.keys() <= specs.keys():
        raise Untranslatable("V1's answer has other names for its outputs")
    tensors = []
    for alias, values in found.items():
        shape, spec = _shape(values), specs[alias]
        tensors.append(from_values(spec.name, spec.datatype, shape, _flattened(values, len(shape))))
    return tensors


def _shape(values: Any) -> tuple[int, ...]:
    found = []
    while isinstance(values, list):
        found.append(len(values))
        values = values[0] if values else None
    return tuple(found)


def _flattened(values: Any, depth: int) -> list[Any]:
    values = values if depth else [values]
    for _ in range(depth - 1):
        values = [each for inner in values for each in inner]
    return list(values)


def _declared(member: dict[str, Any]) -> tuple[int, ...] | None:
    is_any = (member.get("parameters") or {}).get("any_rank")
    return None if is_any else tuple(map(int, member["shape"]))


def spec_of(document: dict[str, Any], version: str) -> ModelSpec:
    """Returns a model's description from V2's metadata. Raises InvalidInput."""

    def specs(members: Any) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(each["name"], DATATYPES[each["datatype"]], _declared(each)) for each in members)

    try:
        name, inputs, outputs = document["name"], specs(document["inputs"]), specs(document["outputs"])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("the server's metadata of the model cannot be read") from None
    told = document.get("signatures")
    signatures = v1_signatures.read(told, inputs, outputs) if told or len(outputs) == 1 else NONE
    return ModelSpec(name, version, document.get("platform", ""), inputs, outputs, signatures=signatures)
