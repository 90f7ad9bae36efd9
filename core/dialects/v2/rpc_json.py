"""The Open Inference Protocol's inference over proto3's JSON mapping of its messages, as Connect's clients send it.

Tensors bypass protobuf: their elements are read and written as REST's are. The rest of a document is small, and is
parsed as a message without them. Field names are read in both spellings and written in lowerCamel.
Source: protobuf.dev/programming-guides/json; the OIP's open_inference_grpc.proto.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final

import numpy as np

from core.bounds import MOST_PARTS, check_number, check_parts
from core.dialects.v2 import rpc_infer
from core.dialects.v2.parameters import EMPTY_FINAL, FINAL, REQUEST, flag_of
from core.dialects.v2.rpc_infer import to_model
from core.dialects.v2.rpc_json_answer import LOWER_CAMEL, answer
from core.dtype import BOOL, DataType
from core.encoding import jsonio
from core.encoding.proto_json import check_spellings, to_bytes, unreadable
from core.encoding.values import Inexact, from_values
from core.errors import InvalidInput, shown
from core.operations import Infer, InferResult, Stream
from core.records import NamedTuple
from core.schema.open_inference import InferTensorContents, ModelInferRequest
from core.tensor import Tensor, check_count, check_rank, named, objects, shaped
from core.wire import Part

RAW: Final = ("rawInputContents", "raw_input_contents")
FIELDS: Final = {
    spelling: field.name
    for field in InferTensorContents.DESCRIPTOR.fields
    for spelling in (field.name, field.json_name)
}
ARRAYS: Final = frozenset(FIELDS)
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
FOREIGN: Final = "[ \t\r\n"
"""Characters that an array of numbers may have, but not the text of a number."""
NUMBERS: Final = frozenset({int, float, str, jsonio.Oversized})
"""The types of a number's JSON. from_values would also flatten lists, and take null for NaN."""
NEGATIVE_ZERO: Final = "-0"
"""The one integer's text that is another float than the integer."""
SHORT: Final = 40
"""Characters of an integer that need no care."""
Phrase = Callable[..., dict[str, Any]]


class JsonRequest(NamedTuple):
    """A ModelInferRequest in JSON. `message` lacks rawInputContents (`raw`) and the inputs' contents (`contents`).

    Both lists are cleared once they are tensors, because a request stays in memory until it is answered.
    """

    body: bytes
    message: ModelInferRequest
    raw: list[Any]
    contents: list[Any]


def read(body: bytes) -> JsonRequest:
    """Parses a ModelInferRequest. Raises InvalidInput."""
    return _from_document(jsonio.loads(body, ARRAYS, nested=False), body)


def decode(request: JsonRequest) -> tuple[Infer, Callable[[InferResult], bytes]]:
    """Returns the inference and the function that writes a ModelInferResponse.

    Raises InvalidInput that names the field.
    """
    operation, phrase = _decode(request)
    return to_model(operation), lambda result: jsonio.dumps(phrase(result))


def decode_streamed(request: JsonRequest) -> tuple[Stream, Callable[[Iterable[InferResult]], Iterator[bytes]]]:
    """Returns the inference and the function that writes its results as ModelStreamInferResponses.

    Raises InvalidInput that names the field.
    """
    operation, phrase = _decode(request)
    wants_end = bool(flag_of(operation.parameters, EMPTY_FINAL, REQUEST))
    message = request.message

    def framed(results: Iterable[InferResult]) -> Iterator[bytes]:
        only = isinstance(results, tuple)
        for result in results:
            yield jsonio.dumps({"inferResponse": phrase(result, {FINAL: {"boolParam": only}})})
        if wants_end and not only:
            named = {"modelName": message.model_name, "modelVersion": message.model_version, "id": message.id}
            yield jsonio.dumps({"inferResponse": {**named, "parameters": {FINAL: {"boolParam": True}}}})

    return Stream(to_model(operation)), framed


