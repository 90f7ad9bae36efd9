"""The common parts of all requests with a body under /v1: the JSON document, the model they name, the signature."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from core.dialects.v1.path import ref
from core.encoding import jsonio, simd
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput
from core.operations import Deferred, Explain, Infer, ModelRef, ModelSpec
from core.signature import DEFAULT, Signature
from core.wire import Call, HttpResponse, Reply


class V1Question(NamedTuple):
    """A request's document, and what decides the form of its answer. `pinned`: its path names a version or a label."""

    document: dict[str, Any]
    non_finite: NonFinite | None
    v1_dialect: str
    pinned: bool


Bind = Callable[[V1Question, ModelSpec], tuple[Infer | Explain, Reply]]
Finish = Callable[[HttpResponse], HttpResponse]


def ask(call: Call, body: bytes | memoryview, bind: Bind, finish: Finish, *, shaped: bool) -> tuple[Deferred, Reply]:
    """Returns the question that `bind` decodes from the body once the model is known.

    If the quick reading (`shaped`) does not fit, the body is read again as lists. So a message names the first mistake
    exactly, and in the same words, for a body of any size.
    """
    document = _document(jsonio.loads_shaped if shaped else jsonio.loads_lists, body)
    options = call.request.options
    reference = ref(call)
    pinned = reference.version is not None or reference.label is not None

    def decode(spec: ModelSpec) -> tuple[Infer | Explain, Reply]:
        question = V1Question(document, options.tokens(NonFinite.BARE), spec.v1_dialect or options.v1_dialect, pinned)
        try:
            operation, reply = bind(question, spec)
        except InvalidInput:
            if not _has_arrays(document):
                raise
            operation, reply = bind(question._replace(document=_document(jsonio.loads_lists, body)), spec)
        return operation, lambda result: finish(reply(result))

    return Deferred(reference, decode), finish


def _has_arrays(document: dict[str, Any]) -> bool:
    """Decides whether the quick reading made arrays. It does so down to a list of objects (`loads_shaped`)."""
    level = list(document.values())
    for _ in range(3):
        if any(isinstance(value, np.ndarray) for value in level):
            return True
        level = [member for value in level for member in _members(value)]
    return False


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        return value[: simd.FEW_MEMBERS]
    return value.values() if isinstance(value, dict) else ()


def _document(loads: Callable[[bytes | memoryview], Any], body: bytes | memoryview) -> dict[str, Any]:
    try:
        document = loads(body)
    except jsonio.NotJson as error:
        if not bytes(body).strip():
            raise InvalidInput("JSON Parse error: The document is empty") from None
        raise InvalidInput(f"JSON Parse error: {error.reason} at offset: {error.offset}") from None
    except InvalidInput as error:
        raise InvalidInput(f"JSON Parse error: {error.message}") from None
    if not isinstance(document, dict):
        raise InvalidInput("Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        raise InvalidInput("'signature_name' key must be a string value.")
    return document


def find_signature(question: V1Question, spec: ModelSpec, unknown: str) -> Signature | None:
    """Returns the signature that the document names, None if the model does not declare its inputs.

    Raises InvalidInput with the text `unknown`, in which {name} is replaced.
    """
    name = question.document.get("signature_name") or DEFAULT
    if not spec.signatures and name == DEFAULT:
        return None
    if name not in spec.signatures:
        raise InvalidInput(unknown.format(name=name[:256]))
    return spec.signatures[name]


def pin(spec: ModelSpec) -> ModelRef:
    """Returns a reference to the version whose spec decoded the tensors: by now another may be the newest."""
    return ModelRef(spec.name, spec.version)
