"""The Lambda function: `handler.aws.lambda_handler`.

HTTP events go through Mangum to the same ASGI application that uvicorn serves. Everything here runs once per instance
at import (Lambda's init phase), or once per invocation. handler.edge.runtime replaces Lambda's own runtime.
"""

import gc

gc.disable()  # imported objects live as long as the instance: a search for garbage among them takes 6 ms of INIT

import time

BEGAN = time.monotonic()  # the init phase's seconds count from here

from handler.edge.runtime import bundle

bundle.install()

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Final

import orjson
from mangum import Mangum

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, ServingError, TimedOut
from core.operations import State
from handler.edge import log_lines
from handler.edge.app import COMPRESS_FROM, COMPRESS_FROM_INLINE, App
from handler.edge.exchange import COMPRESS_KEY, Receive, Scope, Send
from handler.edge.function.answers import plain, timing_of, too_large, too_large_alone
from handler.edge.function.deadlines import EventEnds, ends_of
from handler.edge.function.events import (
    INIT_SECONDS,
    Kind,
    UnsupportedEvent,
    direct,
    is_streamed,
    kind_of,
    normalised,
    scope_of,
)
from handler.edge.function.members import EventForm
from handler.edge.gate.gate import INVOKED
from handler.edge.protocols import INTERNAL, refuse
from handler.edge.runtime.http_event import (
    EVENT,
    STREAMED,
    TEXT,
    HttpEvent,
    KeptBalancer,
    KeptGateway,
    KeptRest,
)
from handler.lifecycle.room.memory import keep_large_blocks
from handler.settings import InvalidSettings, Settings
from handler.settings.parsers import flag
from handler.settings.sources import ignored

if TYPE_CHECKING:
    from handler.edge.runtime.carrier import LoopCarrier

log = logging.getLogger(__name__)
UNCONFIGURED: Final = EventEnds(NEVER, NEVER, NEVER)
"""The deadlines of a function whose settings are wrong: it refuses each event at once."""
EARLY: Final = ("provisioned-concurrency", "lambda-managed-instances", "snap-start")
"""Types of initialisation that no request waits for. They may take 15 minutes, and models are warm after them."""


def _may_stream() -> bool:
    """Returns DRAGOMAN_RESPONSE_STREAMING if other settings are wrong. The caller expects a stream all the same."""
    try:
        return flag(os.environ.get("DRAGOMAN_RESPONSE_STREAMING") or "false")
    except ValueError:
        return False


class Misconfigured:
    """Replaces the application if the settings are wrong. It refuses every request, in its protocol's format."""

    def __init__(self, reason: str) -> None:
        self._error = ModelNotLoadable(f"this server is not configured: {reason}")

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        response = refuse(self._error, scope)
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers]})
        body = b"" if scope["method"] == "HEAD" else b"".join(response.parts)
        await send({"type": "http.response.body", "body": body})


