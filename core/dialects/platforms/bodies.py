"""The JSON bodies of a platform's inference route, by the member that each has: a data frame, rows, or columns.

"dataframe_split", "dataframe_records", "inputs", "instances" with "params" are MLflow's and Databricks'; "instances"
with "parameters" Vertex AI's; "input_data" with "params" Azure ML's. A body with "signature_name" is TensorFlow
Serving's, and gets its answer: MLflow's clients never send that member. Sources: MLflow's scoring_server; Vertex AI's
"Custom container requirements"; Azure ML's "Deploy MLflow models to online endpoints"; TensorFlow Serving's REST API.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from core.bounds import check_parts
from core.dialects.platforms import replies
from core.dialects.platforms.frames import from_records, from_split, tensors
from core.dialects.platforms.replies import Value, by_columns, by_rows, phrase
from core.dialects.v1 import predict
from core.dialects.v1.answer import named, rows
from core.dialects.v1.inputs import from_inputs, from_rows
from core.dialects.v1.request import V1Question, find_signature
from core.dialects.v2.parameters import for_model
from core.errors import InvalidInput, shown
from core.operations import Infer, InferResult, ModelSpec
from core.records import NamedTuple
from core.signature import DEFAULT, Signature
from core.tensor import Tensor
from core.wire import Reply

SIGNATURE: Final = "signature_name"
PARAMETERS: Final = ("params", "parameters")
Read = tuple[Signature | None, tuple[Tensor, ...]]


class BodyKind(NamedTuple):
    """A kind of body. `value`: makes the JSON value of its answer."""

    read: Callable[[Any, V1Question, ModelSpec], Read]
    value: Value


def _split(value: Any, _: V1Question, spec: ModelSpec, what: str = "dataframe_split") -> Read:
    return spec.signatures.get(DEFAULT), tensors(from_split(value, what), spec)


def _records(value: Any, _: V1Question, spec: ModelSpec) -> Read:
    return spec.signatures.get(DEFAULT), tensors(from_records(value), spec)


def _instances(value: Any, question: V1Question, spec: ModelSpec) -> Read:
    signature = find_signature(question, spec, predict.NO_SIGNATURE)
    return signature, from_rows(value, None if signature is None else signature.inputs)


def _inputs(value: Any, question: V1Question, spec: ModelSpec, what: str = "inputs") -> Read:
    signature = find_signature(question, spec, predict.NO_SIGNATURE)
    return signature, from_inputs(value, None if signature is None else signature.inputs, what)


def _input_data(value: Any, question: V1Question, spec: ModelSpec) -> Read:
    is_frame = isinstance(value, dict) and "data" in value
    return (_split if is_frame else _inputs)(value, question, spec, "input_data")


KINDS: Final[Mapping[str, BodyKind]] = {
    "dataframe_split": BodyKind(_split, by_rows),
    "dataframe_records": BodyKind(_records, by_rows),
    "instances": BodyKind(_instances, by_rows),
    "inputs": BodyKind(_inputs, by_columns),
    "input_data": BodyKind(_input_data, rows),
}


def bind(question: V1Question, spec: ModelSpec, form: str = replies.AS_JSON) -> tuple[Infer, Reply]:
    """Returns the inference of a document, and the function that writes its answer in a form. Raises InvalidInput."""
    document = question.document
    if SIGNATURE in document:
        return predict.predict(question, spec)
    name = _kind_of(document)
    kind = KINDS[name]
    signature, inputs = kind.read(document[name], question, spec)
    inferred = predict.infer_of(inputs, signature, spec)._replace(parameters=_parameters(document))
    return inferred, replying(signature, form, kind.value, question)


def replying(signature: Signature | None, form: str, value: Value, question: V1Question) -> Reply:
    """Returns the function that writes the answer of an inference."""

    def reply(result: InferResult) -> Any:
        return phrase(named(result.outputs, signature), form, value, question.non_finite)

    return reply


def _kind_of(document: Mapping[str, Any]) -> str:
    found: Sequence[str] = [name for name in KINDS if name in document]
    if len(found) != 1:
        has = shown(list(document))
        raise InvalidInput(f"the body has the members {has}; expected exactly one of {', '.join(KINDS)}")
    return found[0]


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises InvalidInput, TooMany, and Inexact as `for_model` does."""
    for name in PARAMETERS:
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise InvalidInput(f"{name!r} is {shown(value)}; expected an object")
        check_parts(value, name)
        return for_model(value)
    return {}
