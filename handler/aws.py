"""The Lambda function: `handler.aws.lambda_handler`.

HTTP events go through Mangum to the same ASGI application that uvicorn serves. Everything here runs once per instance
at import (Lambda's init phase), or once per invocation.
"""

import gc

gc.disable()  # what importing makes lives as long as the instance: looking for garbage among it takes 6 ms of INIT

import time

BEGAN = time.monotonic()  # of which the init phase's seconds are counted

import asyncio
import base64
import json
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson
from mangum import Mangum

from core.dialects import DIALECTS
from core.errors import ModelNotLoadable, ServingError, TooLarge
from core.wire import HttpResponse
from handler.deadlines import INIT_SECONDS, Patience, of_invocation
from handler.edge.app import App, Send
from handler.edge.bodies import Receive
from handler.edge.lambda_events import Kind, UnsupportedEvent, kind_of, normalised, s3_objects
from handler.edge.protocols import Scope, refuse
from handler.edge.timing import HEADER, Timing
from handler.lifecycle.memory import keep_large_blocks
from handler.settings import InvalidSettings, Settings

log = logging.getLogger(__name__)
EARLY: Final = ("provisioned-concurrency", "lambda-managed-instances", "snap-start")
"""Types of initialisation that no request waits for: up to 15 minutes, to be loaded and warm when one comes."""
LARGEST_RESPONSE: Final = 6_291_556
"""Bytes of the JSON document that a function may answer. One more, and the runtime ends this instance."""
WORTH_MEASURING: Final = LARGEST_RESPONSE // 7
"""A body of fewer characters fits even if each one is escaped to seven bytes."""
ENVELOPE: Final = 4096
"""Room for the document's other members: status and headers."""
TIMING: Final = HEADER.decode()
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


class Misconfigured:
    """Stands in for the application when the settings are wrong, and says so to every request in a protocol's shape."""

    def __init__(self, reason: str) -> None:
        self._error = ModelNotLoadable(f"this server is not configured: {reason}")

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        response = refuse(self._error, scope)
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers]})
        await send({"type": "http.response.body", "body": b"".join(response.parts)})


