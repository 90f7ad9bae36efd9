"""Predict under /v1: TensorFlow Serving's rows and columns, and KServe's "inputs" that are rows.

{"instances": [...]} are rows, one per example: a value or nested list for the only input, or an object of them by name.
{"inputs": {name: tensor}} are columns, whole tensors; the only input may come without its name. KServe reads a list
under "inputs" as rows. A list of objects can only be rows. A plain list is the same tensor either way, and its answer
has both protocols' keys, unless the request can only be TensorFlow Serving's or a setting chooses the protocol.
Sources: TF Serving's RESTful API page, json_tensor.h; KServe's V1 protocol page.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dialects.v1.answer import Output, columns, named, rows
from core.dialects.v1.inputs import are_rows, check_renamed, from_inputs, from_rows
from core.dialects.v1.request import V1Question, find_signature
from core.encoding import jsonio, long_json
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, ModelFailed
from core.operations import Explain, ExplainResult, Infer, InferResult, ModelRef, ModelSpec, RequestedOutput
from core.signature import Signature
from core.tensor import Tensor
from core.wire import JSON, HttpResponse, Reply, json_answer

BOTH: Final = ("predictions", "outputs")
NO_SIGNATURE: Final = 'Serving signature name: "{name}" not found in signature def'


def predict(question: V1Question, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Binds a request to the model's signature. Returns the inference and the function that writes its answer.

    The answer is {"predictions": rows}, {"outputs": columns} or both. `question.document` holds shapes as described at
    `from_rows` and `from_columns`. Raises InvalidInput with TF Serving's messages; so does the written answer.
    """
    signature, inputs, keys = _read(question, spec)

    def reply(result: InferResult) -> HttpResponse:
        outputs = named(result.outputs, signature)
        if keys == BOTH:
            return HttpResponse(200, (JSON,), _both(outputs, question))
        answer = {key: _FORMS[key](outputs, question.non_finite) for key in keys}
        return json_answer(answer)

    return infer_of(inputs, signature, spec), reply


def bound(question: V1Question, spec: ModelSpec) -> tuple[Infer, Signature | None]:
    """Binds a request as `predict` does. Returns the inference, and the signature that names its outputs."""
    signature, inputs, _ = _read(question, spec)
    return infer_of(inputs, signature, spec), signature


def explain(question: V1Question, spec: ModelSpec) -> tuple[Explain, Reply]:
    """Binds a request as `predict` does. The answer is {"predictions": rows, "explanations": one object per example}.

    Raises InvalidInput as `predict` does; writing the answer raises ModelFailed for values that JSON cannot carry.
    Source: KServe's V1 protocol page, "Explain".
    """
    signature, inputs, _ = _read(question, spec)

    def reply(result: ExplainResult) -> HttpResponse:
        predictions = rows(named(result.inferred.outputs, signature), question.non_finite)
        non_finite = question.non_finite or NonFinite.NULL
        try:
            explanations = [_written(members, non_finite) for members in result.explanations]
            body = jsonio.dumps({"predictions": predictions, "explanations": explanations})
        except (TypeError, RecursionError) as error:
            raise ModelFailed(f"model {spec.name!r}: explain returned what JSON cannot carry: {error}") from error
        return HttpResponse(200, (JSON,), (body,))

    return Explain(infer_of(inputs, signature, spec)), reply


def _written(value: Any, non_finite: NonFinite) -> Any:
    """Returns a value of an explanation for `dumps`, which would write null for any NaN. Raises RecursionError."""
    if isinstance(value, Mapping):
        return {key: _written(each, non_finite) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each, non_finite) for each in value]
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return jsonio.numbers(np.array(value, np.float64), non_finite)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return jsonio.numbers(value, non_finite)
    return long_json.text(value) if isinstance(value, str) else value


def infer_of(inputs: tuple[Tensor, ...], signature: Signature | None, spec: ModelSpec) -> Infer:
    """Returns the inference of the version whose spec decoded the tensors: by now another may be the newest.

    Raises InvalidInput.
    """
    if signature is None:
        return Infer(ModelRef(spec.name, spec.version), inputs)
    if signature.renames:
        check_renamed(inputs, signature.inputs or {}, spec)
    wanted = dict.fromkeys([binding.spec.name for binding in signature.outputs.values()])
    return Infer(ModelRef(spec.name, spec.version), inputs, tuple([RequestedOutput(name) for name in wanted]))


def _both(outputs: Sequence[Output], question: V1Question) -> tuple[bytes, ...]:
    """Returns "predictions" for KServe's clients and "outputs" for TF Serving's; the former only if there are rows.

    A single output is the same under both keys, and its digits are found once.
    """
    by_columns = jsonio.dumps(columns(outputs, question.non_finite))
    try:
        by_rows = by_columns if _is_one(outputs) else jsonio.dumps(rows(outputs, question.non_finite))
    except InvalidInput:
        return b'{"outputs":', by_columns, b"}"
    return b'{"predictions":', by_rows, b',"outputs":', by_columns, b"}"


def _is_one(outputs: Sequence[Output]) -> bool:
    return len(outputs) == 1 and outputs[0].tensor.shape != ()


_FORMS: Final = {"predictions": rows, "outputs": columns}


def _read(question: V1Question, spec: ModelSpec) -> tuple[Signature | None, tuple[Tensor, ...], tuple[str, ...]]:
    """Returns the signature, the inputs, and the keys of the answer. Raises InvalidInput."""
    signature = find_signature(question, spec, NO_SIGNATURE)
    bindings = None if signature is None else signature.inputs
    document = question.document
    if "instances" in document:
        if "inputs" in document:
            raise InvalidInput("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
        return signature, from_rows(document["instances"], bindings), ("predictions",)
    if "inputs" not in document:
        raise InvalidInput("Missing 'inputs' or 'instances' key")
    value = document["inputs"]
    return signature, from_inputs(value, bindings), _keys(question, value)


def _keys(question: V1Question, value: Any) -> tuple[str, ...]:
    if are_rows(value):
        return ("predictions",)
    clash = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not clash or question.v1_dialect == "tfs":
        return ("outputs",)
    if question.v1_dialect == "kserve":
        return ("predictions",)
    return ("outputs",) if question.pinned or "signature_name" in question.document else BOTH
