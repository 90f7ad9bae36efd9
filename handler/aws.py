"""The Lambda function: `handler.aws.lambda_handler`.

HTTP events go through Mangum to the same ASGI application that uvicorn serves. Everything here runs once per instance
at import (Lambda's init phase), or once per invocation.
"""

import gc

gc.disable()  # imported objects live as long as the instance: a search for garbage among them takes 6 ms of INIT

import time

BEGAN = time.monotonic()  # the init phase's seconds count from here

import asyncio
import base64
import json
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson
from mangum import Mangum

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.dialects import DIALECTS
from core.errors import ModelNotLoadable, ServingError, TooLarge
from core.wire import HttpResponse
from handler.edge.app import App
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.jobs import TIMING, Timing
from handler.edge.lambda_events import (
    INIT_SECONDS,
    Kind,
    UnsupportedEvent,
    deadline_of,
    kind_of,
    normalised,
    s3_objects,
)
from handler.edge.protocols import refuse
from handler.lifecycle.memory import keep_large_blocks
from handler.lifecycle.single_flight import Background
from handler.settings import InvalidSettings, Settings

log = logging.getLogger(__name__)
EARLY: Final = ("provisioned-concurrency", "lambda-managed-instances", "snap-start")
"""Types of initialisation that no request waits for. They may take 15 minutes, and models are warm after them."""
LARGEST_RESPONSE: Final = 6_291_556
"""The most bytes of a function's JSON document. With one more, the runtime ends this instance."""
WORTH_MEASURING: Final = LARGEST_RESPONSE // 7
"""A body of fewer characters fits even if each one is escaped to seven bytes."""
EXCHANGE: Final = "dragoman"
"""The member of an event for Mangum that holds an _Exchange."""
ENVELOPE: Final = 4096
"""Room for the document's other members: status and headers."""
SERVER_TIMING: Final = TIMING.decode()
TEXT: Final = [
    "text/",
    "application/json",  # and not application/connect+json, whose messages are in binary envelopes
    "application/grpc-web-text",
    "application/javascript",
    "application/xml",
    "application/problem+json",
    "application/x-ndjson",
    "application/openmetrics-text",
    "image/svg+xml",
]


class _Exchange:
    """The facts about an HTTP event that ASGI's scope lacks. They travel in the event for Mangum.

    `scope`: Mangum's scope, for the refusal of an answer that is too large.
    """

    __slots__ = ("deadline", "root", "scope")

    def __init__(self, root: str, deadline: Deadline) -> None:
        self.root = root
        self.deadline = deadline
        self.scope: Scope = {}


class Misconfigured:
    """Replaces the application if the settings are wrong. It refuses every request, in its protocol's format."""

    def __init__(self, reason: str) -> None:
        self._error = ModelNotLoadable(f"this server is not configured: {reason}")

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        response = refuse(self._error, scope)
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers]})
        await send({"type": "http.response.body", "body": b"".join(response.parts)})


