"""Classify and regress under /v1: lists of feature objects, read as TensorFlow Serving makes tf.Examples of them.

A feature is a value or a flat list: floats, integers and booleans, or strings and {"b64": text}, never mixed. "context"
holds features that all examples share; an example's own value wins. A float feature accepts integers, too, because
JavaScript writes 80.0 as 80. Sources: TF Serving's RESTful API page; its json_tensor, classifier, regressor.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.dialects.v1.answer import text
from core.dialects.v1.inputs import decoded
from core.dialects.v1.request import V1Question, find_signature
from core.dialects.v1.values import KINDS, elements, is_binary, quoted, type_name
from core.dtype import BF16, BOOL, DataType
from core.dtype import BYTES as BYTES_TYPE
from core.encoding import jsonio
from core.errors import InvalidInput, shown
from core.float16 import bf16_to_float
from core.operations import Infer, InferResult, ModelRef, ModelSpec, RequestedOutput
from core.signature import Binding, Method, Signature
from core.tensor import Tensor, TensorSpec
from core.wire import JSON, HttpResponse, Reply

NO_SIGNATURE: Final = "No signature was found with the name: {name}"
FLOAT: Final = "float"
INT64: Final = "int64"
BYTES: Final = "string"
KIND_OF: Final[dict[type, str]] = {float: FLOAT, int: INT64, bool: INT64, str: BYTES}
INTEGER_OR_FLOAT: Final = {INT64: FLOAT}
NOUN: Final = {Method.CLASSIFY: "classification", Method.REGRESS: "regression"}
Example = Mapping[str, Any]


def classify(question: V1Question, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Binds a request to a classify signature. The answer has, per example, the [label, score] pairs of its classes.

    Raises InvalidInput, in TF Serving's words where it has them.
    """
    signature = _signature(question, spec, Method.CLASSIFY)

    def reply(result: InferResult) -> HttpResponse:
        return _answer(_classes(_outputs(result, signature), signature, question))

    return _infer(question, signature, spec), reply


