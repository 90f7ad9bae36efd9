"""Lambda's events: their kinds, and the repair of HTTP events for Mangum."""

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_plus

from core.errors import InvalidInput, escaped, shown
from core.records import NamedTuple
from handler.edge.function.deadlines import is_url
from handler.edge.function.members import EventForm, checked, form_of, telling

INIT_SECONDS: Final = 9.0
"""Lambda's init phase has 10 s on demand. The interpreter and the runtime's client have used some of them before."""
WARMERS: Final = ("serverless-plugin-warmup", "aws.events", "aws.scheduler")
TRIPPING: Final = ("host", "content-encoding", "x-forwarded-port", "x-forwarded-proto")
LONGEST_PORT: Final = 5


class Kind(Enum):
    HTTP = auto()
    WARM_UP = auto()
    S3 = auto()
    DIRECT = auto()
    QUEUE = auto()
    BATCH = auto()


class UnsupportedEvent(Exception):
    """Raised out of the handler, so that the invoker, a retry or a dead-letter queue sees it."""


def kind_of(event: Any) -> Kind:
    """Returns an event's kind. Raises UnsupportedEvent."""
    if isinstance(event, dict):
        context = event.get("requestContext")
        inner = context if isinstance(context, dict) else {}
        if "http" in inner or "elb" in inner or "httpMethod" in event or "rawPath" in event:
            return Kind.HTTP
        if "model_name" in event and "inputs" in event:
            return Kind.DIRECT
        if s3_objects(event):
            return Kind.S3
        if _are_messages(event.get("Records")):
            return Kind.QUEUE
        if isinstance(event.get("batch"), dict):
            return Kind.BATCH
        if not event or event.get("source") in WARMERS or event.get("warmup") or event.get("warmer"):
            return Kind.WARM_UP
    told = escaped(", ".join(sorted(map(str, event)))[:256]) if isinstance(event, dict) else type(event).__name__
    raise UnsupportedEvent(
        f"an event with {told or 'nothing'} is not understood; supported are API Gateway (REST, HTTP), Function URL "
        "and ALB requests, S3 ObjectCreated, warm-up pings, direct invocation with model_name and inputs, and with "
        "DRAGOMAN_BATCH_OUTPUT messages of SQS and batches"
    )


def _are_messages(records: Any) -> bool:
    """Decides whether all of an event's records are messages of SQS."""
    return isinstance(records, list) and bool(records) and all(map(_is_message, records))


def _is_message(record: Any) -> bool:
    if not isinstance(record, dict) or record.get("eventSource") != "aws:sqs":
        return False
    return isinstance(record.get("messageId"), str) and isinstance(record.get("body"), str)


