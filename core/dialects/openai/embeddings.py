"""Embeddings in OpenAI's form: texts in, a vector for each out, by any model with such an input and output.

    {"model": name, "input": text or [text, ...], "encoding_format": "float" or "base64", "dimensions": number}

"user" and members that OpenAI does not have mean nothing here. A model is "name", "name:version" or "name:label".
Source: OpenAI's API reference, "Create embeddings".
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dialects.openai.refusals import WrongParameter
from core.dtype import FP32, INT64, NDArray
from core.encoding import jsonio, peek
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, ModelFailed, given, shown
from core.operations import Deferred, Infer, InferResult, ModelRef, ModelSpec, RequestedOutput
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec, TextTensor, as_column, objects
from core.wire import AnyReply, Call, HttpResponse, json_answer

MOST_TEXTS: Final = 2048
"""OpenAI's own limit."""
FORMATS: Final = ("float", "base64")
TOKENS: Final = "token_count"
"""The output with the tokens of each text, INT64 [n], unless the settings name another. A tokenizer step makes it."""
LEAST_LENGTH: Final = 1e-12


class EmbeddingQuestion(NamedTuple):
    """A request. `dimensions` None: as many as the model's vectors have."""

    ref: ModelRef
    texts: Sequence[str]
    encoding: str
    dimensions: int | None


class EmbeddingPlaces(NamedTuple):
    """A model's tensors for embeddings. `tokens` None: it does not count them."""

    input: TensorSpec
    output: TensorSpec
    tokens: str | None


def named(call: Call) -> ModelRef | None:
    """Returns the model that a body names before its texts, None for one that is read first.

    Raises InvalidInput, TooLarge, UnsupportedEncoding.
    """
    found = peek.member(call.request.content(), ("model",))
    return _reference(found) if found else None


def decode(call: Call) -> tuple[Deferred, AnyReply]:
    """Returns the question, to decode once the model is known. Raises InvalidInput, TooLarge, UnsupportedEncoding."""
    members = jsonio.loads(call.request.content())
    if not isinstance(members, dict):
        raise InvalidInput(f"the body is {shown(members)}; expected an object with 'model' and 'input'")
    question = EmbeddingQuestion(
        _reference(members.get("model")), _texts(members.get("input")), _encoding(members), _dimensions(members)
    )
    non_finite = call.request.options.tokens(NonFinite.NULL)

    def bind(spec: ModelSpec) -> tuple[Infer, AnyReply]:
        places = places_of(spec)
        _check_dimensions(question.dimensions, places.output.shape, spec)
        asked = [RequestedOutput(name) for name in (places.output.name, places.tokens) if name is not None]
        tensor = as_column(TextTensor(places.input.name, objects(question.texts)), places.input.shape)
        infer = Infer(ModelRef(spec.name, spec.version), (tensor,), tuple(asked))
        return infer, lambda result: _answer(result, question, spec, non_finite)

    return Deferred(question.ref, bind), lambda answer: answer


# -- the request --------------------------------------------------------------------------------------------------


def _reference(model: Any) -> ModelRef:
    """Returns the model that a text names: no name holds a colon. Digits after one are a version, others a label."""
    if not isinstance(model, str) or not model:
        raise WrongParameter("model", f"'model' is {given(model)}; expected the name of a model")
    name, colon, version = model.partition(":")
    if not name or (colon and not version):
        raise WrongParameter("model", f"'model' is {shown(model)}; expected name, name:version or name:label")
    if not colon:
        return ModelRef(name)
    return ModelRef(name, version) if version.isdecimal() else ModelRef(name, label=version)