class Function:
    """One instance of the function. `app` is None when the settings are wrong."""

    def __init__(self, settings: Settings | None = None, began: float | None = None) -> None:
        """Makes the application. `settings`: the environment's by default. `began`: the init phase's start."""
        keep_large_blocks()
        self.app: App | None = None
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        try:
            settings = settings or Settings.from_env()
            logging.getLogger().setLevel(settings.log_level)
            self._base_path = settings.base_path
            self.app = App(settings, inline=True)
            self._initialise(self.app, time.monotonic() if began is None else began)
            self._asgi: Any = self.app
        except InvalidSettings as error:
            log.error("%s", error)  # noqa: TRY400 - the message has all the facts
            self._base_path = ""
            self._asgi = Misconfigured(str(error))
        self._mangum = Mangum(self._rooted, lifespan="off", text_mime_types=TEXT)

    def _initialise(self, app: App, began: float) -> None:
        """Loads the models that the settings name, within the time of this type of initialisation."""
        how = app.settings.initialization
        short = how == "on-demand"  # the init phase is short, and a request waits for its end
        app.start(Deadline(began + INIT_SECONDS, init=True) if short else NEVER)
        if how in EARLY:
            from handler.edge import snapshots  # noqa: PLC0415 - most instances do not need it

            snapshots.watch(app) if how == "snap-start" else snapshots.warm(app)

    def close(self) -> None:
        """Ends the event loop, which an instance keeps for its whole life."""
        self._loop.close()
        asyncio.set_event_loop(None)

    async def _rooted(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: _Exchange = scope["aws.event"][EXCHANGE]
        scope["root_path"] = exchange.root  # Mangum always says ""
        scope[SCOPE_KEY] = exchange.deadline
        exchange.scope = scope
        await self._asgi(scope, receive, send)

    def __call__(self, event: Any, context: Any) -> Any:
        """Answers one event. Raises UnsupportedEvent."""
        kind = kind_of(event)
        deadline = NEVER if self.app is None else deadline_of(event, context, self.app.settings.patience)
        if kind is Kind.HTTP:
            return self._http(event, context, deadline)
        if kind is Kind.DIRECT:
            return self._direct(event, context, deadline)
        if self.app is None:
            raise UnsupportedEvent("this server is not configured: see the log of its start")
        waiting = Background(deadline)
        return self._checked(self.app, event, waiting) if kind is Kind.S3 else self._warm(self.app, waiting)

    def _http(self, event: Any, context: Any, deadline: Deadline) -> Any:
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        # Model code may have called asyncio.run(), which takes the thread's loop away.
        asyncio.set_event_loop(self._loop)
        try:
            normal, root = normalised(event, self._base_path)
        except ServingError as error:
            return _plain(DIALECTS[0].refuse(error, "", ""), self._timed(Timing()))
        exchange = normal[EXCHANGE] = _Exchange(root, deadline)
        response = self._mangum(normal, context)
        size = _document_size(response.get("body") or "")
        if size <= LARGEST_RESPONSE:
            return response
        too_large = TooLarge(
            f"the answer has {size} bytes as Lambda counts them; at most {LARGEST_RESPONSE} are possible: ask "
            "for fewer outputs, send smaller batches, ask for binary outputs, or accept gzip"
        )
        return _plain(refuse(too_large, exchange.scope), _timing_of(response))

    def _timed(self, timing: Timing) -> str:
        headers = self.app.clock.headers(timing) if self.app else ()
        return "".join(text.decode() for _, text in headers)

    def _direct(self, event: dict[str, Any], context: Any, deadline: Deadline) -> Any:
        """Answers a V2 inference request that is the event itself: its caller invokes the function without HTTP."""
        version = event.get("model_version")
        path = f"/v2/models/{event['model_name']}{f'/versions/{version}' if version else ''}/infer"
        http = {"method": "POST", "path": path, "sourceIp": ""}
        body = json.dumps(event)
        request = {"version": "2.0", "requestContext": {"http": http, "stage": "$default"}, "headers": {}, "body": body}
        response = self._http(request, context, deadline)
        if response.get("isBase64Encoded"):
            return {"error": "an answer to a direct invocation is JSON: do not ask for binary outputs"}
        return orjson.loads(response["body"])

    def _checked(self, app: App, event: dict[str, Any], waiting: Background) -> dict[str, Any]:
        """Loads the models whose objects were created, as they are now, and returns the outcome of each."""
        models = dict.fromkeys(_models(app.settings.repository, s3_objects(event)))
        checked = []
        for model in models:
            try:
                app.registry.load(model, waiting)
                checked.append({"model": model, "ready": True})
            except ServingError as error:
                log.warning("%s after an ObjectCreated event: %s", model, error.message)
                checked.append({"model": model, "ready": False, "error": error.message})
        return {"checked": checked}

    def _warm(self, app: App, waiting: Background) -> dict[str, Any]:
        ready = app.registry.ready(waiting)
        states = {version.name: version.state for version in app.registry.known()}
        return {"warm": True, "ready": ready.ready, "reason": ready.reason, "models": states}


def _models(repository: str, objects: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the models whose files are among the objects. Ignores other buckets and prefixes."""
    from handler.stores.s3.location import locate  # noqa: PLC0415 - few functions get such events

    if not repository.startswith("s3://"):
        return
    place = locate(repository, os.environ)
    for bucket, key in objects:
        name, slash, _ = key.removeprefix(place.prefix).partition("/")
        if bucket == place.bucket and key.startswith(place.prefix) and slash:
            yield name


def _timing_of(response: dict[str, Any]) -> str:
    """Returns Server-Timing from Mangum's response. Responses for some load balancers have header values in lists."""
    value = response.get("headers", response.get("multiValueHeaders", {})).get(SERVER_TIMING, "")
    return "".join(value)


def _plain(response: HttpResponse, timing: str) -> dict[str, Any]:
    body = b"".join(response.parts)
    is_text = body.isascii() and b"\0" not in body  # gRPC-Web's frames hold lengths in bytes
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return {
        "statusCode": response.status,
        "headers": headers | ({SERVER_TIMING: timing} if timing else {}),
        "body": body.decode() if is_text else base64.b64encode(body).decode(),
        "isBase64Encoded": not is_text,
    }


def _document_size(body: str) -> int:
    """Returns the bytes of the document that the runtime will make from a response's body."""
    if len(body) < WORTH_MEASURING:
        return len(body)
    return len(json.dumps(body, ensure_ascii=False).encode()) + ENVELOPE


lambda_handler = Function(began=BEGAN)
gc.freeze()
gc.enable()