def regress(question: V1Question, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Binds a request to a regress signature. The answer has one number per example.

    Raises InvalidInput, in TF Serving's words where it has them.
    """
    signature = _signature(question, spec, Method.REGRESS)

    def reply(result: InferResult) -> HttpResponse:
        values = _numbers(_outputs(result, signature)["outputs"])
        shape = values.array.shape
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):  # noqa: PLR2004 - [n] or [n, 1]
            raise InvalidInput(
                f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {list(shape)}"
            )
        flat = values._replace(array=values.array.reshape(-1))
        return _answer(jsonio.numeric(flat, question.non_finite))

    return _infer(question, signature, spec), reply


def _answer(results: Any) -> HttpResponse:
    return HttpResponse(200, (JSON,), (jsonio.dumps({"results": results}),))


def _signature(question: V1Question, spec: ModelSpec, method: Method) -> Signature:
    signature = find_signature(question, spec, NO_SIGNATURE)
    if signature is None or signature.method is not method:
        fitting = [name for name, other in spec.signatures.items() if other.method is method]
        told = f"those for {method} are {shown(fitting)}" if fitting else f"the model has none for {method}"
        raise InvalidInput(
            f"No {NOUN[method]} inputs found in SignatureDef: name another with 'signature_name'; {told}"
        )
    return signature


def _infer(question: V1Question, signature: Signature, spec: ModelSpec) -> Infer:
    examples = _examples(question.document, signature.method)
    inputs = tuple(_feature(name, binding, examples) for name, binding in (signature.inputs or {}).items())
    wanted = dict.fromkeys(binding.spec.name for binding in signature.outputs.values())
    return Infer(ModelRef(spec.name, spec.version), inputs, tuple(map(RequestedOutput, wanted)))


def _outputs(result: InferResult, signature: Signature) -> dict[str, Tensor]:
    tensors = {tensor.name: tensor for tensor in result.outputs}
    return {alias: tensors[binding.spec.name] for alias, binding in signature.outputs.items()}


def _classes(outputs: dict[str, Tensor], signature: Signature, question: V1Question) -> list[Any]:
    """Returns [label, score] pairs. Without an output of classes the labels are the settings' or "".

    Without an output of scores, each score is 0.0.
    """
    shapes = {alias: tensor.array.shape for alias, tensor in outputs.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 2:  # noqa: PLR2004 - [n, k]
        raise InvalidInput(f"Expected outputs of one shape [batch_size, num_classes] but got {shown(str(shapes))}")
    ((count, classes),) = set(shapes.values())
    scores: list[Any] = [[0.0] * classes] * count
    if "scores" in outputs:
        tensor = _numbers(outputs["scores"])
        scores = [jsonio.rows(tensor._replace(array=row), question.non_finite) for row in tensor.array]
    padded = (*signature.class_labels, *[""] * classes)[:classes]
    labels: list[Sequence[Any]] = [padded] * count
    if "classes" in outputs:
        labels = [[_label(element) for element in row] for row in outputs["classes"].array]
    return [[[label, score] for label, score in zip(*pair, strict=True)] for pair in zip(labels, scores, strict=True)]


def _numbers(tensor: Tensor) -> Tensor:
    if tensor.datatype.is_bytes:
        raise InvalidInput(f"Expected output {shown(tensor.name)} to be of numbers but got DT_STRING")
    return tensor


def _label(element: Any) -> Any:
    return text(element) if isinstance(element, bytes) else str(element)


def _examples(document: dict[str, Any], method: Method) -> list[Example]:
    examples, context = document.get("examples"), document.get("context", {})
    if not isinstance(context, dict):
        raise InvalidInput(f"When method is {method}, key 'context' is expected to be an object, not {quoted(context)}")
    if not isinstance(examples, list):
        raise InvalidInput(f"When method is {method}, key 'examples' is expected and was not found as a list/array")
    if not examples:
        raise InvalidInput(f"When method is {method}, key 'examples' is expected to be a non-empty list/array")
    for index, example in enumerate(examples):
        if not isinstance(example, dict):
            kind = KINDS.get(type(example), "Number")
            raise InvalidInput(f"Example must be JSON object but got JSON {kind} at item {index}")
    return [{**context, **example} for example in examples] if context else examples


def _feature(name: str, binding: Binding, examples: Sequence[Example]) -> Tensor:
    """Returns one feature of all examples as a tensor [examples, *shape]."""
    if binding.encoded:
        strings = Binding(TensorSpec(binding.spec.name, BYTES_TYPE, None), binding.feature_shape[:-1])
        return decoded(binding.spec, _feature(name, strings, examples))
    datatype = binding.spec.datatype
    default = None if binding.default is None else _values(binding.default)
    shape = binding.feature_shape
    rows = [_row(name, datatype, example.get(name, []), shape, default) for example in examples]
    lengths = set(map(len, rows))
    if len(lengths) > 1:
        raise InvalidInput(f"Key: {name}. Examples have different numbers of values: {sorted(lengths)[:8]}")
    flat = [value for row in rows for value in row]
    if datatype is BOOL:
        flat = [bool(value) for value in flat]
    elif not (datatype.is_float or datatype is BF16 or datatype.is_bytes):
        flat = [int(value) for value in flat]  # true and false are 1 and 0
    return Tensor(binding.spec.name, datatype, elements(flat, datatype).reshape(len(rows), *_known(shape, *lengths)))


def _values(default: Tensor) -> list[Any]:
    array = default.array.reshape(-1)
    values: list[Any] = (bf16_to_float(array) if default.datatype is BF16 else array).tolist()
    return values


def _known(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Returns `shape` with its variable axis set so that it has `count` elements."""
    fixed = math.prod(size for size in shape if size != -1)
    return tuple(count // fixed if size == -1 else size for size in shape)


def _row(name: str, datatype: DataType, value: Any, shape: tuple[int, ...], default: list[Any] | None) -> list[Any]:
    """Returns one example's values of a feature. Checks everything but their range."""
    values = value if isinstance(value, list) else [value]
    if not values:
        if default is None:
            raise InvalidInput(
                f"Feature: {name} (data type: {type_name(datatype)}) is required but could not be found."
            )
        return default
    kind = _kind(name, values, INTEGER_OR_FLOAT if datatype.is_float or datatype is BF16 else {})
    if kind not in _fitting(datatype):
        raise InvalidInput(
            f"Key: {name}. Data types don't match. Data type: {kind} but expected type: {type_name(datatype)}"
        )
    expected = math.prod(size for size in shape if size != -1)
    if len(values) % expected if -1 in shape and expected else len(values) != expected:
        raise InvalidInput(
            f"Key: {name}. Number of {kind} values != expected. "
            f"Values size: {len(values)} but output shape: {list(shape)}"
        )
    return values


def _kind(name: str, values: Sequence[Any], widened: Mapping[str, str]) -> str:
    """Returns the one kind of all values. `widened`: kinds that count as another. Raises InvalidInput."""
    first = ""
    for value in values:
        kind = BYTES if is_binary(value) else KIND_OF.get(type(value), "")
        kind = widened.get(kind, kind)
        if not kind:
            raise InvalidInput(
                f"Feature: {name} has element with unexpected JSON type: {KINDS.get(type(value), 'Number')}"
            )
        first = first or kind
        if kind != first:
            raise InvalidInput(f"Unexpected element type in feature: {name} expecting type: {first}")
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidInput(f"Feature: {name} has {quoted(value)}: Only int64_t is supported")
    return first


def _fitting(datatype: DataType) -> tuple[str, ...]:
    if datatype.is_bytes:
        return (BYTES,)
    return (FLOAT,) if datatype.is_float or datatype is BF16 else (INT64,)
