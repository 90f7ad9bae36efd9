"""A platform's inference route: the body's type decides how it is read, Accept how it is answered.

JSON is the Open Inference Protocol's if its inputs have datatypes, else one of `bodies.KINDS`. Tensors behind JSON come
with Inference-Header-Content-Length, or, through SageMaker, which passes no such header on, with Triton's content type.
Sources: SageMaker's "Use your own inference code with hosting services"; Triton's sagemaker_server.cc and
vertex_ai_server.cc.
"""

import re
from functools import partial
from typing import Any, Final

from core.dialects.platforms import bodies, replies
from core.dialects.platforms.replies import AS_JSON, AS_LINES, AS_NPY, by_rows, wanted
from core.dialects.v1 import predict, request
from core.dialects.v1.request import V1Question, Verb
from core.dialects.v2 import infer
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.encoding.values import Inexact
from core.errors import shown
from core.operations import Deferred, Infer, ModelRef, ModelSpec
from core.signature import DEFAULT
from core.tensor import Tensor
from core.wire import Call, HttpResponse, Reply, UnsupportedType

TRITON: Final = "application/vnd.sagemaker-triton.binary+json"
TRITON_ON_VERTEX: Final = "application/vnd.vertex-ai-triton.binary+json"
WITH_TENSORS: Final = (TRITON, TRITON_ON_VERTEX)
HEAD_SIZE: Final = "json-header-size"
ATTRIBUTES: Final = b"x-amzn-sagemaker-custom-attributes"
"""A header that a client's words travel in. Ours are those of SageMaker's container for TensorFlow Serving."""
MODEL, VERSION = "tfs-model-name", "tfs-model-version"
BINARY: Final = "application/octet-stream"
UNTYPED: Final = frozenset(("", "application/x-www-form-urlencoded", BINARY))
"""Types that tools send without being asked: the body is read as JSON."""
FRAME: Final = re.compile(rb'\s*\{\s*"(?:dataframe_split|input_data)"')
"""Matches the start of a body whose names of columns come before its numbers, as pandas writes it."""
OBJECT: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
"""Matches the start of an object in JSON, perhaps behind a byte order mark."""
DATATYPE: Final = b'"datatype"'


def ref(call: Call) -> ModelRef:
    """Returns the model: that of the path, of the client's attributes, else the default one.

    The version of the attributes applies to each of them.
    """
    words = call.request.headers.get(ATTRIBUTES, b"").decode("latin-1")
    pairs = (word.partition("=") for word in words.split(","))
    said = {name.strip(): value.strip() for name, _, value in pairs}
    name = call.path.get("model") or said.get(MODEL, "")
    return ModelRef(name, said.get(VERSION) or None, dashed=not name)


def decode(call: Call, *, as_mlflow: bool = False) -> tuple[Infer | Deferred, Reply]:
    """Returns the question, and the function that writes its answer. Raises InvalidInput, UnsupportedType."""
    kind, parameters = _content_type(call)
    if kind in WITH_TENSORS or infer.HEADER_LENGTH in call.request.headers:
        return _binary(call, kind, parameters.get(HEAD_SIZE) if kind in WITH_TENSORS else None)
    if kind == AS_JSON or kind in UNTYPED:
        return _json(call, kind)
    form = wanted(call.request, kind if kind in replies.FORMS and not as_mlflow else AS_JSON)
    if kind in replies.FORMS:
        header = parameters.get("header", "")
        return Deferred(ref(call), partial(_read, call, kind, header, form)), _as_it_is
    raise _unsupported(kind)


def _unsupported(kind: str) -> UnsupportedType:
    expected = ", ".join((*replies.FORMS, *WITH_TENSORS))
    return UnsupportedType(f"Content-Type is {shown(kind)}; expected one of {expected}")


def _as_it_is(answer: Any) -> Any:
    return answer


