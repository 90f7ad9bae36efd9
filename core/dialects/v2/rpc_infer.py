"""The Open Inference Protocol's inference over protobuf messages, with the classification extension.

A tensor's elements are in its own `contents`, in the field of its datatype; or the elements of all tensors are raw
bytes beside them. An answer has the form of its request, but is raw if an output is FP16 or BF16, which have no field,
or if an operator wants all answers raw (DRAGOMAN_GRPC_OUTPUTS).
Source: the OIP's open_inference_grpc.proto.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.bounds import check_parts
from core.dialects.v2.content_types import NAME as CONTENT_TYPE
from core.dialects.v2.content_types import ContentTypes, of_request
from core.dialects.v2.infer import unknown_datatype
from core.dialects.v2.parameters import (
    ALL_BINARY,
    EMPTY_FINAL,
    FINAL,
    REQUEST,
    What,
    classes_of,
    flag_of,
    for_model,
    refuse_shared_memory,
)
from core.dtype import DATATYPES, DataType
from core.encoding.values import from_values
from core.errors import InvalidInput, counted, shown
from core.operations import Infer, InferResult, ModelRef, RequestedOutput, Stream
from core.records import NamedTuple
from core.schema import fields
from core.schema.fields import Part
from core.schema.open_inference import (
    InferParameter,
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)
from core.tensor import Tensor, check_count, check_rank, checked_shape, from_raw, named, objects, shaped, to_raw

RAW_INPUT: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
RAW_OUTPUT: Final = ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER
INFER_RESPONSE: Final = ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER
WORTH_SPLITTING: Final = 32 * 1024
"""Bytes from which on copying them twice takes longer than finding the tensors between the other fields."""
ELEMENTS: Final = {
    "bool_contents": np.dtype(np.bool_),
    "int_contents": np.dtype(np.int32),
    "int64_contents": np.dtype(np.int64),
    "uint_contents": np.dtype(np.uint32),
    "uint64_contents": np.dtype(np.uint64),
    "fp32_contents": np.dtype(np.float32),
    "fp64_contents": np.dtype(np.float64),
}
"""The element type of each field, which may be wider than a datatype in it."""


class ProtoRequest(NamedTuple):
    """A ModelInferRequest in protobuf. `raw`: raw_input_contents, which `message` may then lack.

    `raw_name`: how the client spells that.
    """

    message: ModelInferRequest
    raw: Sequence[Part]
    raw_name: str = "raw_input_contents"


def read(body: bytes) -> ProtoRequest:
    """Parses a ModelInferRequest. Raises DecodeError."""
    split = fields.split(body, RAW_INPUT) if len(body) >= WORTH_SPLITTING else None
    if split is None:
        message = ModelInferRequest.FromString(body)
        return ProtoRequest(message, message.raw_input_contents)
    rest, raw = split
    return ProtoRequest(ModelInferRequest.FromString(rest), raw)


def rest(body: Part) -> int | None:
    """Returns the bytes of a message without its raw tensors; None if these may be texts, or if protobuf must look."""
    split = fields.split(body, RAW_INPUT)
    return None if split is None or b"BYTES" in split[0] else len(split[0])


def ref(request: ProtoRequest) -> ModelRef:
    return _ref(request.message)


def _ref(message: ModelInferRequest) -> ModelRef:
    return ModelRef(message.model_name, message.model_version or None)


def decode(request: ProtoRequest) -> tuple[Infer, Callable[[InferResult], bytes]]:
    """Returns the inference and the function that writes a ModelInferResponse.

    Raises InvalidInput that names the field.
    """
    operation, phrase = _decode(request)
    return to_model(operation), lambda result: b"".join(phrase(result))


def decode_streamed(request: ProtoRequest) -> tuple[Stream, Callable[[Iterable[InferResult]], Iterator[bytes]]]:
    """Returns the inference and the function that writes its results as ModelStreamInferResponses.

    Raises InvalidInput that names the field.
    """
    operation, phrase = _decode(request)
    wants_end = bool(flag_of(operation.parameters, EMPTY_FINAL, REQUEST))

    def framed(results: Iterable[InferResult]) -> Iterator[bytes]:
        only = isinstance(results, tuple)
        for result in results:
            yield _framed(phrase(result, {FINAL: InferParameter(bool_param=only)}))
        if wants_end and not only:
            yield _framed([ended(request.message).SerializeToString()])

    return Stream(to_model(operation)), framed


def ended(message: ModelInferRequest) -> ModelInferResponse:
    """Returns the last answer of a stream for a request, without outputs; name and version are the request's.

    Source: Triton's stream_infer_handler.cc, for empty last answers and for errors.
    """
    return ModelInferResponse(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        parameters={FINAL: InferParameter(bool_param=True)},
    )


def to_model(operation: Infer) -> Infer:
    """Returns the inference without the protocol's own parameters."""
    parameters = operation.parameters
    own = for_model(parameters)
    return operation if own is parameters else operation._replace(parameters=own)


