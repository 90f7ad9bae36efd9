"""Lambda's events: their kinds, their deadlines, and the repair of HTTP events for Mangum."""

import base64
import binascii
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import unquote_plus

from core.deadline import NEVER, Deadline, answerable, within
from core.errors import InvalidInput

GATEWAY_SECONDS: Final = 29.0
"""API Gateway waits this long for an integration, from when it took the request (its quota; HTTP APIs wait 30)."""
LONGEST_AGO: Final = 60.0
"""The most seconds since a gateway took a request. A longer time means a recorded event, or a wrong clock."""
INIT_SECONDS: Final = 9.0
"""Lambda's init phase has 10 s on demand. The interpreter and the runtime's client have used some of them before."""
LEAST_SECONDS: Final = 0.25
"""The shortest wait. A request that came too late still moves its load on a little, else no load would ever end."""
WARMERS: Final = {"serverless-plugin-warmup", "aws.events", "aws.scheduler"}


class Kind(Enum):
    HTTP = auto()
    WARM_UP = auto()
    S3 = auto()
    DIRECT = auto()


class UnsupportedEvent(Exception):
    """Raised out of the handler, so that the invoker, a retry or a dead-letter queue sees it."""


def kind_of(event: Any) -> Kind:
    """Returns an event's kind. Raises UnsupportedEvent."""
    if isinstance(event, dict):
        context = event.get("requestContext")
        if isinstance(context, dict) and ("http" in context or "elb" in context or "httpMethod" in event):
            return Kind.HTTP
        if "model_name" in event and "inputs" in event:
            return Kind.DIRECT
        if s3_objects(event):
            return Kind.S3
        if not event or event.get("source") in WARMERS or event.get("warmup") or event.get("warmer"):
            return Kind.WARM_UP
    told = ", ".join(sorted(map(str, event)))[:256] if isinstance(event, dict) else type(event).__name__
    raise UnsupportedEvent(
        f"an event with {told or 'nothing'} is not understood; supported are API Gateway (REST, HTTP), Function URL "
        "and ALB requests, S3 ObjectCreated, warm-up pings, and direct invocation with model_name and inputs"
    )


def s3_objects(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (bucket, key) of the objects that S3 created, by its notification, direct or through EventBridge."""
    try:
        if event.get("source") == "aws.s3" and event.get("detail-type") == "Object Created":
            return [(event["detail"]["bucket"]["name"], event["detail"]["object"]["key"])]
        records = event.get("Records") or ()
        return [
            (record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"]))
            for record in records
            if record.get("eventSource") == "aws:s3" and record.get("eventName", "").startswith("ObjectCreated:")
        ]
    except (KeyError, TypeError, AttributeError):
        return []


def normalised(event: Mapping[str, Any], base_path: str) -> tuple[dict[str, Any], str]:
    """Returns the HTTP event in a form that Mangum reads correctly, and the path in front of the application.

    That path is ASGI's root_path: the stage (HTTP APIs leave it in the path), or the base path of an API mapping. It
    ends at a segment's end. The body becomes bytes. Headers that break Mangum are removed: null ones, invalid hosts and
    ports. Raises InvalidInput for a body that is marked as base64 and is not base64.
    """
    body = _body(event)
    copy = {**event, "body": body, "isBase64Encoded": False}
    context = copy["requestContext"] = dict(event["requestContext"])
    for name in ("headers", "multiValueHeaders"):
        if name in event:
            copy[name] = _headers(event[name], body)
    if "http" in context:
        http = context["http"] = {"sourceIp": "", **context["http"]}
        root, http["path"] = _split(http.get("path") or "/", base_path or _stage(context))
        copy.setdefault("version", "2.0")
        return copy, root
    path = event.get("path") or "/"
    in_path = _stage(context) if event.get("version") == "1.0" else ""
    root, copy["path"] = _split(path, base_path or in_path)
    outer, inner = (context.get("path") or "").rstrip("/"), copy["path"].rstrip("/")
    if not root and outer.endswith(inner):  # a REST API names its stage here only
        root = outer.removesuffix(inner)
    return copy, root


def _stage(context: Mapping[str, Any]) -> str:
    stage = context.get("stage") or ""
    return f"/{stage}" if stage and stage != "$default" else ""


def _split(path: str, prefix: str) -> tuple[str, str]:
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return prefix, path[len(prefix) :] or "/"
    return "", path


def _body(event: Mapping[str, Any]) -> bytes:
    body = event.get("body") or b""
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not event.get("isBase64Encoded"):
        return bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"the event's body is not the base64 that it says it is: {error}") from None


def _headers(headers: Mapping[str, Any] | None, body: bytes) -> dict[str, Any]:
    return {name: value for name, value in (headers or {}).items() if not _trips(name.lower(), value, body)}


def _trips(name: str, value: Any, body: bytes) -> bool:
    """Decides whether a header, with one value or a list of them, would mislead Mangum or the application."""
    text = value[0] if isinstance(value, list) and value else value
    if not isinstance(text, str):
        return True
    if name == "host":
        port = text.partition(":")[2]
        return bool(port) and not port.isdecimal()  # [::1]:3000
    if name == "content-encoding":
        # A REST API that compresses inflates request bodies, too, and leaves the header.
        return text in ("gzip", "deflate") and not _is_compressed(body)
    return name == "x-forwarded-port" and not text.isdecimal()


def _is_compressed(body: bytes) -> bool:
    """Decides whether a body begins like gzip (RFC 1952 2.3.1) or zlib (RFC 1950 2.2). No JSON begins so."""
    return body[:2] == b"\x1f\x8b" or (body[:1] in (b"\x78", b"\x58", b"\x38") and int.from_bytes(body[:2]) % 31 == 0)


def deadline_of(event: Any, context: Any, limit: float | None) -> Deadline:
    """Returns the deadline by the function's timeout and the gateway, NEVER if neither ends the wait.

    `limit`: DRAGOMAN_PATIENCE in seconds, which stands for the gateway's limit.
    """
    remaining: Callable[[], int] | None = getattr(context, "get_remaining_time_in_millis", None)
    ends = [] if remaining is None else [answerable(remaining() / 1e3)]
    taken = _taken_ago(event)
    if limit is not None:
        ends.append(limit - (taken or 0.0))
    elif taken is not None:
        ends.append(answerable(GATEWAY_SECONDS) - taken)
    return within(max(LEAST_SECONDS, min(ends))) if ends else NEVER


def _taken_ago(event: Any) -> float | None:
    """Returns the seconds since API Gateway took the request, a cold start's included; None for other events.

    Function URLs and ALBs wait for as long as the function may run, or as they are configured to.
    """
    context = event.get("requestContext") if isinstance(event, dict) else None
    if not isinstance(context, Mapping) or "elb" in context:
        return None
    if ".lambda-url." in str(context.get("domainName", "")):
        return None
    epoch = context.get("requestTimeEpoch", context.get("timeEpoch"))  # REST APIs have the first, HTTP APIs the second
    if not isinstance(epoch, int | float):
        return None
    ago = time.time() - epoch / 1e3
    return ago if 0 <= ago <= LONGEST_AGO else 0.0
