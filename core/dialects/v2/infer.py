"""The Open Inference Protocol's inference over REST, with the binary tensor data and classification extensions.

A body is JSON, or JSON followed by the binary parts of the inputs that have "binary_data_size", in their order; the
header Inference-Header-Content-Length is then the length of the JSON. With 0 there, the body is the model's only input.
Sources: OIP inference_rest.md "Inference"; Triton's extension_binary_data.md, extension_classification.md.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from core.bounds import MOST_PARTS, check_number, check_parts
from core.dialects.v2.parameters import ALL_BINARY, REQUEST, What, classes_of, flag_of, for_model, of_member
from core.dtype import BF16, BYTES, DATATYPES, FP32, FP64, DataType
from core.encoding import jsonio, long_json
from core.encoding.jsonio import FEW_ELEMENTS, NonFinite, numeric
from core.encoding.values import Inexact, from_values
from core.errors import InvalidInput, given, shown
from core.operations import Infer, InferResult, ModelRef, RequestedOutput
from core.tensor import Tensor, checked_shape, flat_texts, from_raw, to_raw
from core.wire import JSON, OCTETS, Call, HttpResponse, Part, Reply

if TYPE_CHECKING:
    from core.dialects.v2.content_types import ContentTypes

HEADER_LENGTH: Final = b"inference-header-content-length"
ARRAYS: Final = frozenset({"data"})
NO_BYTES: Final = memoryview(b"")


def ref(call: Call) -> ModelRef:
    """Returns the model that a request's path names."""
    return ModelRef(call.path["model"], call.path.get("version"))


def decode(call: Call, length_name: str = f"header {HEADER_LENGTH.decode()}") -> tuple[Infer, Reply]:
    """Returns the inference and the function that writes its answer. Raises InvalidInput that names the member.

    `length_name`: of what the client has sent as the length of its JSON.
    """
    request = call.request
    model = ref(call)
    non_finite = request.options.tokens(NonFinite.QUOTED)
    body = request.content()
    head, binary = body, NO_BYTES
    if HEADER_LENGTH in request.headers:
        length = _length(request.headers[HEADER_LENGTH], len(body), length_name)
        if length == 0:
            return Infer(model, (), raw=body), _Phrasing(None, {}, all_binary=True, non_finite=non_finite).phrase
        view = memoryview(body)
        head, binary = view[:length], view[length:]
    try:
        return from_members(jsonio.loads(head, ARRAYS), binary, model, non_finite)
    except Inexact:
        return from_members(jsonio.loads_exact(head), binary, model, non_finite)


def _length(text: bytes, size: int, name: str) -> int:
    """Returns the number of bytes of a body's JSON, by its header. `size`: the body's. Raises InvalidInput."""
    if not text.isdigit() or len(text) > 18:  # noqa: PLR2004 - beyond any body, within 64 bits
        raise InvalidInput(f"{name} is {shown(text)}; expected a decimal number of bytes")
    if int(text) > size:
        raise InvalidInput(f"{name} is {int(text)}, but the body has {size} bytes")
    return int(text)


def from_members(body: Any, binary: memoryview, model: ModelRef, non_finite: NonFinite | None) -> tuple[Infer, Reply]:
    """Returns what `decode` does, of a parsed body and the bytes behind it. Raises InvalidInput."""
    if not isinstance(body, dict):
        raise InvalidInput(f"the body is {shown(body)}; expected an object with 'inputs'")
    request_id = body.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise InvalidInput(f"'id' is {shown(request_id)}; expected a string")
    parameters = of_member(body, REQUEST) if "parameters" in body else {}
    inputs = _inputs(body.get("inputs"), binary)
    wishes, outputs = ({}, ()) if body.get("outputs") is None else _outputs(body["outputs"])
    all_binary = flag_of(parameters, ALL_BINARY, REQUEST) if parameters else False
    phrasing = _Phrasing(request_id, wishes, all_binary=bool(all_binary), non_finite=non_finite)
    types = _content_types(body, parameters)
    if types is not None:
        inputs, phrasing.types = types.decoded(inputs), types
    return Infer(model, inputs, outputs, for_model(parameters) if parameters else {}), phrasing.phrase


def _content_types(body: Mapping[str, Any], parameters: Mapping[str, Any]) -> "ContentTypes | None":
    inputs, outputs = body["inputs"], body.get("outputs") or ()
    if not parameters and not any("parameters" in each for each in (*inputs, *outputs)):
        return None
    from core.dialects.v2.content_types import of_request  # noqa: PLC0415 - few clients send parameters

    own = [member.get("parameters") or {} for member in inputs]
    return of_request(parameters, own, [(member["name"], member.get("parameters") or {}) for member in outputs])


def _inputs(members: Any, binary: memoryview) -> tuple[Tensor, ...]:
    if not isinstance(members, list):
        raise InvalidInput(f"'inputs' is {given(members)}; expected an array of tensors")
    if len(members) > MOST_PARTS:
        check_number(len(members), "inputs")
    tensors, position = [], 0
    for index, member in enumerate(members):
        tensor, position = _input(member, index, binary, position)
        tensors.append(tensor)
    if position != len(binary):
        raise InvalidInput(f"{len(binary) - position} bytes follow the last binary input")
    return tuple(tensors)


