"""Lambda's Runtime API, version 2018-06-01, over one kept connection: events come, answers and errors go.

Sources: AWS documentation, "Using the Lambda runtime API for custom runtimes" and "Building a custom runtime" (response
streaming, Managed Instances); awslambdaric 4.2 for the texts and headers of errors.
"""

import base64
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from typing import Any, Final

VERSION: Final = "/2018-06-01/runtime"
JSON: Final = "application/json"
ERROR_TYPE: Final = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY: Final = "Lambda-Runtime-Function-Error-Body"
STREAM: Final = {
    "Lambda-Runtime-Function-Response-Mode": "streaming",
    "Content-Type": "application/vnd.awslambda.http-integration-response",
    "Transfer-Encoding": "chunked",
    "Trailer": f"{ERROR_TYPE}, {ERROR_BODY}",
}
"""The headers of an answer in pieces, to a sender that makes HTTP of it."""
OK: Final = 200
ACCEPTED: Final = 202


class RuntimeApiError(Exception):
    """The Runtime API cannot be reached, or refuses a request."""


class EventContext:
    """The context of one event. Its members have the names that Lambda's own runtime gives them.

    `trace`: X-Ray's header. `alone`: the process has no other event meanwhile. `stream`: its ResponseStream.
    """

    def __init__(self, headers: HTTPMessage | Mapping[str, str]) -> None:
        """Raises RuntimeApiError for an event without an id or a deadline."""
        try:
            self.aws_request_id: str = headers["Lambda-Runtime-Aws-Request-Id"]
            self._end_ms = int(headers["Lambda-Runtime-Deadline-Ms"])
        except (KeyError, TypeError, ValueError):
            raise RuntimeApiError("the event has no Lambda-Runtime-Aws-Request-Id or -Deadline-Ms") from None
        self.invoked_function_arn = headers.get("Lambda-Runtime-Invoked-Function-Arn")
        self.tenant_id = headers.get("Lambda-Runtime-Aws-Tenant-Id")
        self.trace: str | None = headers.get("Lambda-Runtime-Trace-Id")
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME")
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION")
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        number = headers.get("Lambda-Runtime-Invocation-Id")
        self.echoed = {} if number is None else {"Lambda-Runtime-Invocation-Id": number}
        self.alone = True
        self.stream: Any = None

    def get_remaining_time_in_millis(self) -> int:
        """Returns the milliseconds until Lambda ends the function, 0 after that."""
        return max(0, self._end_ms - int(time.time() * 1000))


class RuntimeApi:
    """One connection, for one thread. `address`: AWS_LAMBDA_RUNTIME_API. All methods raise RuntimeApiError."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection = HTTPConnection(address)

    def next(self) -> tuple[bytes, EventContext]:
        """Waits for the next event, without a limit: Lambda freezes the instance meanwhile. Returns it as JSON."""
        headers, body = self._call("GET", "/invocation/next", OK)
        return body, EventContext(headers)

    def answer(self, context: EventContext, document: Any) -> None:
        """Sends a function's document."""
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        path = f"/invocation/{context.aws_request_id}/response"
        self._call("POST", path, ACCEPTED, body, {"Content-Type": JSON, **context.echoed})

    def fail(self, context: EventContext, kind: str, message: str) -> None:
        """Says that the function has failed."""
        path = f"/invocation/{context.aws_request_id}/error"
        self._error(path, kind, error_document(kind, message, context.aws_request_id), context.echoed)

    def init_error(self, kind: str, message: str) -> None:
        """Reports that the function cannot start: its import, or a hook before the snapshot, failed."""
        self._error("/init/error", kind, error_document(kind, message))

    def restore_next(self) -> None:
        """Has the snapshot taken. Returns in an instance that was made from it. The connection is a new one then."""
        self._call("GET", "/restore/next", OK)
        self._connection.close()

    def restore_error(self, kind: str, message: str) -> None:
        """Says that a hook after the restore has failed."""
        self._error("/restore/error", kind, error_document(kind, message))

    def begin_stream(self, context: EventContext) -> socket.socket:
        """Begins an answer in pieces. Returns the socket that takes them, chunk by chunk (RFC 9112 7.1)."""
        connection = self._connection
        try:
            self._refresh()
            connection.putrequest("POST", f"{VERSION}/invocation/{context.aws_request_id}/response")
            for name, value in (STREAM | context.echoed).items():
                connection.putheader(name, value)
            connection.endheaders()
        except (OSError, HTTPException) as error:
            raise self._broken("POST", "/response", error) from None
        found: socket.socket = connection.sock
        return found

    def end_stream(self) -> None:
        """Reads how the Runtime API has taken an answer in pieces, whose last chunk was sent."""
        self._read("POST", "/response", ACCEPTED, self._connection.getresponse)

    def close(self) -> None:
        """Drops the connection. The next call makes a new one."""
        self._connection.close()

    def _error(self, path: str, kind: str, document: Mapping[str, Any], more: Mapping[str, str] | None = None) -> None:
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        self._call("POST", path, ACCEPTED, body, {"Content-Type": JSON, ERROR_TYPE: token(kind), **(more or {})})

    def _call(
        self, method: str, path: str, expected: int, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[HTTPMessage, bytes]:
        return self._read(method, path, expected, lambda: self._ask(method, VERSION + path, body, headers or {}))

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        """Sends a request, and an answer again if the connection was closed while the function worked."""
        self._refresh()
        is_kept = method == "POST" and self._connection.sock is not None
        try:
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except ConnectionError:
            if not is_kept:
                raise
            self._connection.close()
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()

    def _read(
        self, method: str, path: str, expected: int, ask: Callable[[], HTTPResponse]
    ) -> tuple[HTTPMessage, bytes]:
        try:
            answer = ask()
            body = answer.read()
        except (OSError, HTTPException) as error:
            raise self._broken(method, path, error) from None
        if answer.status != expected:
            raise RuntimeApiError(f"{method} {path}: status {answer.status}: {body[:256]!r}")
        return answer.headers, body

    def _broken(self, method: str, path: str, error: Exception) -> RuntimeApiError:
        self._connection.close()
        return RuntimeApiError(f"{method} {path} at {self.address}: {type(error).__name__}: {error}")

    def _refresh(self) -> None:
        """Drops a connection that was closed while the function worked: a kept one has nothing to read."""
        found: socket.socket | None = self._connection.sock
        if found is None:
            return
        try:
            found.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._connection.close()


def token(kind: str) -> str:
    """Returns an error's type as a header can hold it."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in kind[:256])


def error_document(kind: str, message: str, request_id: str = "") -> dict[str, Any]:
    """Returns an error in Lambda's form. Its stack stays in the log."""
    return {"errorMessage": message, "errorType": kind, "requestId": request_id, "stackTrace": []}


def trailers(kind: str, message: str, request_id: str) -> bytes:
    """Returns the trailers of an answer in pieces that ends with an error."""
    document = json.dumps(error_document(kind, message, request_id), ensure_ascii=False)
    body = base64.b64encode(document.encode("utf-8", "replace"))
    return b"%b: %b\r\n%b: %b\r\n" % (ERROR_TYPE.encode(), token(kind).encode(), ERROR_BODY.encode(), body)