def _framed(parts: Sequence[Part]) -> bytes:
    return b"".join((fields.head(INFER_RESPONSE, sum(map(len, parts))), *parts))


def _decode(request: ProtoRequest) -> tuple[Infer, Callable[..., list[Part]]]:
    message, contents = request.message, request.raw
    parameters = parameters_of(message, contents)
    raw = len(contents) > 0
    inputs = raw_inputs(request) if raw else tuple([_typed_input(tensor) for tensor in message.inputs])
    operation, types, wants_raw = inference(message, parameters, inputs, raw=raw)

    def phrase(result: InferResult, told: Mapping[str, InferParameter] | None = None) -> list[Part]:
        response = ModelInferResponse(
            model_name=result.model_name, model_version=result.model_version, id=message.id, parameters=told
        )
        explicit = not (wants_raw or result.raw) and all(output.datatype.contents for output in result.outputs)
        return _written(response, result.outputs, types, explicit=explicit)

    return operation, phrase


def parameters_of(message: ModelInferRequest, raw: Sequence[Part]) -> dict[str, Any]:
    """Returns the parameters of the request itself, after it has counted its parts. Raises TooMany, InvalidInput."""
    check_parts(message.inputs, "inputs")
    check_parts(message.outputs, "outputs")
    check_parts(raw, "raw input contents")
    return _parameters(message.parameters, REQUEST) if message.parameters else {}


def inference(
    message: ModelInferRequest, parameters: dict[str, Any], inputs: tuple[Tensor, ...], *, raw: bool
) -> tuple[Infer, ContentTypes | None, bool]:
    """Returns the inference of these inputs, its content types, and whether its answer is raw.

    It has all parameters, the protocol's own among them. `raw`: its inputs were. Raises InvalidInput.
    """
    outputs = tuple([_requested(output) for output in message.outputs])
    # A request without inputs does not show its form; every client reads the raw one.
    wants_raw = bool(parameters and flag_of(parameters, ALL_BINARY, REQUEST)) or raw or not message.inputs
    types = _content_types(message, parameters)
    inputs = inputs if types is None else types.decoded(inputs)
    return Infer(_ref(message), inputs, outputs, parameters), types, wants_raw


def _content_types(message: ModelInferRequest, parameters: Mapping[str, Any]) -> ContentTypes | None:
    """Returns the content types of a request, None if it has none. Raises InvalidInput."""
    inputs = [_parameters(tensor.parameters, REQUEST) if tensor.parameters else {} for tensor in message.inputs]
    outputs = [
        (tensor.name, _parameters(tensor.parameters, REQUEST)) for tensor in message.outputs if tensor.parameters
    ]
    return of_request(parameters, inputs, outputs) if parameters or outputs or any(inputs) else None


def _parameters(given: Mapping[str, InferParameter], what: What) -> dict[str, Any]:
    check_parts(given, "parameters")
    parameters = {name: _value(name, parameter, what) for name, parameter in given.items()}
    refuse_shared_memory(parameters, what)
    return parameters