def _input(member: Any, index: int, binary: memoryview, position: int) -> tuple[Tensor, int]:
    """Returns one input, and the position of the next one's binary part."""
    name = _name(member, "inputs", index)
    kind = member.get("datatype")
    datatype = DATATYPES.get(kind) if type(kind) is str else None
    if datatype is None:
        raise unknown_datatype(kind, What("input", name))
    shape = checked_shape(member.get("shape"), name)
    data = member.get("data")
    size = _binary_size(member, name) if "parameters" in member else None
    if size is None and data is not None and datatype is not BF16:
        return from_values(name, datatype, shape, data), position
    what = What("input", name)
    if size is None:
        if data is not None:
            raise InvalidInput(f"{what} is BF16, which JSON numbers cannot carry: send it as binary data")
        if binary is NO_BYTES or (position == len(binary) and 0 not in shape):
            raise InvalidInput(f"{what} has neither 'data' nor 'binary_data_size'")
        size = _implied_size(datatype, shape, what)
    elif data is not None:
        raise InvalidInput(f"{what} has both 'data' and 'binary_data_size'")
    end = position + size
    if end > len(binary):
        raise InvalidInput(f"{what} needs {size} bytes of binary data; {len(binary) - position} are left")
    return from_raw(name, datatype, shape, binary[position:end]), end


def _name(member: Any, role: str, index: int) -> str:
    if not isinstance(member, dict):
        raise InvalidInput(f"{role}[{index}] is {shown(member)}; expected an object")
    name = member.get("name")
    if not isinstance(name, str):
        raise InvalidInput(f"'name' of {role}[{index}] is {given(name)}; expected a string")
    return name


def unknown_datatype(name: Any, what: What) -> InvalidInput:
    """Returns the refusal of a datatype from the wire, which lists the known names."""
    return InvalidInput(f"'datatype' of {what} is {given(name)}; expected one of {', '.join(DATATYPES)}")


def _binary_size(member: Mapping[str, Any], name: str) -> int | None:
    what = What("input", name)
    size = of_member(member, what).get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidInput(f"'binary_data_size' of {what} is {shown(size)}; expected a number of bytes")
    return size


def _implied_size(datatype: DataType, shape: tuple[int, ...], what: What) -> int:
    """Returns the size, by its shape, of a binary part without "binary_data_size" (OVMS's binary inputs)."""
    if datatype is BYTES:
        raise InvalidInput(f"{what} is BYTES and needs 'binary_data_size': its shape does not imply its size")
    size = datatype.numpy.itemsize
    for dimension in shape:
        size *= dimension
    return size


def _outputs(members: Any) -> tuple[dict[str, bool], tuple[RequestedOutput, ...]]:
    """Returns the outputs' own "binary_data" flags by name, and the requested outputs."""
    if not isinstance(members, list):
        raise InvalidInput(f"'outputs' is {shown(members)}; expected an array of names")
    check_parts(members, "outputs")
    wishes, requested = {}, []
    for index, member in enumerate(members):
        name = _name(member, "outputs", index)
        what = What("output", name)
        parameters = of_member(member, what)
        binary = flag_of(parameters, "binary_data", what)
        if binary is not None:
            wishes[name] = binary
        requested.append(RequestedOutput(name, classes_of(parameters, what)))
    return wishes, tuple(requested)


class _Phrasing:
    """The form of one request's answer: the id to echo, and the outputs to send as binary.

    `unproven`: few numbers are written before it is known that JSON has all of them. None: they are proved before.
    """

    __slots__ = ("all_binary", "non_finite", "request_id", "types", "unproven", "wishes")

    def __init__(
        self, request_id: str | None, wishes: Mapping[str, bool], *, all_binary: bool, non_finite: NonFinite | None
    ) -> None:
        self.request_id = request_id
        self.all_binary = all_binary
        self.wishes = wishes
        self.non_finite = non_finite
        self.types: ContentTypes | None = None
        self.unproven: bool | None = False

    def phrase(self, result: InferResult) -> HttpResponse:
        answer = self._written(result)
        if self.unproven and b"null" in answer.parts[0]:  # the writer's word for NaN, or a text that has it
            self.unproven = None
            answer = self._written(result)
        return answer

    def _written(self, result: InferResult) -> HttpResponse:
        parts: list[Part] = []
        outputs = [self._output(tensor, parts) for tensor in result.outputs]
        answer: dict[str, Any] = {"model_name": result.model_name, "model_version": result.model_version}
        if self.request_id is not None:
            answer["id"] = long_json.text(self.request_id)
        answer["outputs"] = outputs
        head = jsonio.dumps(answer)
        if not parts:
            return HttpResponse(200, (JSON,), (head,))
        return HttpResponse(200, (OCTETS, (HEADER_LENGTH, b"%d" % len(head))), (head, *parts))

    def _output(self, tensor: Tensor, parts: list[Part]) -> dict[str, Any]:
        head: dict[str, Any] = {
            "name": tensor.name,
            "shape": tensor.shape,
            "datatype": tensor.datatype.name,
        }
        if self.types is not None:
            tensor, kind = self.types.answered(tensor)
            if kind:
                head["parameters"] = {self.types.member: kind}
        if self.wishes.get(tensor.name, self.all_binary):
            raw = to_raw(tensor)
            head.setdefault("parameters", {})["binary_data_size"] = len(raw)
            parts.append(raw)
        else:
            head["data"] = self._data(tensor)
        return head

    def _data(self, tensor: Tensor) -> Any:
        datatype = tensor.datatype
        if (datatype is FP32 or datatype is FP64) and self.unproven is not None and tensor.array.size <= FEW_ELEMENTS:
            self.unproven = True
            return tensor.array.ravel()
        if datatype is BF16:
            what = f"output {shown(tensor.name)}"
            raise InvalidInput(f"{what} is BF16, which JSON numbers cannot carry: ask for binary data")
        if datatype is not BYTES:
            return numeric(Tensor(tensor.name, tensor.datatype, tensor.array.reshape(-1)), self.non_finite)
        try:
            return long_json.array(flat_texts(tensor))
        except UnicodeDecodeError:
            what = f"output {shown(tensor.name)}"
            raise InvalidInput(f"{what} has bytes that are not UTF-8, as JSON needs: ask for binary data") from None
