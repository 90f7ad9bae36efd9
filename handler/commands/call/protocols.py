"""THE table of protocols that `infer` and `bench` speak: how a request is written, and how its answer is read."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from core.dialects.v1.values import flattened, to_tensor
from core.dialects.v2.infer import HEADER_LENGTH
from core.dtype import BF16, BYTES, DATATYPES
from core.encoding import jsonio, proto_json
from core.encoding.jsonio import NonFinite, numeric
from core.encoding.values import from_values
from core.errors import InvalidInput, shown
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec, from_raw, to_raw
from handler.commands import v1_signatures
from handler.commands.call.inputs import guessed
from handler.commands.call.served import SERVICE, CalledModel
from handler.commands.call.transport import Landed, Packet
from handler.commands.refused import Refused

JSON: Final = {"content-type": "application/json"}
LENGTH: Final = HEADER_LENGTH.decode()


class ModelAnswer(NamedTuple):
    """The outputs of a model. `version`: "" if the protocol does not name it."""

    version: str
    outputs: tuple[Tensor, ...]


class CallProtocol(NamedTuple):
    """One row of the table. `rpc`: over gRPC and not over HTTP. `signed`: it has the names of a signature."""

    write: Callable[[CalledModel, Sequence[Tensor]], Packet]
    read: Callable[[CalledModel, Landed], ModelAnswer]
    rpc: bool = False
    signed: bool = False


def _texts(tensor: Tensor) -> list[str]:
    try:
        return [each.decode() for each in tensor.array.reshape(-1)]
    except UnicodeDecodeError:
        raise Refused(f"input {shown(tensor.name)} is not text: use v2-binary, v1, grpc or connect") from None


# -- V2 over REST -----------------------------------------------------------------------------------------------------


def _v2(model: CalledModel, tensors: Sequence[Tensor]) -> Packet:
    inputs = []
    for tensor in tensors:
        if tensor.datatype is BF16:
            raise Refused(f"input {shown(tensor.name)} is BF16, which JSON does not carry: use --protocol v2-binary")
        flat = tensor._replace(array=tensor.array.reshape(-1))
        data = _texts(tensor) if tensor.datatype is BYTES else numeric(flat, NonFinite.QUOTED)
        inputs.append(_head(tensor) | {"data": data})
    return Packet(model.path("v2") + "/infer", jsonio.dumps({"inputs": inputs}), JSON)


def _v2_binary(model: CalledModel, tensors: Sequence[Tensor]) -> Packet:
    parts = [to_raw(tensor) for tensor in tensors]
    inputs = [
        _head(tensor) | {"parameters": {"binary_data_size": len(part)}}
        for tensor, part in zip(tensors, parts, strict=True)
    ]
    head = jsonio.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    headers = {"content-type": "application/octet-stream", LENGTH: str(len(head))}
    return Packet(model.path("v2") + "/infer", b"".join((head, *parts)), headers)


def _head(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": list(tensor.array.shape)}


def _from_v2(_: CalledModel, landed: Landed) -> ModelAnswer:
    size = int(landed.headers.get(LENGTH, len(landed.body)))
    document, binary, at = json.loads(landed.body[:size]), memoryview(landed.body)[size:], 0
    outputs = []
    for each in document["outputs"]:
        datatype, shape = DATATYPES[each["datatype"]], tuple(each["shape"])
        length = (each.get("parameters") or {}).get("binary_data_size")
        if length is None:
            outputs.append(from_values(each["name"], datatype, shape, each["data"]))
        else:
            outputs.append(from_raw(each["name"], datatype, shape, binary[at : at + length]))
            at += length
    return ModelAnswer(document.get("model_version", ""), tuple(outputs))


# -- V1 ---------------------------------------------------------------------------------------------------------------


def _v1(model: CalledModel, tensors: Sequence[Tensor]) -> Packet:
    body = v1_signatures.body(model.signature, {tensor.name: _nested(tensor) for tensor in tensors})
    return Packet(model.path("v1") + ":predict", body, JSON)


def _nested(tensor: Tensor) -> Any:
    """Returns nested lists; texts that are not UTF-8 as {"b64": ...}."""
    if tensor.datatype is not BYTES:
        return numeric(tensor, NonFinite.BARE)
    array = tensor.array.copy()
    for place, each in enumerate(array.reshape(-1)):
        try:
            array.reshape(-1)[place] = each.decode()
        except UnicodeDecodeError:
            array.reshape(-1)[place] = {"b64": proto_json.from_bytes(each)}
    return array.tolist()


def _from_v1(model: CalledModel, landed: Landed) -> ModelAnswer:
    document = json.loads(landed.body)
    found = document["outputs"] if "outputs" in document else document["predictions"]
    outputs = {spec.name: spec for spec in model.outputs or ()} if model.signature is None else model.signature.outputs
    if not isinstance(found, dict):  # the only output, of the model or of its signature, which may have left others out
        found = {next(iter(outputs)) if len(outputs) == 1 else "output": found}
    return ModelAnswer("", tuple(_rows(name, outputs.get(name), value) for name, value in found.items()))


def _rows(alias: str, spec: TensorSpec | None, value: Any) -> Tensor:
    if spec is None:
        return to_tensor(alias, guessed(flattened(value)[0]), value)
    return to_tensor(spec.name, spec.datatype, value)


# -- V2 over gRPC and Connect -----------------------------------------------------------------------------------------


def _message(model: CalledModel, tensors: Sequence[Tensor]) -> Packet:
    from core.schema.open_inference import ModelInferRequest  # noqa: PLC0415 - protobuf, for these protocols alone

    message = ModelInferRequest(
        model_name=model.name,
        model_version=model.version,
        inputs=[
            ModelInferRequest.InferInputTensor(name=each.name, datatype=each.datatype.name, shape=each.array.shape)
            for each in tensors
        ],
        raw_input_contents=[bytes(to_raw(each)) for each in tensors],
    )
    return Packet(f"{SERVICE}/ModelInfer", message.SerializeToString(), {"content-type": "application/proto"})


def _from_message(_: CalledModel, landed: Landed) -> ModelAnswer:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - as above

    from core.schema.open_inference import ModelInferResponse  # noqa: PLC0415 - as above

    try:
        message = ModelInferResponse.FromString(landed.body)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    outputs = []
    for index, each in enumerate(message.outputs):
        datatype, shape = DATATYPES[each.datatype], tuple(each.shape)
        if message.raw_output_contents:
            outputs.append(from_raw(each.name, datatype, shape, message.raw_output_contents[index]))
            continue
        values = list(getattr(each.contents, datatype.contents))
        texts = [value.decode() for value in values] if datatype is BYTES else values
        outputs.append(from_values(each.name, datatype, shape, texts))
    return ModelAnswer(message.model_version, tuple(outputs))


# -- GRPS -------------------------------------------------------------------------------------------------------------


def _grps(model: CalledModel, tensors: Sequence[Tensor]) -> Packet:
    from core.dialects.grps import content, json_write  # noqa: PLC0415 - for this protocol alone

    for tensor in tensors:
        _ = _texts(tensor) if tensor.datatype is BYTES else None
    carried = content.Tensors(tuple(content.carried(tensor) for tensor in tensors))
    body = json_write.write(carried, json_write.snake, NonFinite.QUOTED)
    name = f"{model.name}-{model.version}" if model.version else model.name
    members = json.loads(body)
    return Packet("/grps/v1/infer/predict", jsonio.dumps({"model": name, "gtensors": members["gtensors"]}), JSON)


def _from_grps(_: CalledModel, landed: Landed) -> ModelAnswer:
    from core.dialects.grps import content, json_read  # noqa: PLC0415 - as above

    found = json_read.read(landed.body).content
    if not isinstance(found, content.Tensors):
        raise Refused(f"the answer has no tensors: {landed.body[:256]!r}")
    return ModelAnswer("", found.tensors)


# -- the table --------------------------------------------------------------------------------------------------------

PROTOCOLS: Final = {
    "v2": CallProtocol(_v2, _from_v2),
    "v2-binary": CallProtocol(_v2_binary, _from_v2),
    "v1": CallProtocol(_v1, _from_v1, signed=True),
    "grpc": CallProtocol(_message, _from_message, rpc=True),
    "connect": CallProtocol(_message, _from_message),
    "grps": CallProtocol(_grps, _from_grps),
}


def answer(protocol: CallProtocol, model: CalledModel, landed: Landed) -> ModelAnswer:
    """Reads an answer. Raises Refused for anything else."""
    try:
        return protocol.read(model, landed)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, InvalidInput) as error:
        text = error.message if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
        raise Refused(f"the answer cannot be read: {text[:256]}: {landed.body[:256]!r}") from None
