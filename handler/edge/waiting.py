"""How a request of an event loop waits for its model, which threads load."""

import asyncio
import time
from typing import Any

from handler import deadlines
from handler.edge.timing import Timing
from handler.lifecycle.single_flight import Flight


def until(limit: float | None, left: float | None) -> float | None:
    """When a request gives up waiting, on the event loop's clock; None: never.

    `limit`: DRAGOMAN_PATIENCE. `left`: seconds until whoever asked gives up.
    """
    limits = [limit, None if left is None else deadlines.before(left)]
    seconds = min((each for each in limits if each is not None), default=None)
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


async def landed(flight: Flight, timing: Timing, limit: float | None) -> Any:
    """What the load gives. Nobody occupies a thread meanwhile, and nobody who goes takes the load along.

    Raises StillLoading at the time `limit`.
    """
    begun = time.perf_counter_ns()
    scope = asyncio.timeout_at(limit)
    try:
        async with scope:
            return await asyncio.shield(asyncio.wrap_future(flight.future))
    except TimeoutError:
        if not scope.expired():
            raise
        raise flight.unfinished() from None
    finally:
        timing.wait(time.perf_counter_ns() - begun, flight)
