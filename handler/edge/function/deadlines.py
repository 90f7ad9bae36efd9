"""The deadlines of a function's events: when its gateway, the function or the operator's patience ends a wait."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.deadline import NEVER, Deadline, answerable, within
from core.records import NamedTuple

GATEWAY_SECONDS: Final = 29.0
"""API Gateway waits this long for an integration, from when it took the request (its quota; HTTP APIs wait 30)."""
STREAM_SECONDS: Final = 300.0
"""A REST API that streams waits this long for the next byte, the first one included (its idle timeout, Regional)."""
LONGEST_AGO: Final = 60.0
"""The most seconds since a gateway took a request. A longer time means a recorded event, or a wrong clock."""
LONGEST_STREAM: Final = 900.0
"""The most seconds of a stream. With comments for the next byte, a stream of events can wait so long for its model."""
SAM_LOCAL: Final = "AWS_SAM_LOCAL"
"""SAM sets this variable to "true" in the functions that it runs locally."""
LEAST_SECONDS: Final = 0.25
"""The shortest wait. A request that arrived too late still advances its load a little, else no load would ever end."""
LATEST: Final = 2.0**53
"""A greater number of milliseconds is not the time of a request."""


class EventEnds(NamedTuple):
    """The deadlines of one event. `wait`: of waits for a model. `due`: of the answer's beginning. `end`: of all."""

    wait: Deadline
    due: Deadline
    end: Deadline


def ends_of(event: Any, context: Any, patience: float | None, *, streamed: bool) -> EventEnds:
    """Returns the deadlines of an HTTP event. `patience`: DRAGOMAN_PATIENCE. `streamed`: its answer goes in pieces."""
    wait = deadline_of(event, context, patience, _stream_seconds(event) if streamed else GATEWAY_SECONDS)
    end = end_of(context)
    return EventEnds(wait, wait if patience is None else end, end)


def end_of(context: Any) -> Deadline:
    """Returns when an answer has to be on its way because the function's time ends; NEVER without a context."""
    seconds = _answerable_in(context)
    return NEVER if seconds is None else within(max(LEAST_SECONDS, seconds))


def leaving(context: Any) -> float:
    """Returns when an answer that was made has to leave, on time.monotonic(); infinity without a context."""
    seconds = _answerable_in(context)
    return math.inf if seconds is None else time.monotonic() + seconds


def _answerable_in(context: Any) -> float | None:
    """Returns the seconds in which an answer can leave, by the function's time; None without a context."""
    remaining: Callable[[], int] | None = getattr(context, "get_remaining_time_in_millis", None)
    return None if remaining is None else answerable(remaining() / 1e3)


def deadline_of(event: Any, context: Any, limit: float | None, gateway: float = GATEWAY_SECONDS) -> Deadline:
    """Returns the deadline by the function's timeout and the gateway, NEVER if neither ends the wait.

    `limit`: DRAGOMAN_PATIENCE in seconds, which stands for the gateway's limit. `gateway`: that limit in seconds.
    """
    seconds = _answerable_in(context)
    ends = [] if seconds is None else [seconds]
    taken = _taken_ago(event)
    if limit is not None:
        ends.append(limit - (taken or 0.0))
    elif taken is not None:
        ends.append(answerable(gateway) - taken)
    return within(max(LEAST_SECONDS, min(ends))) if ends else NEVER


def _taken_ago(event: Any) -> float | None:
    """Returns the seconds since API Gateway took the request, a cold start's included; None for other events.

    Function URLs and ALBs wait for as long as the function can run, or as they are configured to.
    """
    context = event.get("requestContext") if isinstance(event, dict) else None
    if not isinstance(context, Mapping) or "elb" in context:
        return None
    if is_url(context):
        return None
    epoch = context.get("requestTimeEpoch", context.get("timeEpoch"))  # REST APIs have the first, HTTP APIs the second
    if not isinstance(epoch, int | float) or not abs(epoch) < LATEST:
        return None
    if os.environ.get(SAM_LOCAL) == "true":
        return 0.0  # its REST API writes the time when SAM itself was started (measured with SAM 1.170)
    ago = time.time() - epoch / 1e3
    return ago if 0 <= ago <= LONGEST_AGO else 0.0


def is_url(context: Any) -> bool:
    """Decides whether a requestContext is a Function URL's."""
    return isinstance(context, Mapping) and ".lambda-url." in str(context.get("domainName", ""))


def _stream_seconds(event: Mapping[str, Any]) -> float:
    """Returns how long the gateway of a streamed answer waits."""
    path = event.get("rawPath", event.get("path"))
    return LONGEST_STREAM if isinstance(path, str) and is_of_events(path) else STREAM_SECONDS


def is_of_events(path: str) -> bool:
    """Decides whether the answers of a path are streams of events (V2's generate_stream)."""
    return path.rstrip("/").endswith("/generate_stream")