def s3_objects(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (bucket, key) of the objects that S3 created, by its notification, direct or through EventBridge."""
    try:
        if event.get("source") == "aws.s3" and event.get("detail-type") == "Object Created":
            return [_object(event["detail"], str)]
        records = event.get("Records") or ()
        return [
            _object(record["s3"], unquote_plus)
            for record in records
            if record.get("eventSource") == "aws:s3" and record.get("eventName", "").startswith("ObjectCreated:")
        ]
    except (KeyError, TypeError, AttributeError):
        return []


def _object(named: Mapping[str, Any], decoded: Callable[[str], str]) -> tuple[str, str]:
    """Returns (bucket, key). Raises TypeError unless both are text."""
    bucket, key = named["bucket"]["name"], named["object"]["key"]
    if not isinstance(bucket, str) or not isinstance(key, str):
        raise TypeError
    return bucket, decoded(key)


def models_of(repository: str, objects: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the models whose files are among the objects. Ignores other buckets and prefixes."""
    from handler.stores.s3.location import locate  # noqa: PLC0415 - few functions get such events

    if not repository.startswith("s3://"):
        return
    place = locate(repository, os.environ)
    for bucket, key in objects:
        name, slash, _ = key.removeprefix(place.prefix).partition("/")
        if bucket == place.bucket and key.startswith(place.prefix) and slash:
            yield name


class NormalEvent(NamedTuple):
    """An HTTP event as Mangum reads it correctly. `root`: ASGI's root_path, the path in front of the application.

    It is the stage (HTTP APIs leave it in the path), or the base path of an API mapping, and ends at a segment's end.
    `raw_path`: the path below it as the gateway has passed it; some have decoded it.
    """

    event: dict[str, Any]
    root: str
    form: EventForm
    raw_path: bytes


def normalised(event: Mapping[str, Any], base_path: str) -> NormalEvent:
    """Returns the HTTP event in its normal form. The body becomes bytes.

    Invalid hosts, ports and schemes are removed, which break Mangum. Raises InvalidInput for a member that its form
    does not have, and for a body that is marked as base64 and is not base64.
    """
    form = form_of(event)
    copy = checked(event, form)
    body = copy["body"] = _body(copy)
    copy["isBase64Encoded"] = False
    copy["headers"] = _headers(copy["headers"], form, body)
    context = copy["requestContext"]
    if form is EventForm.V2:
        context.pop("elb", None)  # Mangum takes it for a load balancer's
        http = context["http"]
        root, http["path"] = _split(http["path"] or "/", base_path, _prefix(context["stage"]))
        copy["version"] = "2.0"
        return NormalEvent(copy, root, form, http["path"].encode())
    if form is EventForm.REST:
        copy.pop("version", None)
        copy.setdefault("resource", "")
    for name in ("multiValueHeaders", "multiValueQueryStringParameters"):
        if copy[name] is None:  # Mangum takes null for a member that is there
            del copy[name]
        elif name == "multiValueHeaders":
            copy[name] = _headers(copy[name], form, body)
    stage = _prefix(context["stage"]) if form is EventForm.V1 else ""
    root, copy["path"] = _split(copy["path"] or "/", base_path, stage)
    outer, inner = context["path"].rstrip("/"), copy["path"].rstrip("/")
    if not root and outer.endswith(inner):  # a REST API names its stage here only
        root = outer.removesuffix(inner)
    return NormalEvent(copy, root, form, copy["path"].encode())


def scope_of(event: Mapping[str, Any], base_path: str) -> dict[str, Any]:
    """Returns as much of ASGI's scope as the refusal of an event needs, whatever its members are."""
    form, context = form_of(event), event.get("requestContext")
    context = context if isinstance(context, dict) else {}
    http = (
        context.get("http") if form is EventForm.V2 else {"method": event.get("httpMethod"), "path": event.get("path")}
    )
    inner = http if isinstance(http, dict) else {}
    stage = context.get("stage") if form in (EventForm.V2, EventForm.V1) else ""
    texts = (each if isinstance(each, str) else "" for each in (inner.get("method"), inner.get("path"), stage))
    method, path, stage = texts
    return {"method": method, "path": _split(unquote(path), base_path, _prefix(stage))[1], "headers": telling(event)}


def direct(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the HTTP event of a direct invocation, whose body is the event itself. Raises InvalidInput."""
    name, version = event["model_name"], event.get("model_version")
    version = "" if version is None else str(version) if type(version) is int else version
    for member, value in (("model_name", name), ("model_version", version)):
        if not isinstance(value, str) or "/" in value:
            raise InvalidInput(f"{member} is {shown(value)}; expected text without a slash")
    try:
        path = f"/v2/models/{quote(name)}{f'/versions/{quote(version)}' if version else ''}/infer"
        body = json.dumps(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the event is not an inference request: {type(error).__name__}") from None
    http = {"method": "POST", "path": path, "sourceIp": ""}
    return {"version": "2.0", "requestContext": {"http": http, "stage": "$default"}, "headers": {}, "body": body}


def _prefix(stage: str) -> str:
    return f"/{stage}" if stage and stage != "$default" else ""


def _split(path: str, *prefixes: str) -> tuple[str, str]:
    """Cuts off the first prefix that the path has: an API with a mapping has its own address, with a stage, too."""
    for prefix in prefixes:
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            return prefix, path[len(prefix) :] or "/"
    return "", path


def _body(event: Mapping[str, Any]) -> bytes:
    body = event["body"]
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not event["isBase64Encoded"]:
        return bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"the event's body is not base64, as isBase64Encoded says: {error}") from None


def _headers(headers: Mapping[str, Any], form: EventForm, body: bytes) -> dict[str, Any]:
    """Returns the headers by lower-case name, without empty ones and those that would mislead."""
    kept = {name.lower(): value for name, value in headers.items() if value is not None}
    for name in TRIPPING:
        if name in kept and _trips(name, kept[name], form, body):
            del kept[name]
    return kept


def _trips(name: str, value: str | list[str], form: EventForm, body: bytes) -> bool:
    """Decides whether a header, with one value or a list of them, would mislead Mangum or the application."""
    text = value if isinstance(value, str) else ", ".join(value)
    if name == "host":
        _, colon, port = text.partition(":")
        return bool(colon) and not _is_port(port)  # [::1]:3000
    if name == "content-encoding":
        # A REST API that compresses inflates request bodies, too, and leaves the header.
        return form is EventForm.REST and text.lower() in ("gzip", "deflate") and not _is_compressed(body)
    return text not in ("http", "https") if name == "x-forwarded-proto" else not _is_port(text)


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= LONGEST_PORT


def _is_compressed(body: bytes) -> bool:
    """Decides whether a body begins like gzip (RFC 1952 2.3.1) or zlib (RFC 1950 2.2). No JSON begins so."""
    return body[:2] == b"\x1f\x8b" or (body[:1] in (b"\x78", b"\x58", b"\x38") and int.from_bytes(body[:2]) % 31 == 0)


def is_streamed(event: Mapping[str, Any]) -> bool:
    """Decides whether an HTTP event's sender can take its answer in pieces: REST APIs and Function URLs."""
    return form_of(event) is EventForm.REST or is_url(event.get("requestContext"))
