"""Requests to one version that run together: when they wait for each other, and which of them a thread takes.

A request waits in its model's lane as any other does, and so it is refused, dropped and cancelled as any other. A
thread that takes it takes others of its version with it. Rules: a batch begins at once if as many requests wait as fit,
or as the last one had and none is under way; else when the oldest has waited for `max_delay`.
"""

from typing import Final

from core.operations import Batching
from handler.edge.dispatch.batches import MOST_BYTES, Batch
from handler.edge.dispatch.lane import BatchPart, Errand, Lane

LOOK_SECONDS: Final = 0.005
"""Until a lane is looked at again whose batch is due, but gets no thread."""
LEAST_SECONDS: Final = 0.001
"""uvloop's clock."""


def is_due(lane: Lane, now: float) -> bool:
    """Decides whether the oldest work of a lane, which has some, waits for no partners."""
    oldest = next(iter(lane.waiting))
    batching = _batching(oldest)
    if batching is None:
        return True
    count = len(lane.waiting)
    if count >= _enough(lane, batching) or (lane.held == lane.lost and count >= lane.batches.last):
        return True
    return now >= oldest.put + _longest(oldest, batching)


def _batching(work: Errand) -> Batching | None:
    """Returns how the work is run with others; None if it runs alone."""
    part = work.part
    if part is None or not part.gathers or work.lane.batches.unfit.get(part.spec.version) is part.spec:
        return None
    return part.spec.batching


def patience(lane: Lane, now: float) -> float:
    """Returns the seconds until the batch of a lane is due, if no other request comes. Then it is looked at again."""
    oldest = next(iter(lane.waiting))
    batching = _batching(oldest)
    if batching is None or is_due(lane, now):
        return LOOK_SECONDS
    return max(LEAST_SECONDS, oldest.put + _longest(oldest, batching) - now)


def _longest(oldest: Errand, batching: Batching) -> float:
    """Returns the seconds that a request waits for others: fewer if its client is in a hurry, or the queue is short."""
    lane = oldest.lane
    return min(batching.seconds, lane.queue / 2, oldest.until - oldest.put - 2 * lane.seconds)


def _enough(lane: Lane, batching: Batching) -> int:
    """Returns the number of requests that need not wait for more."""
    least = batching.preferred[0] if batching.preferred else batching.rows
    return max(1, int(least / lane.batches.rows))


def _most(lane: Lane, batching: Batching, waiting: int) -> int:
    """Returns how many of the waiting requests make one batch: the largest preferred size, or all that fit."""
    rows = lane.batches.rows
    sizes = [size for size in batching.preferred if size <= waiting * rows]
    return max(1, int((sizes[-1] if sizes else batching.rows) / rows))


def gathered(first: Errand, part: BatchPart, *, newest: bool) -> "Batch":
    """Takes the partners of work out of its lane. `newest`: the newest of them."""
    members, lane, batching = [first], first.lane, _batching(first)
    if batching is not None:
        most, size = _most(lane, batching, len(lane.waiting) + 1), part.size
        for other in list(reversed(lane.waiting) if newest else lane.waiting):
            mate = other.part
            if len(members) >= most:
                break
            if mate is None or not mate.gathers or mate.spec is not part.spec or other.loop is not first.loop:
                continue
            size += mate.size
            if size > MOST_BYTES:
                break
            del lane.waiting[other]
            members.append(other)
    return Batch(lane, members)
