"""The ends of each protocol's answers, after success or failure: Connect's JSON errors and last messages, and trailers.

Sources: the Connect protocol's "Error and EndStreamResponse"; gRPC's PROTOCOL-WEB.md "Message framing", and
PROTOCOL-HTTP2.md "Status-Message" on percent-encoding. `own_id` is the id that the client has sent, b"" without one.
"""

from typing import Any, Final
from urllib.parse import quote_from_bytes

from core.dialects.connect import details
from core.dialects.connect.codes import EdgeError, code_of, number_of
from core.dialects.connect.envelopes import framed
from core.encoding import jsonio
from core.errors import ServingError
from core.wire import JSON, Header, HttpResponse, headers_of

END_STREAM: Final = 2
TRAILERS: Final = 128
SUCCESS: Final[tuple[Header, ...]] = ((b"grpc-status", b"0"),)
LONGEST_DETAILS: Final = 1300
"""Bytes of an error's text in trailers. Percent-encoding makes three times as many, and clients of gRPC accept 8 kB."""
PLAIN: Final = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
"""Characters that are not escaped in a Status-Message, beside letters, digits, _, ., - and ~: %x20-%x7E except %."""


def refusal(error: ServingError, own_id: bytes = b"") -> HttpResponse:
    """Returns the whole refusal of a unary Connect method."""
    status = error.status if isinstance(error, EdgeError) else 0
    more = error.headers if isinstance(error, EdgeError) else ()
    headers = (JSON, *more, *headers_of(error))
    return HttpResponse(status or code_of(error).status, headers, (jsonio.dumps(_error(error, own_id)),))


def end_stream(error: ServingError | None, own_id: bytes = b"") -> bytes:
    """Returns the last envelope of a Connect stream."""
    if error is None:
        return framed(b"{}", END_STREAM)
    last: dict[str, Any] = {"error": _error(error, own_id)}
    if metadata := headers_of(error):
        last["metadata"] = {name.decode(): [value.decode()] for name, value in metadata}
    return framed(jsonio.dumps(last), END_STREAM)


def trailers(error: ServingError | None, own_id: bytes = b"") -> bytes:
    """Returns the last envelope of a gRPC-Web answer."""
    return framed(b"".join(b"%b: %b\r\n" % line for line in status(error, own_id)), TRAILERS)


def status(error: ServingError | None, own_id: bytes = b"", *, native: bool = False) -> list[Header]:
    """Returns gRPC's trailers. `native`: they are headers indeed, which clients limit."""
    if error is None:
        return [*SUCCESS]
    text, number = short(error) if native else error.message, number_of(error)
    message = quote_from_bytes(text.encode(), PLAIN).encode()
    found = [(b"grpc-status", b"%d" % number), (b"grpc-message", message), *headers_of(error)]
    if own_id:
        found.append((details.BINARY, details.unpadded(details.status(number, text, own_id))))
    return found


def short(error: ServingError) -> str:
    """Returns the text of an error as far as trailers can have it."""
    return error.message.encode()[:LONGEST_DETAILS].decode(errors="ignore")


def _error(error: ServingError, own_id: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"code": code_of(error).name, "message": error.message}
    return found | {"details": details.in_json(own_id)} if own_id else found