def _value(name: str, parameter: InferParameter, what: What) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    if kind is None:
        raise InvalidInput(f"parameter {shown(name)} of {what} has no value, or one of an unknown kind")
    return getattr(parameter, kind)


def _requested(output: ModelInferRequest.InferRequestedOutputTensor) -> RequestedOutput:
    what = What("output", output.name)
    return RequestedOutput(output.name, classes_of(_parameters(output.parameters, what), what))


def described(tensor: ModelInferRequest.InferInputTensor) -> tuple[str, DataType, tuple[int, ...]]:
    """Returns an input's name, datatype and shape. Raises InvalidInput, for a wrong parameter, too."""
    name = tensor.name
    if tensor.parameters:
        _parameters(tensor.parameters, What("input", name))
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None:
        raise unknown_datatype(tensor.datatype, What("input", name))
    check_rank(len(tensor.shape), name)
    return name, datatype, checked_shape(list(tensor.shape), name)


def raw_inputs(request: ProtoRequest) -> tuple[Tensor, ...]:
    """Returns the inputs of a request whose tensors are raw. Raises InvalidInput."""
    members, contents, raw_name = request.message.inputs, request.raw, request.raw_name
    if len(contents) != len(members):
        for tensor in members:  # one in shared memory has no contents
            _parameters(tensor.parameters, What("input", tensor.name))
        raise _wrong_count(members, len(contents), raw_name)
    tensors = []
    for tensor, raw in zip(members, contents, strict=True):
        if tensor.HasField("contents") and tensor.contents.ByteSize():
            what = What("input", tensor.name)
            raise InvalidInput(f"{what} has 'contents' beside '{raw_name}': only one of them is possible")
        tensors.append(from_raw(*described(tensor), raw))
    return tuple(tensors)


def _wrong_count(members: Sequence[ModelInferRequest.InferInputTensor], count: int, raw_name: str) -> InvalidInput:
    inputs = counted(len(members), "input")
    if count > len(members):
        entries = "1 entry" if count == 1 else f"{count} entries"
        return InvalidInput(f"'{raw_name}' has {entries} for {inputs}")
    what = What("input", members[count].name)
    return InvalidInput(f"{what} has no entry in '{raw_name}': there are {count} for {inputs}")


def _typed_input(tensor: ModelInferRequest.InferInputTensor) -> Tensor:
    name, datatype, shape = described(tensor)
    field = datatype.contents
    if not field:
        raise InvalidInput(f"{named(name)} is {datatype.name}, which has no typed contents: send it raw")
    for other, _ in tensor.contents.ListFields():
        if other.name != field:
            raise InvalidInput(f"{named(name)} is {datatype.name} and has '{other.name}'; expected '{field}'")
    values = getattr(tensor.contents, field)
    check_count(len(values), shape, name)
    if datatype.is_bytes:
        return Tensor(name, datatype, shaped(objects(values), shape, name))
    return from_values(name, datatype, shape, fields.array(values, len(values), ELEMENTS[field]))


def _written(
    response: ModelInferResponse, outputs: Sequence[Tensor], types: ContentTypes | None, *, explicit: bool
) -> list[Part]:
    """Returns the message's encoding with the outputs. `explicit`: their elements are fields of their own, not raw."""
    raw: list[Part] = []
    for output in outputs:
        tensor, kind = (output, "") if types is None else types.answered(output)
        head = response.outputs.add(name=tensor.name, datatype=tensor.datatype.name, shape=tensor.shape)
        if kind:
            head.parameters[CONTENT_TYPE].string_param = kind
        if explicit:
            getattr(head.contents, tensor.datatype.contents).extend(tensor.array.reshape(-1).tolist())
        else:
            elements = to_raw(tensor)
            raw += (fields.head(RAW_OUTPUT, len(elements)), elements)
    return [response.SerializeToString(), *raw]
