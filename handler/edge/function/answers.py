"""A function's answers: JSON documents in the form of the event that they answer, and how large these may be."""

import base64
import json
from typing import Any, Final

import orjson

from core.errors import TooLarge
from core.wire import HttpResponse
from handler.edge.function.members import EventForm, form_of

LARGEST_RESPONSE: Final = 6_291_556
"""The most bytes of a function's JSON document. With one more, the runtime ends this instance."""
LARGEST_FOR_ALB: Final = 1024 * 1024
"""The most bytes of a document that an ALB takes (AWS documentation, "Lambda functions as targets")."""
ESCAPED: Final = 7
"""The most bytes of a character in JSON, and the most that a number of JSON grows when Python writes it."""
ENVELOPE: Final = 4096
"""Room for the names of headers, and other small members."""
FEWER: Final = "ask for fewer outputs, or send smaller batches"
REMEDY: Final = "ask for fewer outputs, send smaller batches, ask for binary outputs, or accept gzip"
SERVER_TIMING: Final = "server-timing"


def timing_of(response: dict[str, Any]) -> str:
    """Returns Server-Timing from Mangum's response. Responses for some load balancers have header values in lists."""
    value = response.get("headers", response.get("multiValueHeaders", {})).get(SERVER_TIMING, "")
    return "".join(value)


def plain(response: HttpResponse, timing: str, event: Any) -> dict[str, Any]:
    """Returns an answer in the event's form."""
    body = b"".join(response.parts)
    is_text = body.isascii() and b"\0" not in body  # gRPC-Web's frames hold lengths in bytes
    headers = {name.decode(): value.decode() for name, value in response.headers}
    headers |= {SERVER_TIMING: timing} if timing else {}
    in_lists = form_of(event) is EventForm.ALB and event.get("multiValueHeaders") is not None
    lists = {name: [text] for name, text in headers.items()} if in_lists else None  # the balancer reads only these
    return {
        "statusCode": response.status,
        "headers": headers,
        **({} if lists is None else {"multiValueHeaders": lists}),
        "body": body.decode() if is_text else base64.b64encode(body).decode(),
        "isBase64Encoded": not is_text,
    }


def too_large(response: dict[str, Any], form: EventForm) -> TooLarge | None:
    """Returns the refusal of an answer that its caller cannot get, None for one that it can. `form`: the event's."""
    limit = LARGEST_FOR_ALB if form is EventForm.ALB else LARGEST_RESPONSE
    body: str = response.get("body") or ""
    headers = sum(map(len, (response.get("headers") or {}).values()))
    if ESCAPED * (len(body) + headers) < limit - ENVELOPE:
        return None
    return _refusal(_size(response), limit)


def too_large_alone(response: dict[str, Any]) -> TooLarge | None:
    """Returns the same for an answer whose caller gets the document in its body, without HTTP."""
    text: str = response.get("body") or ""
    if ESCAPED * len(text) < LARGEST_RESPONSE or response.get("isBase64Encoded"):
        return None
    return _refusal(_size(orjson.loads(text)), LARGEST_RESPONSE, FEWER)


def _refusal(size: int, limit: int, remedy: str = REMEDY) -> TooLarge | None:
    if size <= limit:
        return None
    return TooLarge(f"the answer has {size} bytes as Lambda counts them; at most {limit} are possible: {remedy}")


def _size(document: Any) -> int:
    """Returns the bytes of a document as Lambda's runtimes write it."""
    return len(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