def _from_document(document: Any, body: bytes) -> JsonRequest:
    if not isinstance(document, dict):
        raise InvalidInput(f"the body is {shown(document)}; expected an object, a ModelInferRequest")
    document = dict(document)
    raw = [value for spelling in RAW if (value := document.pop(spelling, None)) is not None]
    members = document.get("inputs")
    contents: list[Any] = []
    if isinstance(members, list):
        check_parts(members, "inputs")
        document["inputs"] = [_without_contents(member, contents) for member in members]
    _check_parts(document)
    return JsonRequest(body, _message(document), raw, contents)


def _check_parts(document: Mapping[str, Any]) -> None:
    """Raises TooMany, InvalidInput for more parts than protobuf should make messages of."""
    outputs = document.get("outputs")
    if isinstance(outputs, list):
        check_parts(outputs, "outputs")
    lists = [found for key in ("inputs", "outputs") if isinstance(found := document.get(key), list)]
    members = [each for found in lists for each in found if isinstance(each, dict)]
    if len(members) < sum(map(len, lists)):  # protobuf would take a text for an empty object
        raise unreadable(document, ModelInferRequest.DESCRIPTOR, "")
    owned = (each.get("parameters") for each in (document, *members))
    check_number(sum(len(each) for each in owned if isinstance(each, dict)), "parameters")
    for each in members:
        sizes, name = each.get("shape"), each.get("name")
        if isinstance(sizes, list):
            check_rank(len(sizes), name if isinstance(name, str) else "")


def _decode(request: JsonRequest) -> tuple[Infer, Phrase]:
    try:
        return _decoded(request)
    except Inexact:
        return _decoded(_from_document(jsonio.loads_exact(request.body), request.body))
    finally:
        request.raw.clear()
        request.contents.clear()


