"""Classify and regress under /v1: lists of feature objects, read as TensorFlow Serving makes tf.Examples of them.

A feature is a value or a flat list: floats, integers and booleans, or strings and {"b64": text}, never mixed. "context"
holds features that all examples share; an example's own value wins. A float feature accepts integers, too, because
JavaScript writes 80.0 as 80. Sources: TF Serving's RESTful API page; its json_tensor, classifier, regressor.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from core.bounds import check_filled
from core.dialects.v1.answer import text
from core.dialects.v1.inputs import decoded
from core.dialects.v1.request import V1Question, find_signature
from core.dialects.v1.values import KINDS, elements, is_binary, length_of, quoted, type_name
from core.dtype import BF16, BOOL, DataType
from core.dtype import BYTES as BYTES_TYPE
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, shown
from core.float16 import bf16_to_float
from core.operations import Infer, InferResult, ModelRef, ModelSpec, RequestedOutput
from core.signature import Binding, Method, Signature
from core.tensor import Tensor, TensorSpec
from core.wire import HttpResponse, Reply, json_answer

NO_SIGNATURE: Final = "No signature was found with the name: {name}"
FLOAT: Final = "float"
INT64: Final = "int64"
BYTES: Final = "bytes"
KIND_OF: Final[dict[type, str]] = {float: FLOAT, int: INT64, bool: INT64, str: BYTES}
ALIKE: Final = frozenset({float, int, str})
"""The types of values that need no look one by one where all are of one type."""
INTEGER_OR_FLOAT: Final = {INT64: FLOAT}
AS_DATA_TYPE: Final = {BYTES: "string"}
"""The names of kinds as data types, if they differ."""
METHOD: Final = "tensorflow/serving/"
NOUN: Final = {Method.CLASSIFY: "classification", Method.REGRESS: "regression"}
Example = Mapping[str, Any]
OF_ELEMENT: Final = 1024
"""Bytes that count for a value from the context or a default, for each example that gets it, as a Python object."""
OF_CHARACTER: Final = 8
"""Bytes that count for each character of such a text. It is in memory as an object, as the model's copy, and in the
answer."""


def classify(question: V1Question, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Binds a request to a classify signature. The answer has, per example, the [label, score] pairs of its classes.

    Raises InvalidInput, in TF Serving's words where it has them.
    """
    context, examples = _examples(question.document, Method.CLASSIFY)
    signature = _signature(question, spec, Method.CLASSIFY)

    def reply(result: InferResult) -> HttpResponse:
        outputs = _outputs(result, signature)
        return _answer(_classes(outputs, len(examples), signature.class_labels, question.non_finite))

    return _infer(examples, context, signature, spec), reply


