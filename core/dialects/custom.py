"""Requests that a model answers itself, from the whole request to the whole answer (GRPS's customised HTTP).

The model defines the protocol. This module defines the results that it may return, and writes them as HTTP.
"""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qsl

from core.encoding import jsonio
from core.errors import InvalidInput, ModelFailed, shown
from core.operations import Custom, ModelRef
from core.records import NamedTuple
from core.wire import (
    AnyReply,
    Call,
    Header,
    HttpRequest,
    HttpResponse,
    HttpStream,
    MethodNotAllowed,
    Right,
    Route,
    Waits,
)

NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name (RFC 9110 5.6.2)."""
VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
LEAST, MOST = 200, 599
BODILESS: Final = (204, 304)
RESULT_PARTS: Final = 3
"""Status, headers, body."""
FRAMING: Final = ("connection", "content-length", "transfer-encoding")
"""Headers that describe how a body is sent; the sender sets them, so a model's are dropped."""
TYPES: Final = {bytes: "application/octet-stream", str: "text/plain; charset=utf-8"}


class Request(NamedTuple):
    """The argument of `http` in a model.py. `query`: the last value of each name. `headers`: names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


def takers(method: str, models: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the models that take a method. `models`: by name, the methods that each accepts."""
    wanted = "GET" if method == "HEAD" else method
    return [name for name, methods in models.items() if wanted in methods]


def route(method: str, path: str, models: Mapping[str, Sequence[str]]) -> Route:
    """Returns the route of a path that models have declared. `models`: by name, the methods that each accepts there.

    A model that accepts GET is asked so for HEAD. The query can name another model, which looks at the method itself.
    Raises MethodNotAllowed.
    """
    names = takers(method, models)
    if not names:
        raise not_allowed(method, path, {each for methods in models.values() for each in methods})

    def decode(call: Call) -> tuple[Custom, AnyReply]:
        request = _request(call.request)
        ref = ModelRef(request.query.get("model") or _only(path, names), dashed=True)
        if method == "HEAD":
            return Custom(ref, request._replace(method="GET")), partial(answer, is_head=True)
        return Custom(ref, request), answer

    return Route(method, path, decode, "", Waits.LONG, Right.INFER)


def not_allowed(method: str, path: str, methods: Collection[str]) -> MethodNotAllowed:
    """Returns the refusal of a method. `methods`: those of the models."""
    return MethodNotAllowed(method, path, sorted({*methods, "HEAD"} if "GET" in methods else methods))


def _request(request: HttpRequest) -> Request:
    """Raises the errors of HttpRequest.content."""
    query = dict(parse_qsl(request.query.decode("latin-1"), keep_blank_values=True))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    body = bytes(request.content())
    if headers.pop("content-encoding", None) is not None:  # the model would inflate the body again
        headers["content-length"] = str(len(body))
    return Request(request.method, request.path, query, headers, body)


def _only(path: str, models: Iterable[str]) -> str:
    first, *others = models
    if others:
        raise InvalidInput(
            f"{shown(path)} is the path of {shown([first, *others])}: name one in the query, ?model=NAME"
        )
    return first


def answer(result: Any, *, is_head: bool = False) -> HttpResponse | HttpStream:
    """Writes a model's result as HTTP: a body, or (status, headers, body). `is_head`: the edge does not send the body.

    A body is bytes, text, a value that JSON can carry, or a generator of bytes or text. It is left out if the status
    has no body (204, 304). Raises ModelFailed for anything else.
    """
    status, given, body = result if isinstance(result, tuple) and len(result) == RESULT_PARTS else (200, {}, result)
    if not isinstance(status, int) or not LEAST <= status <= MOST:  # an int: also http.HTTPStatus
        raise ModelFailed(f"http answered with the status {_named(status)}; expected {LEAST} to {MOST}")
    status = int(status)
    if status in BODILESS:
        return HttpStream(status, _headers(given), ())  # unlike a whole answer, a stream has no Content-Length
    if isinstance(body, Generator):
        headers, chunks = _headers(given, TYPES[bytes]), _chunks(body)
        if is_head:
            return HttpStream(status, headers, ())  # the body, which may have no end, is not begun
        # A failure before the first piece has its own status: no status line was sent yet.
        return HttpStream(status, headers, _begun(tuple(islice(chunks, 1)), chunks))
    if isinstance(body, str | bytes):
        return HttpResponse(status, _headers(given, TYPES[type(body)]), (_encoded(body),))
    try:
        text = jsonio.dumps(body)
    except (TypeError, ValueError) as error:
        raise ModelFailed(f"http answered with {type(body).__name__}, which JSON cannot carry: {error}") from None
    return HttpResponse(status, _headers(given, "application/json"), (text,))


def _headers(given: Any, content_type: str | None = None) -> tuple[Header, ...]:
    if not isinstance(given, Mapping):
        raise ModelFailed(f"http answered with headers {_named(given)}; expected a dict of text")
    headers = {} if content_type is None else {"content-type": content_type}
    for name, value in given.items():
        if (
            not isinstance(name, str)
            or not NAME.fullmatch(name)
            or not isinstance(value, str)
            or not VALUE.fullmatch(value)
        ):
            raise ModelFailed(f"http answered with the header {_named(name)}: {_named(value)}, which HTTP cannot carry")
        headers[name.lower()] = value.strip(" \t")  # HTTP/2 forbids blanks at the edges (RFC 9113 8.2.1)
    return tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items() if name not in FRAMING)


def _chunks(body: Generator[Any]) -> Generator[bytes]:
    try:
        for chunk in body:
            yield _encoded(chunk)
    finally:
        body.close()


def _begun(opening: tuple[bytes, ...], rest: Generator[bytes]) -> Iterator[bytes]:
    try:
        yield from opening
        yield from rest
    finally:
        rest.close()


def _encoded(chunk: Any) -> bytes:
    if not isinstance(chunk, str | bytes):
        raise ModelFailed(f"http yielded {_named(chunk)}; expected bytes or text")
    return chunk.encode(errors="replace") if isinstance(chunk, str) else chunk


def _named(value: Any) -> str:
    """Returns a value for messages. The text of an object may have a path, an address of memory or anything else."""
    is_plain = value is None or isinstance(value, str | bytes | int | float)
    return shown(value) if is_plain else f"a Python {type(value).__name__}"
