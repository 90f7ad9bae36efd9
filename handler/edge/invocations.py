"""How long a Lambda invocation may wait for a model: as long as its gateway does, less the time to answer."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.deadline import NEVER, Deadline, answerable, within

GATEWAY_SECONDS: Final = 29.0
"""API Gateway waits this long for an integration, from when it took the request (its quota; HTTP APIs wait 30)."""
LONGEST_AGO: Final = 60.0
"""A gateway that took a request longer ago than this did not: the event is a recorded one, or a clock is wrong."""
INIT_SECONDS: Final = 9.0
"""Lambda's init phase has 10 s on demand, and the interpreter and the runtime's client have had some of them before."""
LEAST_SECONDS: Final = 0.25
"""A request that came too late to wait still moves its load on a little. Otherwise no load would ever end."""


def of_invocation(event: Any, context: Any, limit: float | None) -> Deadline:
    """Returns what the function's timeout and the gateway leave; NEVER where neither ends the wait.

    `limit`: DRAGOMAN_PATIENCE in seconds, which stands for the gateway's limit.
    """
    remaining: Callable[[], int] | None = getattr(context, "get_remaining_time_in_millis", None)
    ends = [] if remaining is None else [answerable(remaining() / 1e3)]
    taken = _taken_ago(event)
    if limit is not None:
        ends.append(limit - (taken or 0.0))
    elif taken is not None:
        ends.append(answerable(GATEWAY_SECONDS) - taken)
    return within(max(LEAST_SECONDS, min(ends))) if ends else NEVER


def _taken_ago(event: Any) -> float | None:
    """Returns the seconds since API Gateway took the request, a cold start's included; None for other events.

    Function URLs and ALBs wait for as long as the function may run, or as they are configured to.
    """
    context = event.get("requestContext") if isinstance(event, dict) else None
    if not isinstance(context, Mapping) or "elb" in context:
        return None
    if ".lambda-url." in str(context.get("domainName", "")):
        return None
    epoch = context.get("requestTimeEpoch", context.get("timeEpoch"))  # of REST APIs, of HTTP APIs
    if not isinstance(epoch, int | float):
        return None
    ago = time.time() - epoch / 1e3
    return ago if 0 <= ago <= LONGEST_AGO else 0.0
