"""The lanes in which work waits for a thread: one for each model. Lanes take turns, whatever their lengths are.

Nothing here waits, locks or knows threads. Rules: a lane is in the ring exactly if work waits in it, no longer for
partners in a batch (gathering.is_due), and its model may have one more thread; a model has at most `cap` threads;
threads that run on beyond their time limit count as its own.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Final

from core.errors import ServerBusy, TimedOut, counted
from core.operations import ModelSpec
from handler.edge.dispatch.batches import Batch
from handler.edge.dispatch.gathering import gathered, is_due
from handler.edge.dispatch.lane import Errand, Lane

SLOW_SECONDS: Final = 1.0
"""A model leaves one thread to the others before its first answer, and while its inferences take longer."""
QUEUE_SECONDS: Final = 4.0
"""DRAGOMAN_QUEUE_TIME: clients commonly leave after five."""
STALE_SECONDS: Final = 0.5
"""Under overload a line in order answers every client late, and those with less patience never."""
MOST_LANES: Final = 1024
"""With more lanes, those without work are forgotten, with what they have learned: each look at all takes its time."""


class Lanes:
    """All lanes. `threads`: how many run at the same time. `timeout`: seconds, of models that do not say another.

    `queue`: the seconds that work may wait.
    """

    def __init__(self, threads: int, timeout: float | None = None, queue: float = QUEUE_SECONDS) -> None:
        self.threads = threads
        self._timeout = timeout
        self._queue = queue
        self._lanes: dict[str, Lane] = {}
        self._ring: deque[Lane] = deque()

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def of(self, spec: ModelSpec | None) -> Lane:
        """Returns the model's lane; that of all other work without a spec."""
        name = "" if spec is None else spec.name
        lane = self._lanes.get(name)
        if lane is None:
            lane = Lane(name, self._timeout, self._queue)
            # A new mapping: threads of the pool walk the present one, and the event loop does not take their lock.
            known = self._lanes if len(self._lanes) < MOST_LANES else self._busy()
            self._lanes = {**known, name: lane}
        if spec is not None:
            lane.spec = spec
        return lane

    def _busy(self) -> dict[str, Lane]:
        return {name: lane for name, lane in self._lanes.items() if lane.held or lane.waiting}

    def find(self, name: str) -> Lane | None:
        return self._lanes.get(name)

    def cap(self, lane: Lane, spec: ModelSpec | None) -> int:
        """Returns how many threads a version's work can have. A slow model leaves one to the others, if there are two.

        A model may be slow until its first answer says otherwise. Work without a model is short.
        """
        if spec is not None and spec.max_concurrency is not None:
            return min(spec.max_concurrency, self.threads)
        is_slow = lane.name and (not lane.seconds or lane.seconds >= SLOW_SECONDS or lane.lost)
        return max(1, self.threads - 1) if is_slow else self.threads

    def has_room(self, lane: Lane, spec: ModelSpec | None) -> bool:
        """Decides whether a version's work can have one more thread."""
        if spec is None or spec.max_concurrency is None:
            return lane.held < self.cap(lane, spec)
        return lane.held < self.threads and lane.held_of.get(spec.version, 0) < spec.max_concurrency

    def is_stuck(self, lane: Lane, spec: ModelSpec | None) -> bool:
        """Decides whether all threads that a version's work can have are lost."""
        if spec is None or spec.max_concurrency is None:
            return lane.lost >= self.cap(lane, spec)
        return lane.lost >= self.threads or lane.lost_of.get(spec.version, 0) >= spec.max_concurrency

    def put(self, work: Errand, now: float) -> None:
        lane = work.lane
        work.put = now
        lane.waiting[work] = None
        self.offer(lane, now)

    def offer(self, lane: Lane, now: float) -> None:
        """Puts the lane into the ring, if it is entitled to a turn."""
        if not lane.in_ring and lane.waiting and self._first(lane, now) is not None and is_due(lane, now):
            lane.in_ring = True
            self._ring.append(lane)

    def _first(self, lane: Lane, now: float) -> tuple[Errand, bool] | None:
        """Returns the work whose turn it is in a lane that has some, and whether it is the newest, as `take` says.

        None if its version cannot have one more thread: work of other versions waits behind it.
        """
        oldest = next(iter(lane.waiting))
        if now - oldest.put > STALE_SECONDS and not oldest.admitted:
            newest = next(reversed(lane.waiting))
            if self.has_room(lane, newest.spec):
                return newest, True
        return (oldest, False) if self.has_room(lane, oldest.spec) else None

    def take(self, now: float) -> Errand | Batch | None:
        """Returns work of the lane whose turn it is; None if none can have a thread now.

        It is the oldest, or the newest once the oldest has waited for long: its client may be about to leave. Admitted
        work is not refused any more, and so it must not starve.
        """
        while self._ring:
            lane = self._ring.popleft()
            lane.in_ring = False
            first = self._first(lane, now) if lane.waiting else None
            if first is not None:
                work, is_newest = first
                del lane.waiting[work]
                taken = work if work.part is None else gathered(work, work.part, newest=is_newest)
                lane.hold(work.spec, 1)
                self.offer(lane, now)
                return taken
        return None

    def takes(self, work: Errand) -> bool:
        """Decides whether new work gets a thread at once, without partners. Counts the thread."""
        if not self.is_open(work):
            return False
        work.lane.hold(work.spec, 1)
        return True

    def is_open(self, work: Errand) -> bool:
        """Decides whether new work is the first in line."""
        return not work.lane.waiting and self.has_room(work.lane, work.spec)

    def release(self, lane: Lane, spec: ModelSpec | None, seconds: float | None, now: float = 0.0) -> None:
        """Takes a thread back from a version's work. `seconds`: the time of an inference that has ended by itself."""
        lane.hold(spec, -1)
        if seconds is not None:
            lane.measure(seconds)
        self.offer(lane, now)

    def count_waiting(self) -> int:
        """Returns how much work waits, in all lanes."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def drop(self, work: Errand) -> bool:
        """Takes waiting work out of its lane. Returns False if it does not wait."""
        if work not in work.lane.waiting:
            return False
        del work.lane.waiting[work]
        return True

    def hog(self) -> Lane | None:
        """Returns the lane that has as many working threads as there are."""
        return next((lane for lane in self._lanes.values() if lane.held - lane.lost >= self.threads), None)

    def crowded(self, lane: Lane) -> Errand | None:
        """Takes out the newest request of the longest lane, if that is longer than this one would be."""
        longest = max(self._lanes.values(), key=lambda each: len(each.waiting))
        if len(longest.waiting) <= len(lane.waiting) + 1:
            return None
        newest = next((work for work in reversed(longest.waiting) if not work.admitted), None)
        if newest is not None:
            del longest.waiting[newest]
        return newest

    def stranded(self, lane: Lane) -> list[Errand]:
        """Takes out the work of versions whose threads are all lost."""
        stranded = [work for work in lane.waiting if self.is_stuck(lane, work.spec)]
        for work in stranded:
            del lane.waiting[work]
        return stranded

    def wait(self, lane: Lane, spec: ModelSpec | None) -> float:
        """Estimates the seconds until new work of a version gets a thread."""
        active = sum(1 for each in self._lanes.values() if each.held > each.lost or each.waiting)
        share = self.threads / active if active > 1 else self.threads
        return (
            (len(lane.waiting) / lane.batches.company + 1)
            * lane.seconds
            / max(1.0, min(share, self.cap(lane, spec) - lane.lost))
        )

    def refusal(self, work: Errand, now: float) -> ServerBusy | TimedOut | None:
        """Returns why new work would wait too long, None if it would not."""
        lane, until = work.lane, work.until
        if now >= until:
            return TimedOut("the request's deadline has passed")  # ServerBusy would have its client ask again
        if self.is_stuck(lane, work.spec):
            return lane.stuck(work.spec)
        wait = self.wait(lane, work.spec)
        if wait > lane.allowed(lane.seconds):
            waiting = counted(len(lane.waiting), "request")
            return ServerBusy(
                f"{lane.title} has {waiting} waiting, {_told(wait)} s of work: try again then",
                retry_after=wait,
            )
        if lane.seconds and now + wait + lane.seconds > until:
            return ServerBusy(
                f"{lane.title} would answer in {_told(wait + lane.seconds)} s, after the request's deadline",
                retry_after=wait,
            )
        return None

    def overdue(self, lane: Lane, now: float, longest: float) -> Iterator[Errand]:
        """Takes out work that has waited for longer than it can be useful, but none while slow work holds the threads.

        `longest`: the seconds that the oldest running work has taken so far. What is left may have a turn.
        """
        allowed = lane.allowed(max(lane.seconds, longest))

        def is_overdue(work: Errand) -> bool:
            limit = work.limit
            most = allowed if limit is None else min(allowed, max(limit, lane.queue))
            return now - work.put > most

        for work in list(itertools.takewhile(is_overdue, lane.waiting)):
            if not work.admitted:
                del lane.waiting[work]
                yield work
        self.offer(lane, now)


def _told(seconds: float) -> str:
    """Returns seconds as a message has them: never 0.0."""
    return f"{seconds:.1f}" if seconds >= 1 else f"{max(seconds, 0.001):.2g}"
