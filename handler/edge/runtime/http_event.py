"""An HTTP event of a function on its way through Mangum: what ASGI's scope lacks, and Mangum's handlers of events."""

from functools import cached_property
from typing import Any, Final, NamedTuple

from mangum.handlers import ALB, HTTPGateway

from core.deadline import Deadline
from handler.edge.observe.invocations import Invocation

EVENT: Final = "dragoman"
"""The member of an event for Mangum that holds an HttpEvent."""
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
    `streamed`: its sender takes the answer in pieces.
    """

    __slots__ = ("context", "ends", "invocation", "invoked", "least", "root", "scope", "streamed")

    def __init__(
        self, context: Any, ends: EventEnds, invocation: Invocation, *, invoked: bool = False, streamed: bool = False
    ) -> None:
        self.context = context
        self.ends = ends
        self.invocation = invocation
        self.invoked = invoked
        self.streamed = streamed
        self.root = ""
        self.least = 0
        self.scope: Any = {}


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
