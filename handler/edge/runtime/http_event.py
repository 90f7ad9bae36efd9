"""An HTTP event of a function: what ASGI's scope lacks, the record of its request, and Mangum's handlers of events."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Self

from mangum.handlers import ALB, APIGateway, HTTPGateway

from core.errors import ServingError
from core.wire import REQUEST_ID, HttpResponse
from handler.edge.exchange import Scope, Send
from handler.edge.function.deadlines import EventEnds, leaving
from handler.edge.observe.observer import Observer
from handler.edge.observe.record import ID_KEY, Failure, Record, drawn, sent_in
from handler.edge.timing import Timing

EVENT: Final = "dragoman"
"""The member of an event for Mangum that holds an HttpEvent."""
Awaited = Callable[[str], str]
STREAMED: Final = object()
"""In place of a function's document: the answer has been sent already."""
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


class HttpEvent:
    """One event. At the end of a `with` block its request has ended, too, and is counted and logged.

    `context`: Lambda's. `observer`: None where the settings are wrong, and nothing is counted. `invoked`: its caller
    invokes the function without HTTP, which takes the permission to do so. `streamed`: its sender takes the answer in
    pieces. `awaited`: returns what a request for a path waits for, in words. `root`, `raw_path`: see NormalEvent.
    `least`: bytes of an answer that are worth compressing. `scope`: Mangum's, once there is one, for refusals.
    """

    __slots__ = (
        *("_given", "_observer", "_record", "awaited", "context", "ends", "invoked", "least", "raw_path", "root"),
        *("scope", "streamed"),
    )

    def __init__(
        self,
        context: Any,
        ends: EventEnds,
        observer: Observer | None,
        *,
        invoked: bool = False,
        streamed: bool = False,
    ) -> None:
        self._given = str(getattr(context, "aws_request_id", ""))
        self._observer = observer
        self._record: Record | None = None
        self.context = context
        self.ends = ends
        self.invoked = invoked
        self.streamed = streamed
        self.awaited: Awaited = _nothing
        self.root = ""
        self.raw_path = b""
        self.least = 0
        self.scope: Any = {}

    def begin(self, scope: Scope, send: Send) -> Send:
        """Begins the record. Returns the function through which the answer is sent."""
        if self._observer is None:
            return send
        scope[ID_KEY] = self._given
        self._record = self._observer.begin(scope, send)
        return self._record.send

    def refuse(self, error: ServingError, scope: Scope, response: HttpResponse) -> HttpResponse:
        """Notes a refusal, in place of an answer or before there was a request. Returns it with the request's id."""
        if self._observer is None:
            return response
        if self._record is None:
            given = self._given
            self._record = Record(scope["method"], scope["path"], drawn(given), given=given)
            self._record.take(sent_in(scope["headers"]))
        record = self._record
        record.error, record.status = Failure.of(error), response.status
        record.sent = response.length
        return response._replace(headers=(*response.headers, (REQUEST_ID, record.request_id)))

    @property
    def timing(self) -> Timing:
        """The times of its request, as far as it came."""
        found = None if self._record is None else self._record.timing
        return Timing() if found is None else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer is not None and self._record is not None:
            if not self._observer.is_plain:
                self._record.until = leaving(self.context)
            self._observer.end(self._record)


def _nothing(_: str) -> str:
    return ""


class _Kept:
    """What Mangum's handlers of events lack: a scope that is made once, and headers in Latin-1, as HTTP has them.

    Mangum makes the scope again for the answer, and reads its headers as UTF-8.
    """

    @cached_property
    def scope(self) -> Any:
        return super().scope  # type: ignore[misc] # Mangum's handler is behind this class

    def __call__(self, response: Any) -> dict[str, Any]:
        write: Callable[[Any], dict[str, Any]] = super().__call__  # type: ignore[misc] # the same
        try:
            return write(response)
        except UnicodeDecodeError:
            response["headers"] = [[name, value.decode("latin-1").encode()] for name, value in response["headers"]]
            return write(response)


class KeptGateway(_Kept, HTTPGateway):
    """Mangum's handler for HTTP APIs and Function URLs."""


class KeptRest(_Kept, APIGateway):
    """Mangum's handler for REST APIs."""


class KeptBalancer(_Kept, ALB):
    """Mangum's handler for load balancers."""