class Function:
    """One instance of the function. `app` is None when the settings are wrong."""

    def __init__(
        self, settings: Settings | None = None, began: float | None = None, carrier: "LoopCarrier | None" = None
    ) -> None:
        """Makes the application. `settings`: the environment's by default. `began`: the init phase's start.

        `carrier`: runs the application for several events at once. Without one Mangum does it, for one event at a time.
        """
        keep_large_blocks()
        log_lines.guard()
        logging.getLogger("mangum.http").setLevel(logging.WARNING)  # below, it repeats the access log
        self.app: App | None = None
        self._events: Any = None  # what answers events that are not HTTP, once there was one
        self._carrier = carrier
        self._streams = False
        self._loop = None if carrier is not None else asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop if carrier is None else carrier.loop)  # else Mangum makes one, too
        try:
            settings = settings or Settings.from_env()
            logging.getLogger().setLevel(settings.log_level)
            log_lines.guard(settings.log_format)
            for line in ignored():
                log.warning(line)
            self._base_path = settings.base_path
            self._streams = settings.response_streaming and carrier is not None
            self.app = App(settings, inline=carrier is None, freezes=True)
            self._initialise(self.app, time.monotonic() if began is None else began)
            self._asgi: Any = self.app.serve
        except InvalidSettings as error:
            log.error("%s", error)  # noqa: TRY400 - the message has all the facts
            self._base_path = ""
            self._streams = carrier is not None and _may_stream()
            self._asgi = Misconfigured(error.public)
        handlers: Any = [KeptBalancer, KeptGateway, KeptRest]
        self._mangum = Mangum(self._rooted, lifespan="off", text_mime_types=TEXT, custom_handlers=handlers)

    def _initialise(self, app: App, began: float) -> None:
        """Loads the models that the settings name, within the time of this type of initialisation."""
        how = app.settings.initialization
        short = how == "on-demand"  # the init phase is short, and a request waits for its end
        app.prepare(Deadline(began + INIT_SECONDS, init=True) if short else NEVER)
        if how not in EARLY:
            return
        from handler.edge import snapshots  # noqa: PLC0415 - most instances do not need it

        if how != "snap-start":
            snapshots.warm(app)
        elif self._carrier is None:  # else handler.edge.runtime.snapshot has the hooks
            snapshots.watch(app)

    def close(self) -> None:
        """Ends the event loop, which an instance keeps for its whole life."""
        if self._loop is not None:
            self._loop.close()
        asyncio.set_event_loop(None)

    async def _rooted(self, scope: Scope, receive: Receive, send: Send) -> None:
        http: HttpEvent = scope["aws.event"][EVENT]
        send = http.begin(scope, send)  # the record has the path below the stage
        scope["root_path"] = http.root  # Mangum always says ""
        scope["path"] = http.root + scope["path"]  # else a stage v1 would be cut off from /v1/models, too
        scope["raw_path"] = http.root.encode() + http.raw_path  # Mangum always says None
        scope[SCOPE_KEY] = http.ends.wait
        scope[COMPRESS_KEY] = http.least
        if http.invoked:
            scope[INVOKED] = True
        http.scope = scope
        await self._asgi(scope, receive, send)

    def __call__(self, event: Any, context: Any) -> Any:
        """Answers one event. Raises UnsupportedEvent."""
        kind = kind_of(event)
        if kind is Kind.HTTP:
            return self._http(event, context)
        if kind is Kind.DIRECT:
            return self._direct(event, context)
        if self.app is None:
            raise UnsupportedEvent("this server is not configured: see the log of its start")
        if self._events is None:
            from handler.edge.batch.function_events import FunctionEvents  # noqa: PLC0415 - most functions get HTTP alone

            self._events = FunctionEvents(self.app, apart=self._carrier is not None)
        answer: dict[str, Any] = self._events.answer(kind, event, context)
        return answer

    def _http(self, event: Any, context: Any, *, invoked: bool = False) -> Any:
        if self._loop is not None:
            if self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
            # Model code may have called asyncio.run(), which removes the thread's loop.
            asyncio.set_event_loop(self._loop)
        streamed = self._streams and not invoked and is_streamed(event)
        observer, ends = None, UNCONFIGURED
        if self.app is not None:
            observer = self.app.observer
            ends = ends_of(event, context, self.app.settings.patience, streamed=streamed)
        with HttpEvent(context, ends, observer, invoked=invoked, streamed=streamed) as http:
            http.awaited = self._awaited
            document = self._answered(event, http)
        if streamed and document is not STREAMED and self._carrier is not None:
            return self._carrier.pass_on(document, context)
        return document

    def _awaited(self, path: str) -> str:
        """Returns how far the load is that a request for a path of V2 waits for, "" if it is not known."""
        name = path.partition("/v2/models/")[2].partition("/")[0]
        for version in () if self.app is None else self.app.registry.known():
            if version.name == name and version.state is State.LOADING and version.progress is not None:
                return version.progress.unfinished(name).message.removesuffix(": try again")
        return ""

    def _answered(self, event: Any, http: HttpEvent) -> Any:
        try:
            normal, http.root, form, http.raw_path = normalised(event, self._base(http))
        except ServingError as error:
            return self._refused(error, event, http)
        is_deflated = form is EventForm.REST and not http.streamed  # a gateway that streams does not compress
        http.least = COMPRESS_FROM_INLINE if is_deflated else COMPRESS_FROM
        normal[EVENT] = http
        try:
            if self._carrier is None:
                response = self._mangum(normal, http.context)
            else:
                response = self._carrier.run(self._rooted, self._mangum.infer(normal, http.context), http)
        except TimedOut as error:
            return self._refused(error, event, http)
        except Exception:
            log.exception("an HTTP event failed")
            return self._refused(ModelFailed(INTERNAL), event, http)
        if response is STREAMED:
            return response
        excess = too_large_alone(response) if http.invoked else too_large(response, form)
        return response if excess is None else self._refused(excess, event, http, timing_of(response))

    def _base(self, http: HttpEvent) -> str:
        """Returns the base path of the gateway's mapping, which has none for an event without a gateway."""
        return "" if http.invoked else self._base_path

    def _refused(self, error: ServingError, event: Any, http: HttpEvent, timing: str | None = None) -> dict[str, Any]:
        """Returns the refusal of an event without an answer, in its path's protocol and in its own form.

        `timing`: Server-Timing of the answer that it replaces.
        """
        scope = http.scope or scope_of(event, self._base(http))
        refusal = http.refuse(error, scope, refuse(error, scope))
        if self.app is not None and self.app.gate.sharing is not None:
            refusal = refusal._replace(headers=tuple(self.app.gate.sharing.shared(scope, refusal.headers)))
        if timing is None:
            headers = self.app.clock.headers(http.timing) if self.app else ()
            timing = "".join(text.decode() for _, text in headers)
        return plain(refusal, timing, event)

    def _direct(self, event: dict[str, Any], context: Any) -> Any:
        """Answers a V2 inference request that is the event itself: its caller invokes the function without HTTP."""
        try:
            request = direct(event)
        except InvalidInput as error:
            return {"error": error.message}
        response = self._http(request, context, invoked=True)
        if response.get("isBase64Encoded"):
            return {"error": "an answer to a direct invocation is JSON: do not ask for binary outputs"}
        return orjson.loads(response["body"])


gc.freeze()  # else the next allocation would begin the search
gc.enable()


def __getattr__(name: str) -> Any:
    """Makes `lambda_handler` when it is asked for: handler.edge.runtime makes a function of its own."""
    if name != "lambda_handler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    gc.disable()
    made = globals()["lambda_handler"] = Function(began=BEGAN)
    gc.freeze()
    gc.enable()
    return made
