"""GRPS's inference over HTTP: JSON or bytes in; JSON, bytes, or a stream of either out.

The query may have `model`, `streaming` and `return-ndarray`. Messages of a stream follow each other without separators,
as GRPS's servers send them. Source: GRPS's interface document.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final
from urllib.parse import parse_qsl

from core.dialects.grps import json_read
from core.dialects.grps.content import Binary, Content, GrpsQuestion
from core.dialects.grps.inputs import bound
from core.dialects.grps.json_write import snake, write
from core.dialects.grps.outputs import answered, as_ndarray
from core.dialects.grps.status import failure
from core.encoding import jsonio, peek
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, ServingError
from core.operations import Deferred, Infer, InferResult, ModelRef, ModelSpec, Stream
from core.records import NamedTuple
from core.wire import JSON, OCTETS, AnyReply, Call, Header, HttpRequest, HttpResponse, HttpStream

NO_TYPE: Final = "No content type in headers."
WRONG_TYPE: Final = "Unsupported content type."
EMPTY: Final = "The http body is empty."
OPTIONS: Final = ("model", "streaming", "return-ndarray")
STREAM_OF_NDARRAYS: Final = "Bad Request, err: Streaming and ret ndarray are not supported at the same time."


class Wishes(NamedTuple):
    """The options of a query."""

    model: str = ""
    streaming: bool = False
    ndarray: bool = False


def content_type(request: HttpRequest) -> bytes:
    """Returns the media type, in lower case: JSON or bytes. Raises InvalidInput for any other."""
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if not kind:
        raise InvalidInput(NO_TYPE)
    if kind not in (JSON[1], OCTETS[1]):
        raise InvalidInput(WRONG_TYPE)
    return kind


def wishes(query: bytes) -> Wishes:
    """Reads the options of a query. Raises InvalidInput if one is there twice."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    said = dict(pairs)
    for name in OPTIONS:
        if sum(name == key for key, _ in pairs) > 1:
            raise InvalidInput(f"the query has '{name}' twice")
    return Wishes(
        said.get("model", ""),
        said.get("streaming", "").lower() == "true",
        said.get("return-ndarray", "").lower() == "true",
    )


def named(call: Call) -> ModelRef | None:
    """Returns the model of a long request, None for one that is read first, or whose start does not name its model.

    Raises InvalidInput, TooLarge, UnsupportedEncoding.
    """
    request = call.request
    kind = content_type(request)
    if not request.is_long:
        return None
    wished = wishes(request.query).model
    if kind == OCTETS[1]:
        return ModelRef(wished, dashed=True)
    found = peek.member(request.content(), ("model",))
    name = wished if found == "" else found
    return ModelRef(name, dashed=True) if name else None


def decode(call: Call) -> tuple[Deferred, AnyReply]:
    """Returns the question, to decode once the model is known. Raises InvalidInput, TooLarge, UnsupportedEncoding."""
    request = call.request
    kind = content_type(request)
    wished = wishes(request.query)
    if wished.streaming and wished.ndarray:
        raise InvalidInput(STREAM_OF_NDARRAYS)
    body = request.content()
    if not len(body):
        raise InvalidInput(EMPTY)
    question = GrpsQuestion("", Binary(body)) if kind == OCTETS[1] else json_read.read(body)
    phrasing = _Phrasing(question, request.options.tokens(NonFinite.QUOTED), ndarray=wished.ndarray)

    def bind(spec: ModelSpec) -> tuple[Infer | Stream, AnyReply]:
        infer = pinned(question.content, spec)
        return (Stream(infer), phrasing.stream) if wished.streaming else (infer, phrasing.answer)

    return Deferred(ModelRef(question.model or wished.model, dashed=True), bind), lambda answer: answer


def pinned(content: Content, spec: ModelSpec) -> Infer:
    """Returns the inference by the version whose spec decoded the tensors: by now another may be the newest."""
    return Infer(ModelRef(spec.name, spec.version), bound(content, spec))


def _failed(error: ServingError) -> bytes:
    return jsonio.dumps({"status": failure(error)})


class _Phrasing:
    """The form of one request's answers."""

    __slots__ = ("_asked", "_ndarray", "_non_finite")

    def __init__(self, question: GrpsQuestion, non_finite: NonFinite | None, *, ndarray: bool) -> None:
        self._asked = type(question.content)
        self._non_finite = non_finite
        self._ndarray = ndarray

    def answer(self, result: InferResult) -> HttpResponse:
        kind, body = self._body(result)
        return HttpResponse(200, (kind,), (body,))

    def stream(self, results: Iterable[InferResult]) -> HttpStream:
        """Returns the answers as a stream. A failure before the first message raises: no status line was sent yet."""
        rest = iter(results)
        opening = tuple(self._body(result)[1] for result in islice(rest, 1))
        return HttpStream(200, (OCTETS,), self._chunks(opening, rest), _failed)

    def _chunks(self, opening: tuple[bytes, ...], rest: Iterator[InferResult]) -> Iterator[bytes]:
        yield from opening
        try:
            for result in rest:
                yield self._body(result)[1]
        except ServingError as error:
            yield _failed(error)
        finally:
            if isinstance(rest, Generator):  # a tuple's iterator has nothing to close
                rest.close()

    def _body(self, result: InferResult) -> tuple[Header, bytes]:
        content = as_ndarray(result.outputs) if self._ndarray else answered(result.outputs, self._asked)
        if isinstance(content, Binary):
            return OCTETS, bytes(content.data)
        return JSON, write(content, snake, self._non_finite)
