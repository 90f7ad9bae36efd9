"""The Lambda function: `handler.aws.lambda_handler`.

HTTP events go through Mangum to the same ASGI application that uvicorn serves. Everything here runs once per instance
at import (Lambda's init phase), or once per invocation.
"""

import gc

gc.disable()  # imported objects live as long as the instance: a search for garbage among them takes 6 ms of INIT

import time

BEGAN = time.monotonic()  # the init phase's seconds count from here

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import orjson
from mangum import Mangum
from mangum.handlers import ALB, HTTPGateway

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, ServingError, TooLarge, escaped
from handler.edge import log_lines
from handler.edge.app import COMPRESS_FROM, COMPRESS_FROM_INLINE, App
from handler.edge.exchange import COMPRESS_KEY, Receive, Scope, Send
from handler.edge.gate.gate import INVOKED
from handler.edge.lambda_answers import LARGEST_RESPONSE, document_size, plain, timing_of
from handler.edge.lambda_events import (
    INIT_SECONDS,
    Kind,
    UnsupportedEvent,
    deadline_of,
    direct,
    kind_of,
    normalised,
    raw_path,
    s3_objects,
    scope_of,
)
from handler.edge.members import EventForm, form_of
from handler.edge.observe.invocations import Invocation
from handler.edge.protocols import INTERNAL, refuse
from handler.edge.timing import Timing
from handler.lifecycle.memory import keep_large_blocks
from handler.lifecycle.single_flight import Background
from handler.settings import InvalidSettings, Settings, ignored

