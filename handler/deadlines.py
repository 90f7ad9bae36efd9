"""How long a request waits for its model: no longer than whoever asked does, less the time to say so."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

GATEWAY_SECONDS: Final = 29.0
"""What API Gateway waits for an integration, from when it took the request (its quota; HTTP APIs wait 30)."""
LONGEST_AGO: Final = 60.0
"""A request that a gateway took longer ago than this was not: its event is a recorded one, or a clock is wrong."""
INIT_SECONDS: Final = 9.0
"""Lambda's init phase has 10 on demand, of which the interpreter and the runtime's client have had some before us."""
LONGEST_MARGIN: Final = 1.0
SLICE_SECONDS: Final = 1.0
"""The most that a request waits for each of a look at the repository and a fetch, whose model could answer at once."""
LEAST_SECONDS: Final = 0.25
"""A request that came too late to wait still moves its load on a little: each one must, or none ever ends."""


class Patience(NamedTuple):
    """Until when, on time.monotonic. `init`: no request waits yet.

    `beside`: what is loaded could answer the request; the seconds that its runtime took to load it.
    """

    deadline: float
    init: bool = False
    beside: float | None = None

    @property
    def left(self) -> float:
        """Seconds; negative after the deadline."""
        return self.deadline - time.monotonic()

    @property
    def slice(self) -> float:
        """Until when a look or a fetch that begins now may go on."""
        if self.beside is None:
            return self.deadline
        left = self.left
        return self.deadline - left + min(left / 4, SLICE_SECONDS)

    @classmethod
    def of(cls, seconds: float, *, init: bool = False) -> "Patience":
        """From now on."""
        return cls(time.monotonic() + seconds, init)


def before(seconds: float) -> float:
    """How much of `seconds` may be waited so that an answer still arrives within them.

    A fetch stops within a quarter of a second, and phrasing takes milliseconds.
    """
    return seconds - min(LONGEST_MARGIN, seconds / 4)


def of_invocation(event: Any, context: Any, limit: float | None) -> Patience | None:
    """Of a Lambda invocation: what the function's timeout and the gateway leave. None where nothing ends it.

    `limit`: DRAGOMAN_PATIENCE, which stands for the gateway's.
    """
    remaining: Callable[[], int] | None = getattr(context, "get_remaining_time_in_millis", None)
    ends = [] if remaining is None else [before(remaining() / 1e3)]
    taken = _taken_ago(event)
    if limit is not None:
        ends.append(limit - (taken or 0.0))
    elif taken is not None:
        ends.append(before(GATEWAY_SECONDS) - taken)
    return Patience.of(max(LEAST_SECONDS, min(ends))) if ends else None


def _taken_ago(event: Any) -> float | None:
    """Seconds since API Gateway took the request, a cold start's among them; None for events that are not its own.

    Function URLs and ALBs wait for as long as the function may run, or as they are told to.
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
