"""A function's answers: JSON documents in the form of the event that they answer, and how large these may be."""

import base64
import json
from typing import Any, Final

from core.wire import HttpResponse
from handler.edge.function.members import EventForm, form_of

LARGEST_RESPONSE: Final = 6_291_556
"""The most bytes of a function's JSON document. With one more, the runtime ends this instance."""
WORTH_MEASURING: Final = LARGEST_RESPONSE // 7
"""A body of fewer characters fits even if each one is escaped to seven bytes."""
ENVELOPE: Final = 4096
"""Room for the document's other members: status and headers."""
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


def document_size(body: str) -> int:
    """Returns the bytes of the document that the runtime will make from a response's body."""
    if len(body) < WORTH_MEASURING:
        return len(body)
    return len(json.dumps(body, ensure_ascii=False).encode()) + ENVELOPE