log = logging.getLogger(__name__)
EARLY: Final = ("provisioned-concurrency", "lambda-managed-instances", "snap-start")
"""Types of initialisation that no request waits for. They may take 15 minutes, and models are warm after them."""
EXCHANGE: Final = "dragoman"
"""The member of an event for Mangum that holds an _Exchange."""
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

    `least`: bytes of an answer that are worth compressing. `scope`: Mangum's scope, for the refusal of an answer that
    is too large. `invoked`: its caller invokes the function without HTTP, which takes the permission to do so.
    `invocation`: has the request's record.
    """

    __slots__ = ("deadline", "invocation", "invoked", "least", "root", "scope")

    def __init__(self, root: str, deadline: Deadline, least: int, invocation: Invocation, *, invoked: bool) -> None:
        self.root = root
        self.invoked = invoked
        self.deadline = deadline
        self.least = least
        self.invocation = invocation
        self.scope: Scope = {}


class _Gateway(HTTPGateway):
    """Mangum's handler for API Gateway. It keeps the scope, which Mangum's own makes again for the answer."""

    @cached_property
    def scope(self) -> Any:
        return super().scope


class _Balancer(ALB):
    """Mangum's handler for load balancers. It keeps the scope, too."""

    @cached_property
    def scope(self) -> Any:
        return super().scope


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
        log_lines.guard()
        self.app: App | None = None
        self._records: Any = None  # what answers events of records, once there was one
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        try:
            settings = settings or Settings.from_env()
            logging.getLogger().setLevel(settings.log_level)
            log_lines.guard(settings.log_format)
            for line in ignored():
                log.warning(line)
            self._base_path = settings.base_path
            self.app = App(settings, inline=True)
            self._initialise(self.app, time.monotonic() if began is None else began)
            self._asgi: Any = self.app.serve
        except InvalidSettings as error:
            log.error("%s", error)  # noqa: TRY400 - the message has all the facts
            self._base_path = ""
            self._asgi = Misconfigured(error.public)
        handlers: Any = [_Balancer, _Gateway]
        self._mangum = Mangum(self._rooted, lifespan="off", text_mime_types=TEXT, custom_handlers=handlers)

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
        scope["raw_path"] = raw_path(scope["aws.event"])  # Mangum always says None
        scope[SCOPE_KEY] = exchange.deadline
        scope[COMPRESS_KEY] = exchange.least
        if exchange.invoked:
            scope[INVOKED] = True
        exchange.scope = scope
        await self._asgi(scope, receive, exchange.invocation.begin(scope, send))

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
        if kind in (Kind.QUEUE, Kind.BATCH):
            records = self._records_of(self.app)
            waiting = Background(deadline_of(event, context, None))
            answer: dict[str, Any] = (records.messages if kind is Kind.QUEUE else records.invocation)(event, waiting)
            return answer
        return self._created(self.app, event, context, waiting) if kind is Kind.S3 else self._warm(self.app, waiting)

    def _http(self, event: Any, context: Any, deadline: Deadline, *, invoked: bool = False) -> Any:
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        # Model code may have called asyncio.run(), which takes the thread's loop away.
        asyncio.set_event_loop(self._loop)
        observer = None if self.app is None else self.app.observer
        with Invocation(observer, str(getattr(context, "aws_request_id", ""))) as invocation:
            return self._answered(event, context, deadline, invocation, invoked=invoked)

    def _answered(self, event: Any, context: Any, deadline: Deadline, invocation: Invocation, *, invoked: bool) -> Any:
        try:
            normal, root = normalised(event, self._base_path)
        except ServingError as error:
            return self._refused(error, event, invocation)
        least = COMPRESS_FROM_INLINE if form_of(event) is EventForm.REST else COMPRESS_FROM
        exchange = normal[EXCHANGE] = _Exchange(root, deadline, least, invocation, invoked=invoked)
        try:
            response = self._mangum(normal, context)
        except Exception:
            log.exception("an HTTP event failed")
            return self._refused(ModelFailed(INTERNAL), event, invocation)
        size = document_size(response.get("body") or "")
        if size <= LARGEST_RESPONSE:
            return response
        too_large = TooLarge(
            f"the answer has {size} bytes as Lambda counts them; at most {LARGEST_RESPONSE} are possible: ask "
            "for fewer outputs, send smaller batches, ask for binary outputs, or accept gzip"
        )
        refusal = invocation.refuse(too_large, exchange.scope, refuse(too_large, exchange.scope))
        return plain(refusal, timing_of(response), event)

    def _refused(self, error: ServingError, event: Any, invocation: Invocation) -> dict[str, Any]:
        """Returns the refusal of an event that did not become a request, in its path's protocol and in its own form."""
        scope = scope_of(event, self._base_path)
        return plain(invocation.refuse(error, scope, refuse(error, scope)), self._timed(Timing()), event)

    def _timed(self, timing: Timing) -> str:
        headers = self.app.clock.headers(timing) if self.app else ()
        return "".join(text.decode() for _, text in headers)

    def _direct(self, event: dict[str, Any], context: Any, deadline: Deadline) -> Any:
        """Answers a V2 inference request that is the event itself: its caller invokes the function without HTTP."""
        try:
            request = direct(event)
        except InvalidInput as error:
            return {"error": error.message}
        response = self._http(request, context, deadline, invoked=True)
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
                log.warning("%s after an ObjectCreated event: %s", escaped(model), error.message)
                checked.append({"model": model, "ready": False, "error": error.message})
        return {"checked": checked}

    def _created(self, app: App, event: dict[str, Any], context: Any, waiting: Background) -> dict[str, Any]:
        """Runs the records of objects that were created below DRAGOMAN_BATCH_INPUT. Others may be models'."""
        if not app.settings.batch_input:
            return self._checked(app, event, waiting)
        records = self._records_of(app)
        keys = [key for bucket, key in s3_objects(event) if records.takes(bucket, key)]
        if not keys:
            return self._checked(app, event, waiting)
        answer: dict[str, Any] = records.objects(keys, Background(deadline_of(event, context, None)))
        return answer

    def _records_of(self, app: App) -> Any:
        """Returns what runs records. Raises UnsupportedEvent unless the settings name a place for results."""
        if not app.settings.batch_output:
            raise UnsupportedEvent(
                "events with records need DRAGOMAN_BATCH_OUTPUT, the place of results: docs/batch.md"
            )
        from handler.edge.batch.events import RecordEvents  # noqa: PLC0415 - few functions get such events

        if self._records is None:
            self._records = RecordEvents(app.settings, app.registry)
        return self._records

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


lambda_handler = Function(began=BEGAN)
gc.freeze()
gc.enable()