def _decoded(request: JsonRequest) -> tuple[Infer, Phrase]:
    message, raw = request.message, _raw(request.raw)
    members = list(zip(message.inputs, request.contents, strict=True))
    parameters = rpc_infer.parameters_of(message, raw)
    for tensor, own in members if raw else ():
        if any(len(value) for _, value in _given(own, tensor.name)):
            what = named(tensor.name)
            raise InvalidInput(f"{what} has 'contents' beside 'rawInputContents': only one of them is possible")
    inputs = (
        rpc_infer.raw_inputs(rpc_infer.ProtoRequest(message, raw, RAW[0])) if raw else tuple(starmap(_input, members))
    )
    operation, types, wants_raw = rpc_infer.inference(message, parameters, inputs, raw=bool(raw))

    def phrase(result: InferResult, told: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return answer(result, message.id, told, types, wants_raw=wants_raw)

    return operation, phrase


def _message(document: dict[str, Any]) -> ModelInferRequest:
    """Parses the request without its tensors' elements. Raises InvalidInput."""
    from google.protobuf import json_format  # noqa: PLC0415 - needed for JSON requests only

    check_spellings(document, ModelInferRequest.DESCRIPTOR.fields)
    try:
        return json_format.ParseDict(document, ModelInferRequest(), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError) as error:
        raise unreadable(document, ModelInferRequest.DESCRIPTOR, str(error)) from None


def _raw(values: Sequence[Any]) -> list[Part]:
    """Returns the raw parts. `values` has one member per spelling that the document uses. Raises InvalidInput."""
    if not values:
        return []
    if len(values) > 1 or not isinstance(values[0], list):
        raise InvalidInput(f"'rawInputContents' is {shown(values[-1])}; expected one array of base64 texts")
    check_parts(values[0], "raw input contents")
    return [_octets(value, "'rawInputContents'") for value in values[0]]


def _octets(value: Any, where: str) -> bytes:
    try:
        if isinstance(value, str):
            return to_bytes(value)
    except ValueError:
        pass
    raise InvalidInput(f"{where} has {shown(value)}, which is not base64 text")


def _without_contents(member: Any, contents: list[Any]) -> Any:
    """Returns the input for protobuf, and appends its elements to `contents`."""
    own = None
    if isinstance(member, dict):
        member = dict(member)
        own = member.pop("contents", None)
    contents.append(own)
    return member


def _input(tensor: ModelInferRequest.InferInputTensor, contents: Any) -> Tensor:
    """Returns an input with the elements of its contents. Raises InvalidInput."""
    name, datatype, shape = rpc_infer.described(tensor)
    values = _values(contents, datatype, name)
    if len(values) > MOST_PARTS:
        check_count(len(values), shape, name)  # before each is read
    if not datatype.is_bytes:
        return from_values(name, datatype, shape, _plain(values, datatype, name))
    texts = values if isinstance(values, list) else values.tolist()
    return Tensor(name, datatype, shaped(objects([_octets(text, named(name)) for text in texts]), shape, name))


def _values(contents: Any, datatype: DataType, name: str) -> Any:
    """Returns the array in the datatype's field. Raises InvalidInput."""
    if not datatype.contents:
        raise InvalidInput(f"{named(name)} is {datatype.name}, which has no typed contents: send it raw")
    given = _given(contents, name)
    for field, value in given:
        if field != datatype.contents and len(value):
            wanted = LOWER_CAMEL[datatype.contents]
            raise InvalidInput(f"{named(name)} is {datatype.name} and has '{LOWER_CAMEL[field]}'; expected '{wanted}'")
    own = [value for field, value in given if field == datatype.contents]
    if len(own) > 1:
        raise InvalidInput(f"{named(name)} has '{LOWER_CAMEL[datatype.contents]}' in two spellings")
    return own[0] if own else []


def _given(contents: Any, name: str) -> list[tuple[str, Any]]:
    """Returns the arrays of an input's contents, by field. An empty one says nothing. Raises InvalidInput."""
    if not isinstance(contents, dict | None):
        raise InvalidInput(f"{named(name)} has 'contents' {shown(contents)}; expected an object")
    given = [(FIELDS[key], value) for key, value in (contents or {}).items() if key in FIELDS and value is not None]
    for field, value in given:
        if not isinstance(value, list | np.ndarray):
            raise InvalidInput(f"{named(name)} has {shown(value)} as '{LOWER_CAMEL[field]}'; expected an array")
    return given


def _plain(values: Any, datatype: DataType, name: str) -> Any:
    """Returns the elements without the quotes that proto3's JSON permits around numbers. Raises InvalidInput."""
    if isinstance(values, np.ndarray):
        if datatype is BOOL and values.size:
            raise _wrong(values[0].item(), datatype, name)
        return values
    kinds, allowed = set(map(type, values)), {bool} if datatype is BOOL else NUMBERS
    if not kinds <= allowed:
        raise _wrong(next(value for value in values if type(value) not in allowed), datatype, name)
    if str not in kinds:
        return values
    found = _unquoted(values) if kinds == {str} and NEGATIVE_ZERO not in values else None
    if found is not None and (datatype.is_float or not _has_doubles(found)):
        return found
    return [_number(value) if type(value) is str else value for value in values]


def _has_doubles(found: Any) -> bool:
    """Decides whether a number was read as a double, which may have lost digits."""
    return found.dtype.kind == "f" if isinstance(found, np.ndarray) else float in set(map(type, found))


def _wrong(value: Any, datatype: DataType, name: str) -> InvalidInput:
    kind = "booleans" if datatype is BOOL else "numbers" if datatype.is_float else "integers"
    return InvalidInput(f"{named(name)} has {shown(value)} where {datatype.name} needs {kind}")


def _number(text: str) -> Any:
    """Returns a text's number, and any other text unchanged."""
    if text == NEGATIVE_ZERO:
        return -0.0
    if len(text) <= SHORT and INTEGER.fullmatch(text):
        return int(text)
    return jsonio.loads_exact(text.encode()) if NUMBER.fullmatch(text) else text


def _unquoted(texts: list[str]) -> Any:
    """Parses all texts at once. Returns None unless each is one number, which the count of the results shows."""
    joined = ",".join(texts)
    if any(each in joined for each in FOREIGN):
        return None
    try:
        found = jsonio.loads(b'{"found":[%b]}' % joined.encode(), frozenset({"found"}), nested=False)["found"]
    except (InvalidInput, UnicodeEncodeError):
        return None
    if len(found) != len(texts):
        return None
    return found if isinstance(found, np.ndarray) or set(map(type, found)) <= {int, float} else None