def _content_type(call: Call) -> tuple[str, dict[str, str]]:
    """Returns the type, and its parameters. Names are in lower case."""
    text = call.request.headers.get(b"content-type", b"").decode("latin-1")
    kind, *rest = text.split(";")
    pairs = (word.partition("=") for word in rest)
    return kind.strip().lower(), {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def _json(call: Call, kind: str) -> tuple[Infer | Deferred, Reply]:
    """Returns the inference of V2's JSON, whose answer has one form whatever Accept says, or of another body.

    Raises UnsupportedType for bytes that do not begin as an object does.
    """
    body, non_finite = call.request.content(), call.request.options.tokens(NonFinite.BARE)
    if kind == BINARY and OBJECT.match(body) is None:
        raise _unsupported(kind)
    found = _open_inference(call, body)
    if found is not None:
        return found
    form = wanted(call.request, AS_JSON)
    verb = Verb(partial(bodies.bind, form=form), shaped=True, among_texts=FRAME.match(body) is not None)
    deferred, reply = request.ask(_at(call), body, non_finite, verb, None)
    return deferred._replace(ref=ref(call)), reply


def _at(call: Call) -> Call:
    """Returns the call with a model in its path, as those routes have it whose decoders are used here."""
    return Call(call.request, {"model": ref(call).name})


def _open_inference(call: Call, body: bytes | memoryview) -> tuple[Infer, Reply] | None:
    """Returns the inference of a body of the Open Inference Protocol, None for any other. Raises InvalidInput."""
    if DATATYPE not in bytes(body):
        return None
    document = jsonio.loads(body, infer.ARRAYS)
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, list) or not any(isinstance(each, dict) and "datatype" in each for each in inputs):
        return None
    non_finite = call.request.options.tokens(NonFinite.QUOTED)
    try:
        operation, reply = infer.from_members(document, infer.NO_BYTES, ref(call), non_finite)
    except Inexact:
        operation, reply = infer.from_members(jsonio.loads_exact(body), infer.NO_BYTES, ref(call), non_finite)
    return operation, lambda result: _as_triton(reply(result), TRITON, keeps_length=True)


def _binary(call: Call, kind: str, head_size: str | None) -> tuple[Infer, Reply]:
    """Returns the inference of JSON with tensors behind it. Raises InvalidInput."""
    if head_size is None:
        operation, reply = infer.decode(_at(call))
        return operation._replace(ref=ref(call)), reply
    headers = {**call.request.headers, infer.HEADER_LENGTH: head_size.encode()}
    at = _at(Call(call.request._replace(headers=headers), call.path))
    operation, reply = infer.decode(at, f"content-type's {HEAD_SIZE}")
    return operation._replace(ref=ref(call)), lambda result: _as_triton(reply(result), kind)


def _as_triton(answer: HttpResponse, kind: str, *, keeps_length: bool = False) -> HttpResponse:
    """Returns an answer whose content type has the length of its JSON: SageMaker drops the header.

    `keeps_length`: the answer has the header, too, for clients that reach the server directly.
    """
    length = dict(answer.headers).get(infer.HEADER_LENGTH)
    if length is None:
        return answer
    content_type = (b"content-type", f"{kind};{HEAD_SIZE}={length.decode()}".encode())
    more = ((infer.HEADER_LENGTH, length),) if keeps_length else ()
    return answer._replace(headers=(content_type, *more))


def _read(call: Call, kind: str, header: str, form: str, spec: ModelSpec) -> tuple[Infer, Reply]:
    """Reads a body that needs the model's spec. Raises InvalidInput."""
    options = call.request.options
    question = V1Question({}, options.tokens(NonFinite.BARE), options.v1_dialect, pinned=False)
    inputs, signature = _tensors(call, kind, header, spec), spec.signatures.get(DEFAULT)
    return predict.infer_of(inputs, signature, spec), bodies.replying(signature, form, by_rows, question)


def _tensors(call: Call, kind: str, header: str, spec: ModelSpec) -> tuple[Tensor, ...]:
    body = call.request.content()
    if kind == AS_NPY:
        from core.dialects.platforms import npy  # noqa: PLC0415 - for its clients alone

        return (npy.read(body, spec),)
    if kind == AS_LINES:
        from core.dialects.platforms import lines  # noqa: PLC0415 - the same

        return lines.read(bytes(body), spec)
    from core.dialects.platforms import table  # noqa: PLC0415 - the same

    return table.read(bytes(body), spec, header)
