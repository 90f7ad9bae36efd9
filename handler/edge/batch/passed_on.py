"""The events that Lambda Web Adapter passes on to a server: each is the body of a POST to a path of its own (/events).

Source: https://awslabs.github.io/aws-lambda-web-adapter/features/non-http-events.html. The adapter sends every client's
request with a context of its gateway, and its own with none: a client that posts to the path finds nothing there.
"""

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import orjson

from core.dialects.v2.infer import HEADER_LENGTH
from core.errors import InvalidInput, ServingError, shown
from core.records import NamedTuple
from handler.edge.app import App
from handler.edge.batch.function_events import FunctionEvents
from handler.edge.exchange import Receive, Scope, Send, gather
from handler.edge.function.events import Kind, UnsupportedEvent, direct, kind_of
from handler.edge.gate.gate import INVOKED
from handler.edge.gate.origins import is_local
from handler.edge.protocols import INTERNAL

log = logging.getLogger(__name__)
GATEWAYS: Final = b"x-amzn-request-context"
FUNCTIONS: Final = b"x-amzn-lambda-context"
"""The headers that the adapter sets itself: the context of the request's gateway, null without one; the function's."""
FAILED: Final = 500
"""The status of every event that failed, so that AWS_LWA_ERROR_STATUS_CODES can name it."""
CODES: Final = "AWS_LWA_ERROR_STATUS_CODES"
LONGEST_MS: Final = 86_400_000.0
"""No function runs for a day."""


class PassedContext(NamedTuple):
    """The context of an event. `end_ms`: when the function's time ends, by the system's clock."""

    end_ms: float

    def get_remaining_time_in_millis(self) -> int:
        """Returns the milliseconds until then, 0 after that."""
        return max(0, int(min(self.end_ms - time.time() * 1e3, LONGEST_MS)))


class PassedEvents:
    """The application behind the adapter. `served`: answers all other requests."""

    def __init__(self, app: App, served: Any) -> None:
        self._app = app
        self._served = served
        self._events = FunctionEvents(app, apart=True)
        if app.settings.batch_output and not os.environ.get(CODES):
            log.warning("%s is not set: Lambda does not repeat batches that failed; set it to %d", CODES, FAILED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._is_event(scope):
            await self._served(scope, receive, send)
            return
        headers = dict(scope["headers"])
        try:
            body = await gather(headers, receive, self._app.settings.max_body_bytes, flight=self._app.flight)
            if body is None:
                return
            event = _event(body)
            kind = kind_of(event)
            if kind is Kind.DIRECT:
                status, document = await self._inferred(event, scope, receive)
            else:
                status, document = 200, await self._answer(kind, event, _context(headers))
        except (ServingError, UnsupportedEvent) as error:
            told = error.message if isinstance(error, ServingError) else str(error)
            log.warning("an event failed: %s", told)
            status, document = FAILED, orjson.dumps({"error": told})
        except Exception:
            log.exception("an event failed")
            status, document = FAILED, orjson.dumps({"error": INTERNAL})
        kept = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(document))]
        await send({"type": "http.response.start", "status": status, "headers": kept})
        await send({"type": "http.response.body", "body": document})

    def _is_event(self, scope: Scope) -> bool:
        """Decides whether the adapter itself has sent the request."""
        path = scope["path"] if scope["path"] == "/" else scope["path"].removesuffix("/")
        if scope["method"] != "POST" or path != self._app.settings.contract.events:
            return False
        headers = dict(scope["headers"])
        return headers.get(GATEWAYS) == b"null" and FUNCTIONS in headers and is_local(scope)

    async def _answer(self, kind: Kind, event: Any, context: Any) -> bytes:
        """Returns the document of an event. Raises UnsupportedEvent, ServingError."""
        if kind is Kind.HTTP:
            raise UnsupportedEvent("a gateway's event is not expected here: the adapter makes a request of it")
        try:
            return orjson.dumps(await asyncio.to_thread(self._events.answer, kind, event, context))
        except Exception:
            if kind is not Kind.QUEUE:
                raise
            log.exception("messages are sent again")  # with any other answer the queue would delete them
            return orjson.dumps(
                {"batchItemFailures": [{"itemIdentifier": each["messageId"]} for each in event["Records"]]}
            )

    async def _inferred(self, event: Any, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        """Returns the answer to a V2 inference request that is the event itself. Raises InvalidInput."""
        request = direct(event)
        path, body = request["requestContext"]["http"]["path"], request["body"].encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        asked = False
        begun: dict[str, Any] = {}
        parts: list[bytes] = []

        async def given() -> MutableMapping[str, Any]:
            nonlocal asked
            if asked:
                return await receive()
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def taken(message: MutableMapping[str, Any]) -> None:
            begun.update(message if message["type"] == "http.response.start" else {})
            parts.append(message.get("body", b""))

        inner = {**scope, "path": path, "raw_path": path.encode(), "headers": headers, INVOKED: True}
        await self._served(inner, given, taken)
        if any(name.lower() == HEADER_LENGTH for name, _ in begun["headers"]):
            raise InvalidInput("an answer to a direct invocation is JSON: do not ask for binary outputs")
        return begun["status"], b"".join(parts)


def _event(body: bytes | memoryview) -> Any:
    """Returns an event. Raises InvalidInput."""
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise InvalidInput(f"the event is {shown(bytes(body[:256]))}; expected JSON") from None


def _context(headers: Mapping[bytes, bytes]) -> PassedContext | None:
    """Returns the function's context, None without a deadline."""
    try:
        end = float(json.loads(headers[FUNCTIONS])["deadline"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return PassedContext(end) if math.isfinite(end) else None
