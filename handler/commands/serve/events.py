"""API Gateway's events of an HTTP request, and its answers from a function's: REST APIs, and HTTP APIs (payload 2.0).

Sources: AWS documentation, "Set up Lambda proxy integrations in API Gateway", "Working with AWS Lambda proxy
integrations for HTTP APIs".
"""

import base64
import binascii
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from core.records import NamedTuple
from core.wire import JSON

HOP: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade"))
TEXTS: Final = ("text/", "application/json", "application/javascript", "application/xml")
"""Content types of bodies that an HTTP API passes as text. A REST API of the template takes every body for binary."""


class Came(NamedTuple):
    """A request. `path`: below the stage, not decoded. `peer`: the client's address."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    peer: str
    stage: str


class Goes(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class WrongAnswer(Exception):
    """The function's result is not an answer for its integration."""


def _headers(came: Came) -> list[tuple[str, str]]:
    kept = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in came.headers if name not in HOP]
    trace = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]}"
    added = (("x-forwarded-for", came.peer), ("x-forwarded-port", "443"), ("x-forwarded-proto", "https"))
    return [*kept, *added, ("x-amzn-trace-id", trace)]


def _body(came: Came, *, binary: bool) -> tuple[str | None, bool]:
    if not came.body:
        return None, False
    if not binary:
        try:
            return came.body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(came.body).decode(), True


def rest(came: Came) -> dict[str, Any]:
    """Returns a REST API's event."""
    many: dict[str, list[str]] = {}
    for name, value in _headers(came):
        many.setdefault(name.title(), []).append(value)
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(came.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    body, encoded = _body(came, binary=True)
    context = _context(came, came.headers) | {
        "resourceId": "123456",
        "resourcePath": "/{proxy+}",
        "httpMethod": came.method,
        "path": f"/{came.stage}{came.path}",
        "protocol": "HTTP/1.1",
        "requestTimeEpoch": int(time.time() * 1000),
        "identity": {"sourceIp": came.peer, "userAgent": _header(came.headers, b"user-agent")},
    }
    return {
        "resource": "/{proxy+}",
        "path": came.path,
        "httpMethod": came.method,
        "headers": {name: values[-1] for name, values in many.items()},
        "multiValueHeaders": many,
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "pathParameters": {"proxy": came.path.lstrip("/")},
        "stageVariables": None,
        "requestContext": context,
        "body": body,
        "isBase64Encoded": encoded,
    }


def http(came: Came) -> dict[str, Any]:
    """Returns an HTTP API's event, payload 2.0."""
    joined: dict[str, str] = {}
    for name, value in _headers(came):
        if name != "cookie":
            joined[name] = f"{joined[name]},{value}" if name in joined else value
    query: dict[str, str] = {}
    for name, value in parse_qsl(came.query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in query else value
    cookies = [value.decode("latin-1") for name, value in came.headers if name == b"cookie"]
    kind = _header(came.headers, b"content-type") or ""
    body, encoded = _body(came, binary=not kind.startswith(TEXTS))
    path = unquote(came.path)
    said = {
        "method": came.method,
        "path": path,
        "protocol": "HTTP/1.1",
        "sourceIp": came.peer,
        "userAgent": _header(came.headers, b"user-agent") or "",
    }
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": came.query,
        "headers": joined,
        "requestContext": _context(came, came.headers)
        | {"http": said, "routeKey": "$default", "timeEpoch": int(time.time() * 1000)},
        "isBase64Encoded": encoded,
    }
    optional = {"body": body, "queryStringParameters": query, "cookies": cookies}
    return event | {name: value for name, value in optional.items() if value}


def _context(came: Came, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "accountId": "000000000000",
        "apiId": "local",
        "stage": came.stage,
        "domainName": _header(headers, b"host"),
        "domainPrefix": "local",
        "requestId": str(uuid.uuid4()),
    }


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for each, value in headers if each == name), None)


def answer(found: Any, *, is_http: bool) -> Goes:
    """Returns a function's answer as HTTP. Raises WrongAnswer."""
    if not isinstance(found, dict) or "statusCode" not in found:
        if not is_http:
            raise WrongAnswer("it has no statusCode")
        return Goes(200, (JSON,), json.dumps(found).encode())  # as an HTTP API treats any other value
    try:
        status, headers = int(found["statusCode"]), [*_lines(found)]
        text = found.get("body") or ""
        body = base64.b64decode(text) if found.get("isBase64Encoded") else text.encode()
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise WrongAnswer(str(error)) from None
    headers += [(b"set-cookie", each.encode("latin-1")) for each in found.get("cookies") or ()]
    return Goes(status, tuple(headers), body)


def _lines(found: Mapping[str, Any]) -> Iterable[tuple[bytes, bytes]]:
    many = {name.lower(): values for name, values in (found.get("multiValueHeaders") or {}).items()}
    single = {name.lower(): [value] for name, value in (found.get("headers") or {}).items()}
    for name, values in (single | many).items():
        if name != "content-length":
            for value in values:
                yield name.encode("latin-1"), str(value).encode("latin-1")