class Function:
    """One instance of the function. `app` is None when the settings are wrong."""

    def __init__(self, settings: Settings | None = None, began: float | None = None) -> None:
        """`settings`: the environment's if there are none. `began`: when the init phase did, on time.monotonic."""
        keep_large_blocks()
        self.app: App | None = None
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._root = ""
        self._scope: Scope = {}
        try:
            settings = settings or Settings.from_env()
            logging.getLogger().setLevel(settings.log_level)
            self._base_path = settings.base_path
            self.app = App(settings, inline=True)
            self._initialise(self.app, time.monotonic() if began is None else began)
            self._asgi: Any = self.app
        except InvalidSettings as error:
            log.error("%s", error)  # noqa: TRY400 - the message is all there is to know
            self._base_path = ""
            self._asgi = Misconfigured(str(error))
        self._mangum = Mangum(self._rooted, lifespan="off", text_mime_types=TEXT)

    def _initialise(self, app: App, began: float) -> None:
        """Load what the settings name, as this type of initialisation leaves time for it."""
        how = app.settings.initialization
        if how == "on-demand":  # the init phase is short, and a request waits for its end
            app.registry.patience = Patience.of(began + INIT_SECONDS - time.monotonic(), init=True)
        app.start()
        app.registry.patience = None
        if how in EARLY:
            from handler.edge import snapshots  # noqa: PLC0415 - what most instances have no use for

            snapshots.watch(app) if how == "snap-start" else snapshots.warm(app)

    def close(self) -> None:
        """End what an instance keeps for its whole life."""
        self._loop.close()
        asyncio.set_event_loop(None)

    async def _rooted(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = self._root  # Mangum always says ""
        self._scope = scope
        await self._asgi(scope, receive, send)

    def __call__(self, event: Any, context: Any) -> Any:
        """Raises UnsupportedEvent."""
        kind = kind_of(event)
        if self.app is not None:
            self.app.registry.patience = of_invocation(event, context, self.app.settings.patience)
            self.app.registry.flown = None  # what an event has loaded no request has waited for
        if kind is Kind.HTTP:
            return self._http(event, context)
        if kind is Kind.DIRECT:
            return self._direct(event, context)
        if self.app is None:
            raise UnsupportedEvent("this server is not configured: see the log of its start")
        return self._checked(self.app, event) if kind is Kind.S3 else self._warm(self.app)

    def _http(self, event: Any, context: Any) -> Any:
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        # Model code may have called asyncio.run(), which takes the thread's loop away.
        asyncio.set_event_loop(self._loop)
        timing = Timing()
        try:
            normal, self._root = normalised(event, self._base_path)
        except ServingError as error:
            return _plain(DIALECTS[0].refuse(error, "", ""), self.app.timed(timing).decode() if self.app else "")
        response = self._mangum(normal, context)
        size = _document_size(response.get("body") or "")
        if size <= LARGEST_RESPONSE:
            return response
        too_large = TooLarge(
            f"the answer has {size} bytes as Lambda counts them; at most {LARGEST_RESPONSE} are possible: ask "
            "for fewer outputs, send smaller batches, ask for binary outputs, or accept gzip"
        )
        return _plain(refuse(too_large, self._scope), _timing_of(response))

    def _direct(self, event: dict[str, Any], context: Any) -> Any:
        """A V2 inference request as the event itself, for callers that invoke the function without HTTP."""
        version = event.get("model_version")
        path = f"/v2/models/{event['model_name']}{f'/versions/{version}' if version else ''}/infer"
        http = {"method": "POST", "path": path, "sourceIp": ""}
        body = json.dumps(event)
        request = {"version": "2.0", "requestContext": {"http": http, "stage": "$default"}, "headers": {}, "body": body}
        response = self._http(request, context)
        if response.get("isBase64Encoded"):
            return {"error": "an answer to a direct invocation is JSON: do not ask for binary outputs"}
        return orjson.loads(response["body"])

    def _checked(self, app: App, event: dict[str, Any]) -> dict[str, Any]:
        """Objects have been created: load the models they belong to as they now are, and say how that went."""
        models = dict.fromkeys(_models(app.settings.repository, s3_objects(event)))
        checked = []
        for model in models:
            try:
                app.registry.load(model)
                checked.append({"model": model, "ready": True})
            except ServingError as error:
                log.warning("%s after an ObjectCreated event: %s", model, error.message)
                checked.append({"model": model, "ready": False, "error": error.message})
        return {"checked": checked}

    def _warm(self, app: App) -> dict[str, Any]:
        ready = app.registry.ready()
        states = {slot.name: slot.state for slot in app.registry.known()}
        return {"warm": True, "ready": ready.ready, "reason": ready.reason, "models": states}


def _models(repository: str, objects: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The models whose files are among the objects; those of other buckets and prefixes are none of ours."""
    from handler.stores.s3.location import locate  # noqa: PLC0415 - for events that hardly any function gets

    if not repository.startswith("s3://"):
        return
    place = locate(repository, os.environ)
    for bucket, key in objects:
        name, slash, _ = key.removeprefix(place.prefix).partition("/")
        if bucket == place.bucket and key.startswith(place.prefix) and slash:
            yield name


def _timing_of(response: dict[str, Any]) -> str:
    """What Mangum's response says in Server-Timing. Some load balancers are given the values of headers in lists."""
    value = response.get("headers", response.get("multiValueHeaders", {})).get(TIMING, "")
    return "".join(value)


def _plain(response: HttpResponse, timing: str) -> dict[str, Any]:
    body = b"".join(response.parts)
    is_text = body.isascii() and b"\0" not in body  # gRPC-Web's frames hold lengths in bytes
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return {
        "statusCode": response.status,
        "headers": headers | ({TIMING: timing} if timing else {}),
        "body": body.decode() if is_text else base64.b64encode(body).decode(),
        "isBase64Encoded": not is_text,
    }


def _document_size(body: str) -> int:
    """Bytes of the document that the runtime will make of a response."""
    if len(body) < WORTH_MEASURING:
        return len(body)
    return len(json.dumps(body, ensure_ascii=False).encode()) + ENVELOPE


lambda_handler = Function(began=BEGAN)
gc.freeze()
gc.enable()
