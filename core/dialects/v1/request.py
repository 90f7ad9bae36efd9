"""The common parts of requests under /v1: the model that a path names, the JSON document, the signature."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np

from core.encoding import jsonio, simd
from core.encoding.jsonio import NonFinite
from core.encoding.values import Inexact
from core.errors import InvalidInput, TooMany, shown
from core.operations import Deferred, Explain, Infer, ModelRef, ModelSpec
from core.records import NamedTuple
from core.signature import DEFAULT, Signature
from core.wire import Call, HttpResponse, Reply, RouteNotFound

LARGEST_VERSION: Final = 2**63 - 1
MOST_DIGITS: Final = 80
"""The most digits, leading zeros among them: the time of Python's int() grows with the square of their number."""


class V1Question(NamedTuple):
    """A request's document, and what decides the form of its answer. `pinned`: its path names a version or a label."""

    document: dict[str, Any]
    non_finite: NonFinite | None
    v1_dialect: str
    pinned: bool


Bind = Callable[[V1Question, ModelSpec], tuple[Infer | Explain, Reply]]
Finish = Callable[[HttpResponse], HttpResponse]


class Verb(NamedTuple):
    """What a path under /v1 asks for. `shaped`: whether long arrays in its documents are worth the quick reading.

    `among_texts`: whether they are, behind an array of texts.
    """

    bind: Bind
    shaped: bool = False
    among_texts: bool = False


def ref(call: Call) -> ModelRef:
    """Returns the model, and the version or label, of a path.

    Raises RouteNotFound for a version that is not a number, InvalidInput for one beyond 64 bits.
    """
    version = call.path.get("version")
    if version is None:
        return ModelRef(call.path["model"], None, call.path.get("label"))
    if not (version.isascii() and version.isdecimal()):
        raise RouteNotFound(f"a version is a number, not {shown(version)}")
    if len(version) > MOST_DIGITS or int(version) > LARGEST_VERSION:
        raise InvalidInput(f"version {shown(version)} is beyond 64 bits")
    number = int(version)
    return ModelRef(call.path["model"], str(number), zero_is_newest=not number)


def ask(
    call: Call, body: bytes | memoryview, non_finite: NonFinite | None, verb: Verb, finish: Finish | None
) -> tuple[Deferred, Reply]:
    """Returns the question that the verb decodes from the body once the model is known.

    If the quick reading does not fit, the body is read again as lists, and then exactly if an integer has lost digits.
    So a message names the first mistake exactly, and in the same words, for a body of any size. `finish`: wraps the
    answer, None to leave it as it is.
    """
    quick = partial(jsonio.loads_shaped, among_texts=verb.among_texts)
    document = _document(quick if verb.shaped else jsonio.loads_lists, body)
    v1_dialect = call.request.options.v1_dialect
    reference = ref(call)
    pinned = reference.version is not None or reference.label is not None

    def decode(spec: ModelSpec) -> tuple[Infer | Explain, Reply]:
        question = V1Question(document, non_finite, spec.v1_dialect or v1_dialect, pinned)
        try:
            try:
                operation, reply = verb.bind(question, spec)
            except InvalidInput:
                if not _has_arrays(document):
                    raise
                operation, reply = verb.bind(question._replace(document=_document(jsonio.loads_lists, body)), spec)
        except Inexact:
            exact = _document(partial(jsonio.loads_exact, beyond_json=True), body)
            operation, reply = verb.bind(question._replace(document=exact), spec)
        return operation, reply if finish is None else lambda result: finish(reply(result))

    return Deferred(reference, decode), finish or _as_it_is


def _as_it_is(response: HttpResponse) -> HttpResponse:
    return response


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
        from core.dialects.v1.parse_errors import parse_error  # noqa: PLC0415 - for mistakes only

        raise InvalidInput(parse_error(body, error)) from None
    except TooMany:  # it is JSON
        raise
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
