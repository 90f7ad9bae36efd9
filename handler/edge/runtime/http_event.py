"""An HTTP event of a function on its way through Mangum: what ASGI's scope lacks, and Mangum's handlers of events."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from mangum.handlers import ALB, HTTPGateway

from core.deadline import Deadline
from core.records import NamedTuple
from handler.edge.function.events import GATEWAY_SECONDS, STREAM_SECONDS
from handler.edge.observe.invocations import Invocation

EVENT: Final = "dragoman"
"""The member of an event for Mangum that holds an HttpEvent."""
LONGEST_STREAM: Final = 900.0
"""The most seconds of a stream. With comments for the next byte, a stream of events can wait so long for its model."""
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


class EventEnds(NamedTuple):
    """The deadlines of one event. `wait`: of waits for a model. `due`: of the answer's beginning. `end`: of all."""

    wait: Deadline
    due: Deadline
    end: Deadline


class HttpEvent:
    """One event. `context`: Lambda's. `least`: bytes of an answer that are worth compressing.

    `root`: the path in front of the application. `scope`: Mangum's, once there is one, for refusals. `invocation`: has
    the request's record. `invoked`: its caller invokes the function without HTTP, which takes the permission to do so.
    `streamed`: its sender takes the answer in pieces. `awaited`: returns what a request for a path waits for, in words.
    """

    __slots__ = ("awaited", "context", "ends", "invocation", "invoked", "least", "root", "scope", "streamed")

    def __init__(
        self, context: Any, ends: EventEnds, invocation: Invocation, *, invoked: bool = False, streamed: bool = False
    ) -> None:
        self.context = context
        self.ends = ends
        self.invocation = invocation
        self.invoked = invoked
        self.streamed = streamed
        self.awaited: Awaited = _nothing
        self.root = ""
        self.least = 0
        self.scope: Any = {}


def _nothing(_: str) -> str:
    return ""


class KeptGateway(HTTPGateway):
    """Mangum's handler for API Gateway. It keeps the scope, which Mangum's own makes again for the answer."""

    @cached_property
    def scope(self) -> Any:
        return super().scope


class KeptBalancer(ALB):
    """Mangum's handler for load balancers. It keeps the scope, too."""

    @cached_property
    def scope(self) -> Any:
        return super().scope


def is_of_events(path: str) -> bool:
    """Decides whether the answers of a path are streams of events (V2's generate_stream)."""
    return path.rstrip("/").endswith("/generate_stream")


def gateway_seconds(event: Mapping[str, Any], *, streamed: bool) -> float:
    """Returns how long an event's gateway waits. `streamed`: it takes the answer in pieces."""
    if not streamed:
        return GATEWAY_SECONDS
    path = event.get("rawPath", event.get("path"))
    return LONGEST_STREAM if isinstance(path, str) and is_of_events(path) else STREAM_SECONDS
