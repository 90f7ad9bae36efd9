"""handler.edge.dispatch.gathering: when requests wait for each other, without threads or clocks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.operations import Batching, ModelSpec
from handler.edge.dispatch.gathering import LOOK_SECONDS, gathered, is_due, patience
from handler.edge.dispatch.lane import BatchPart, Errand, Lane
from handler.edge.dispatch.lanes import Lanes

NEVER = float("inf")


def lane_of(*waiting: float, held: int = 0, last: int = 1, **said: Any) -> Lane:
    """A lane in which requests came at these times."""
    spec = ModelSpec("m", "1", "p", None, None, batching=Batching(8, 0.1)._replace(**said))
    lane = Lanes(4).of(spec)
    lane.held, lane.batches.last = held, last
    loop = asyncio.new_event_loop()
    for at in waiting:
        work = Errand(BatchPart(iter, spec, 1), lane, loop, NEVER, None)  # type: ignore[arg-type] # never called
        work.put = at
        lane.waiting[work] = None
    loop.close()
    return lane


@pytest.mark.parametrize(
    ("lane", "now", "due"),
    [
        (lane_of(0.0), 0.0, True),
        (lane_of(0.0, held=1), 0.0, False),
        (lane_of(0.0, held=1), 0.11, True),
        (lane_of(0.0, 0.05, held=1), 0.09, False),
        (lane_of(0.0, last=2), 0.0, False),
        (lane_of(0.0, 0.0, last=2), 0.0, True),
        (lane_of(*[0.0] * 8, held=1), 0.0, True),
        (lane_of(*[0.0] * 2, held=1, preferred=(2, 4)), 0.0, True),
        (lane_of(0.0, held=1, seconds=0.0), 0.0, True),
        (lane_of(0.0, held=1, seconds=9.0), 1.9, False),
        (lane_of(0.0, held=1, seconds=9.0), 2.1, True),
    ],
)
def test_a_batch_waits_for_those_that_are_likely_to_come(lane: Lane, now: float, *, due: bool) -> None:
    """A single client never waits; nobody waits longer than the delay, or half of the time in the queue."""
    assert is_due(lane, now) == due
    assert (patience(lane, now) == LOOK_SECONDS) == due


def test_a_request_in_a_hurry_does_not_wait_for_others() -> None:
    """Its client's deadline leaves time for the inference."""
    lane = lane_of(0.0, held=1)
    lane.seconds = 0.02
    next(iter(lane.waiting)).until = 0.1
    assert [is_due(lane, now) for now in (0.05, 0.07)] == [False, True]


@pytest.mark.parametrize(
    ("waiting", "rows", "said", "most"),
    [
        (20, 1.0, {}, 8),
        (5, 1.0, {}, 5),
        (20, 2.5, {}, 3),
        (20, 100.0, {}, 1),
        (7, 1.0, {"preferred": (2, 4, 8)}, 4),
        (20, 2.0, {"preferred": (2, 4, 8)}, 4),
        (1, 1.0, {"preferred": (4,)}, 1),
    ],
)
def test_a_batch_takes_as_many_requests_as_are_likely_to_fit(
    waiting: int, rows: float, said: dict[str, Any], most: int
) -> None:
    """The largest preferred size, else as many rows as a batch may have; requests have as many rows as they had."""
    lane = lane_of(*range(waiting), **said)
    lane.batches.rows = rows
    came = list(lane.waiting)
    first, _ = lane.waiting.popitem(last=False)
    assert first.part is not None
    assert [*gathered(first, first.part, newest=False).members, *lane.waiting] == came
    assert len(lane.waiting) == waiting - most


def test_the_newest_are_taken_together_and_large_ones_are_left() -> None:
    """So are those that have to run alone. Those that are left keep their order."""
    lane = lane_of(0, 1, 2, 3, 4)
    came = list(lane.waiting)
    for place, change in ((1, {"gathers": False}), (2, {"size": 2**30})):
        part = came[place].part
        assert part is not None
        came[place].part = part._replace(**change)
    first, _ = lane.waiting.popitem(last=True)
    assert first.part is not None
    assert gathered(first, first.part, newest=True).members == [came[4], came[3]]
    assert list(lane.waiting) == came[:3]
