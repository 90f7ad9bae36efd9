"""Answers of the OIP's inference in proto3's JSON mapping of its messages, as Connect's clients read it.

Tensors bypass protobuf, as those of requests do (`rpc_json`).
"""

from collections.abc import Mapping
from typing import Any, Final

from core.dialects.v2.content_types import NAME as CONTENT_TYPE
from core.dialects.v2.content_types import ContentTypes
from core.encoding.jsonio import numbers
from core.encoding.long_json import text
from core.encoding.proto_json import floats, from_bytes, integers
from core.operations import InferResult
from core.schema.open_inference import InferTensorContents
from core.tensor import Tensor, to_raw

LOWER_CAMEL: Final = {field.name: field.json_name for field in InferTensorContents.DESCRIPTOR.fields}
QUOTED: Final = ("INT64", "UINT64")
"""Datatypes written as strings: other languages read numbers into doubles, which do not hold them."""


def answer(
    result: InferResult,
    request_id: str,
    told: Mapping[str, Any] | None,
    types: ContentTypes | None,
    *,
    wants_raw: bool,
) -> dict[str, Any]:
    """Returns a ModelInferResponse as json_format writes it: without empty fields. `told`: its parameters."""
    message: dict[str, Any] = {"modelName": result.model_name, "modelVersion": result.model_version}
    if request_id:
        message["id"] = text(request_id)
    if told:
        message["parameters"] = told
    phrased = [(tensor, "") if types is None else types.answered(tensor) for tensor in result.outputs]
    outputs = [_head(tensor, kind) for tensor, kind in phrased]
    if outputs:
        message["outputs"] = outputs
    if wants_raw or result.raw or not all(output.datatype.contents for output in result.outputs):
        message["rawOutputContents"] = [from_bytes(to_raw(tensor)) for tensor, _ in phrased]
        return message
    for head, (tensor, _) in zip(outputs, phrased, strict=True):
        head["contents"] = _contents(tensor)
    return message


def _head(tensor: Tensor, kind: str) -> dict[str, Any]:
    head: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype.name}
    if kind:
        head["parameters"] = {CONTENT_TYPE: {"stringParam": kind}}
    if tensor.array.shape:
        head["shape"] = [str(size) for size in tensor.array.shape]
    return head


def _contents(tensor: Tensor) -> dict[str, Any]:
    array = tensor.array.reshape(-1)
    if not array.size:
        return {}
    field = LOWER_CAMEL[tensor.datatype.contents]
    if tensor.datatype.is_bytes:
        return {field: [from_bytes(element) for element in array]}
    return {field: integers(array) if tensor.datatype.name in QUOTED else floats(array, numbers(array))}