def regress(question: V1Question, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Binds a request to a regress signature. The answer has one number per example.

    Raises InvalidInput, in TF Serving's words where it has them.
    """
    context, examples = _examples(question.document, Method.REGRESS)
    signature = _signature(question, spec, Method.REGRESS)

    def reply(result: InferResult) -> HttpResponse:
        values = _numbers(_outputs(result, signature)["outputs"])
        shape, asked = values.array.shape, len(examples)
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):  # noqa: PLR2004 - [n] or [n, 1]
            raise InvalidInput(
                f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {list(shape)}"
            )
        if shape[0] != asked:
            raise InvalidInput(f"Input batch size did not match output batch size: {asked} vs. {shape[0]}")
        flat = values._replace(array=values.array.reshape(-1))
        return _answer(jsonio.numeric(flat, question.non_finite))

    return _infer(examples, context, signature, spec), reply


def _answer(results: Any) -> HttpResponse:
    return json_answer({"results": results})


def _signature(question: V1Question, spec: ModelSpec, method: Method) -> Signature:
    signature = find_signature(question, spec, NO_SIGNATURE)
    if signature is None or signature.method is not method:
        fitting = [name for name, other in spec.signatures.items() if other.method is method]
        told = f"those for {method} are {shown(fitting)}" if fitting else f"the model has none for {method}"
        noun, was = NOUN[method], Method.PREDICT if signature is None else signature.method
        raise InvalidInput(
            f"No {noun} inputs found in SignatureDef: Expected {noun} signature method_name to be {METHOD}{method}. "
            f"Was: {METHOD}{was}; name another with 'signature_name'; {told}"
        )
    return signature


def _infer(examples: Sequence[Example], context: Example, signature: Signature, spec: ModelSpec) -> Infer:
    inputs = tuple(_feature(name, binding, examples, context) for name, binding in (signature.inputs or {}).items())
    wanted = dict.fromkeys(binding.spec.name for binding in signature.outputs.values())
    return Infer(ModelRef(spec.name, spec.version), inputs, tuple(map(RequestedOutput, wanted)))


def _outputs(result: InferResult, signature: Signature) -> dict[str, Tensor]:
    tensors = {tensor.name: tensor for tensor in result.outputs}
    return {alias: tensors[binding.spec.name] for alias, binding in signature.outputs.items()}


def _classes(outputs: dict[str, Tensor], asked: int, known: tuple[str, ...], non_finite: NonFinite | None) -> Any:
    """Returns [label, score] pairs for so many examples. Without an output of classes the labels are the known, or "".

    Without an output of scores, each score is 0.0.
    """
    shapes = {alias: tensor.array.shape for alias, tensor in outputs.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 2:  # noqa: PLR2004 - [n, k]
        raise InvalidInput(f"Expected outputs of one shape [batch_size, num_classes] but got {shown(str(shapes))}")
    ((count, classes),) = set(shapes.values())
    if count != asked:
        alias = "scores" if "scores" in outputs else "classes"
        raise InvalidInput(f"Expected {alias} output batch size of {asked}. Got: {count}")
    if not count * classes:
        return [[]] * count
    numbers = outputs.get("scores")
    scores = [b"0.0"] * (count * classes) if numbers is None else _texts(_numbers(numbers), non_finite)
    padded = (*known, *[""] * classes)[:classes]
    labels = [jsonio.dumps(label) for label in padded] * count
    if "classes" in outputs:
        labels = [jsonio.dumps(_label(element)) for element in outputs["classes"].array.reshape(-1)]
    return _paired(labels, scores, classes)


def _texts(tensor: Tensor, non_finite: NonFinite | None) -> list[bytes]:
    flat = tensor._replace(array=tensor.array.reshape(-1))
    return jsonio.dumps(jsonio.numeric(flat, non_finite))[1:-1].split(b",")


def _paired(labels: list[bytes], scores: list[bytes], classes: int) -> Any:
    """Returns rows of [label, score], in JSON. Lists of them would take ten times as long."""
    pieces = [b""] * (4 * len(labels))
    pieces[0::4] = ([b"],[["] + [b",["] * (classes - 1)) * (len(labels) // classes)
    pieces[1::4] = labels
    pieces[2::4] = [b","] * len(labels)
    pieces[3::4] = [score + b"]" for score in scores]
    return jsonio.verbatim(b"[" + b"".join(pieces)[2:] + b"]]")


def _numbers(tensor: Tensor) -> Tensor:
    if tensor.datatype.is_bytes or tensor.datatype is BOOL:
        kind = tensor.datatype.tensorflow
        raise InvalidInput(f"Expected output {shown(tensor.name)} to be of numbers but got {kind}")
    return tensor


def _label(element: Any) -> Any:
    return text(element) if isinstance(element, bytes) else str(element)


def _examples(document: dict[str, Any], method: Method) -> tuple[Example, list[Example]]:
    """Returns the features that all examples share, and the examples with their own."""
    context = document.get("context", {})
    if not isinstance(context, dict):
        raise InvalidInput(f"{_no_object(context)} as 'context'")
    if "examples" not in document:
        raise InvalidInput(f"When method is {method}, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise InvalidInput("Expecting 'examples' value to be an list/array")
    if not examples:
        raise InvalidInput("'examples' value is an empty array")
    for index, example in enumerate(examples):
        if not isinstance(example, dict):
            raise InvalidInput(f"{_no_object(example)} at item {index}")
    return context, examples


def _no_object(value: Any) -> str:
    return f"Example must be JSON object but got JSON {KINDS.get(type(value), 'Number')}"


def _feature(name: str, binding: Binding, examples: Sequence[Example], context: Example) -> Tensor:
    """Returns one feature of all examples as a tensor [examples, *shape]."""
    if binding.encoded:
        strings = Binding(TensorSpec(binding.spec.name, BYTES_TYPE, None), binding.feature_shape[:-1])
        return decoded(binding.spec, _feature(name, strings, examples, context))
    datatype = binding.spec.datatype
    default = None if binding.default is None else _values(binding.default)
    shape = binding.feature_shape
    rows: list[Any] = [
        _row(name, datatype, example[name], shape, default) if name in example else None for example in examples
    ]
    missing = rows.count(None)
    if missing:
        shared = _row(name, datatype, context.get(name, []), shape, default)
        check_filled(missing * sum(OF_ELEMENT + OF_CHARACTER * length_of(value) for value in shared))
        rows = [shared if row is None else row for row in rows]
    lengths = set(map(len, rows))
    if len(lengths) > 1:
        raise InvalidInput(f"Key: {name}. Examples have different numbers of values: {sorted(lengths)[:8]}")
    flat = list(chain.from_iterable(rows))
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
            f"Key: {name}. Data types don't match. "
            f"Data type: {AS_DATA_TYPE.get(kind, kind)} but expected type: {type_name(datatype)}"
        )
    expected = math.prod(size for size in shape if size != -1)
    if len(values) % expected if -1 in shape and expected else len(values) != expected:
        raise InvalidInput(
            f"Key: {name}. Number of {kind} values != expected. "
            f"Values size: {len(values)} but output shape: {list(shape)}"
        )
    return values


def _kind(name: str, values: Sequence[Any], widened: Mapping[str, str]) -> str:
    """Returns the one kind of all values. Raises InvalidInput, which names the first value's own kind.

    `widened`: kinds of numbers that count as another. Booleans are not numbers.
    """
    kinds = set(map(type, values))
    if bool in kinds:
        widened = {}
    if len(kinds) == 1 and (only := kinds.pop()) in ALIKE and (only is not int or _is_int64(values)):
        return widened.get(KIND_OF[only], KIND_OF[only])
    first = ""
    for value in values:
        kind = BYTES if is_binary(value) else KIND_OF.get(type(value), "")
        if not kind:
            raise InvalidInput(
                f"Feature: {name} has element with unexpected JSON type: {KINDS.get(type(value), 'Number')}"
            )
        first = first or kind
        if widened.get(kind, kind) != widened.get(first, first):
            raise InvalidInput(f"Unexpected element type in feature: {name} expecting type: {first}")
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidInput(f"Feature: {name} has {quoted(value)}: Only int64_t is supported")
    return widened.get(first, first)


def _is_int64(values: Sequence[int]) -> bool:
    return min(values) >= -(2**63) and max(values) < 2**63


def _fitting(datatype: DataType) -> tuple[str, ...]:
    if datatype.is_bytes:
        return (BYTES,)
    return (FLOAT,) if datatype.is_float or datatype is BF16 else (INT64,)