def _texts(value: Any) -> Sequence[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise WrongParameter("input", f"'input' is {given(value)}; expected a text, or an array of texts")
    if all(isinstance(text, str) for text in texts):
        if len(texts) > MOST_TEXTS:
            raise WrongParameter("input", f"'input' has {len(texts)} texts; at most {MOST_TEXTS} are accepted")
        return texts
    wrong = next(text for text in texts if not isinstance(text, str))
    first = wrong[0] if isinstance(wrong, list) and wrong else wrong
    if type(first) is int:
        told = "'input' has numbers of tokens, which are those of another model: send the texts"
        raise WrongParameter("input", told)
    raise WrongParameter("input", f"'input' has {shown(wrong)}; expected texts")


def _encoding(members: Mapping[str, Any]) -> str:
    found = members.get("encoding_format")
    if found is not None and found not in FORMATS:
        told = f"'encoding_format' is {shown(found)}; expected {' or '.join(FORMATS)}"
        raise WrongParameter("encoding_format", told)
    return FORMATS[0] if found is None else str(found)


def _dimensions(members: Mapping[str, Any]) -> int | None:
    found = members.get("dimensions")
    if found is not None and (type(found) is not int or found < 1):
        raise WrongParameter("dimensions", f"'dimensions' is {shown(found)}; expected a whole number above 0")
    return found


# -- the model ----------------------------------------------------------------------------------------------------


def places_of(spec: ModelSpec) -> EmbeddingPlaces:
    """Returns the tensors that the settings name, else the only ones that can be meant. Raises WrongParameter."""
    inputs, outputs, said = spec.inputs or (), spec.outputs or (), spec.embeddings
    texts = [each for each in inputs if (each.name == said.input if said.input else _is_needed_text(each))]
    vectors = [each for each in outputs if (each.name == said.output if said.output else _is_vectors(each))]
    needed = [each for each in inputs if not each.optional]
    if len(texts) != 1 or len(vectors) != 1 or any(each is not texts[0] for each in needed):
        told = 'it needs one input, BYTES, and one output FP32 [n, dimensions], or "embeddings" in its settings'
        raise WrongParameter("model", f"model {shown(spec.name)} makes no embeddings: {told}")
    counted = said.tokens or TOKENS
    has_tokens = any(each.name == counted and (said.tokens or _is_counts(each)) for each in outputs)
    return EmbeddingPlaces(texts[0], vectors[0], counted if has_tokens else None)


def _is_needed_text(spec: TensorSpec) -> bool:
    return spec.datatype.is_bytes and not spec.optional


def _is_vectors(spec: TensorSpec) -> bool:
    return spec.datatype is FP32 and spec.shape is not None and len(spec.shape) == len(("texts", "dimensions"))


def _is_counts(spec: TensorSpec) -> bool:
    return spec.datatype is INT64 and spec.shape is not None and len(spec.shape) == 1


def _check_dimensions(wanted: int | None, shape: tuple[int, ...] | None, spec: ModelSpec) -> None:
    """`shape`: of the vectors, as far as it is known. Raises WrongParameter for a length that is not possible."""
    own = shape[-1] if shape else -1
    if wanted is None or wanted == own or (own < 0 and spec.embeddings.may_shorten):
        return
    has = f"model {shown(spec.name)} makes vectors of {own} dimensions" if own >= 0 else f"model {shown(spec.name)}"
    if not spec.embeddings.may_shorten:
        told = f"{has}, and its settings do not permit others" if own >= 0 else f"{has} permits no choice of them"
        raise WrongParameter("dimensions", f"'dimensions' is {wanted}; {told}")
    if wanted > own:
        raise WrongParameter("dimensions", f"'dimensions' is {wanted}; {has}")


# -- the answer ---------------------------------------------------------------------------------------------------


def _answer(
    result: InferResult, question: EmbeddingQuestion, spec: ModelSpec, non_finite: NonFinite | None
) -> HttpResponse:
    """Raises ModelFailed for outputs of another form, InvalidInput for NaN if JSON must not have it."""
    vectors = result.outputs[0].array
    if vectors.ndim != len(("texts", "dimensions")) or len(vectors) != len(question.texts):
        told = f"output {shown(result.outputs[0].name)} with shape {list(vectors.shape)}"
        count = len(question.texts)
        raise ModelFailed(f"model {shown(spec.name)} returned {told}; expected a vector for each of {count} texts")
    vectors = np.ascontiguousarray(vectors, FP32.numpy)
    if question.dimensions is not None and question.dimensions != vectors.shape[1]:
        _check_dimensions(question.dimensions, vectors.shape, spec)
        vectors = _shortened(vectors, question.dimensions)
    # A model that does not count its tokens used none as far as is known: a guess would look like a figure.
    tokens = int(result.outputs[1].array.sum()) if len(result.outputs) > 1 else 0
    body = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(_encoded(vectors, question.encoding, result.outputs[0].name, non_finite))
        ],
        "model": result.model_name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json_answer(body)


def _shortened(vectors: NDArray[Any], dimensions: int) -> NDArray[Any]:
    """Returns the first elements of each vector, at length 1."""
    found = vectors[:, :dimensions]
    length = np.linalg.norm(found, axis=1, keepdims=True)
    shorter: NDArray[Any] = np.ascontiguousarray(found / np.maximum(length, LEAST_LENGTH), FP32.numpy)
    return shorter


def _encoded(vectors: NDArray[Any], encoding: str, name: str, non_finite: NonFinite | None) -> Sequence[Any]:
    """Returns each vector as numbers, or as the base64 of little-endian floats of 32 bits."""
    if encoding == "base64":
        return [b64encode(row).decode() for row in vectors]
    return jsonio.rows(Tensor(name, FP32, vectors), non_finite)
