"""The bounded pool of threads in which an ASGI server runs models.

concurrent.futures does not bound its queue, and wakes its threads in turn, each with cold caches. Its round trip from
an event loop takes 56 us; this one takes 20 us. This pool wakes the thread that fell idle last.

A thread whose work does not end at its time limit (without one: when its client has left) is lost until it returns, and
another one takes its place. There are at most twice as many threads as the setting says, and one more for the others
while one model holds all of them.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from core.errors import ServerBusy, counted
from core.operations import ModelSpec
from handler.edge.dispatch.batches import Batch
from handler.edge.dispatch.gathering import patience
from handler.edge.dispatch.lane import BatchPart, Errand, Lane, Left, hand_over
from handler.edge.dispatch.lanes import QUEUE_SECONDS, Lanes
from handler.edge.dispatch.worker import Worker
from handler.edge.timing import Timing

log = logging.getLogger(__name__)
TICK_SECONDS: Final = 0.05
"""Seconds between two looks at running and waiting work, while there is any."""
RETURN_SECONDS: Final = 0.2
"""A runtime that was ended returns within this time; a thread that does not is lost."""
UNAWAITED_SECONDS: Final = 2.0
"""A thread is lost so long after the client of work without a time limit has left, as a function's event ends."""
RELIEF_SECONDS: Final = 0.1
"""Seconds for which the other models wait for one more thread, while one model has all threads."""


class Workers:
    """The pool. Only an event loop's thread calls `run`. `close` ends the threads once the waiting work is done.

    `timeout`: seconds that work may run, unless its model's settings say another number; None: for ever, as long as a
    client waits for it, and `unawaited` seconds longer. `patience`: seconds that work may wait.
    """

    def __init__(
        self,
        threads: int,
        queue: int,
        timeout: float | None = None,
        patience: float = QUEUE_SECONDS,
        unawaited: float = UNAWAITED_SECONDS,
    ) -> None:
        self._unawaited = unawaited
        self._most_waiting = queue
        self._requests = 0
        self._closed = False
        self._ticking: asyncio.AbstractEventLoop | None = None
        # Guards all that follows. Work waits only while no thread is idle, or its model has its share of them.
        self._lock = threading.Lock()
        self._lanes = Lanes(threads, timeout, patience)
        self._threads = [Worker(self, f"dragoman-{index}") for index in range(threads)]
        self._lost = 0
        self._idle = list(self._threads)
        for worker in self._idle:
            worker.start()

    async def run(
        self,
        call: Callable[[], Any] | BatchPart,
        spec: ModelSpec | None = None,
        *,
        admitted: bool = False,
        until: float = float("inf"),
        owner: Timing | None = None,
    ) -> Any:
        """Returns the result of `call`, which one of the threads calls. A part is done in a batch, perhaps with others.

        Cancelling this ends the work. `spec`: the model that works. `admitted`: the work continues an admitted request,
        and is never refused for the length of its lane. `until`: the client's deadline on time.monotonic(). `owner`:
        counts a failure at the time limit. Raises TimedOut at that limit, ServerBusy if too much work waits,
        batches.Again if a batch has failed.
        """
        work = Errand(call, self._lanes.of(spec), asyncio.get_running_loop(), until, owner)
        work.spec = spec
        work.admitted = admitted
        self._put(work)
        self._requests += 1
        try:
            return await work.future
        except asyncio.CancelledError:
            self._abandon(work)
            raise
        finally:
            self._requests -= 1
            work.leave()

    def spare(self, call: Callable[[], None]) -> None:
        """Calls `call`, which raises nothing, in one of the threads, without waiting for it."""
        work = Errand(call, self._lanes.of(None), asyncio.get_running_loop(), float("inf"), None)
        work.admitted = True
        self._put(work)

    def trouble(self, spec: ModelSpec | None = None) -> str:
        """Returns why no request is answered, "" if requests are; with a spec, requests to that version."""
        if spec is None:
            held = ", ".join(f"{each.title} {each.lost}" for each in self._lanes if each.lost)
            return f"{late} ({held}): restart this server" if (late := self._late()) else ""
        lane = self._lanes.find(spec.name)
        return lane.loss if lane is not None and self._lanes.is_stuck(lane, spec) else ""

    def _late(self) -> str:
        """Returns what occupies all threads, "" if not all are lost."""
        is_lost = self._lost and self._lost >= len(self._threads)
        return f"inferences exceeded the time limit and still occupy all {self._lost} threads" if is_lost else ""

    def pending(self) -> dict[tuple[str, str], int]:
        """Returns how many requests wait, by model and version; those whose model is not known yet under ("", "")."""
        with self._lock:
            return {(lane.name, version): count for lane in self._lanes for version, count in lane.pending().items()}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for lane in self._lanes:
                self._lanes.offer(lane, math.inf)  # others do not come any more
            self._serve(math.inf)
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.wake(None)

    # -- in the event loop --------------------------------------------------------------------------------------------

    def _put(self, work: Errand) -> None:
        """Wakes a thread for the work, or lets it wait. Raises ServerBusy."""
        if self._ticking is not work.loop:
            self._ticking = work.loop
            work.loop.call_later(TICK_SECONDS, self._tick, work.loop)
        with self._lock:
            if work.part is not None or not self._idle or not self._lanes.takes(work):
                self._queue(work, time.monotonic())
                return
            worker = self._idle.pop()
        worker.wake(work)

    def _queue(self, work: Errand, now: float) -> None:
        """Lets the work wait. Raises ServerBusy. Under the lock."""
        lane = work.lane
        is_free = bool(self._idle) and self._lanes.is_open(work)
        if not is_free and not work.admitted:
            if (refusal := self._lanes.refusal(work, now)) is not None:
                raise refusal
            if self._requests >= self._most_waiting and self._lanes.count_waiting() >= self._most_waiting:
                self._make_room(work)
        self._lanes.put(work, now)
        self._serve(now)  # a thread may be idle while work of another version waits
        if work.part is not None:
            self._expect(lane, work.loop, now)

    def _expect(self, lane: Lane, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Looks at a lane whose requests wait for others when they need not any more. Under the lock."""
        if lane.waiting and lane.batches.watched is not loop:
            lane.batches.watched = loop
            loop.call_later(patience(lane, now), self._look, lane, loop)

    def _look(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        with self._lock:
            lane.batches.watched = None
            self._lanes.offer(lane, now)
            self._serve(now)
            self._expect(lane, loop, now)

    def _serve(self, now: float) -> None:
        """Wakes idle threads for waiting work. Under the lock."""
        while self._idle and (more := self._lanes.take(now)) is not None:
            self._idle.pop().wake(more)

    def _make_room(self, work: Errand) -> None:
        """Refuses the newest request of the longest lane, or raises ServerBusy for this new one."""
        wait = max(1.0, self._lanes.wait(work.lane, work.spec))
        verb = "runs or waits" if self._requests == 1 else "run or wait"
        text = f"{counted(self._requests, 'request')} {verb} already: try again, or raise DRAGOMAN_QUEUE"
        pushed = self._lanes.crowded(work.lane)
        if pushed is None:
            raise ServerBusy(text, retry_after=wait)
        hand_over(((pushed, None, ServerBusy(text, retry_after=wait)),))

    def _abandon(self, work: Errand) -> None:
        """Ends the work, because its client has left, or takes it out of its lane."""
        with self._lock:
            waited = self._lanes.drop(work)
        if not waited:
            work.end(Left)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends work that has run for too long, refuses work that has waited for too long, and replaces lost threads."""
        if self._ticking is not loop:
            return
        self._ticking = None  # if this look fails, the next work starts them again
        now = time.monotonic()
        running = [(worker, work) for worker in list(self._threads) if (work := worker.work) is not None]
        for worker, work in running:
            self._watch(worker, work, now)
        with self._lock:
            longest = max((now - worker.begun for worker, _ in running if not worker.lost), default=0.0)
            overdue = [
                (work, self._refused(work)) for lane in self._lanes for work in self._lanes.overdue(lane, now, longest)
            ]
            self._serve(now)
            new = self._relieved(now)
        hand_over([(work, None, refusal) for work, refusal in overdue])
        if new is not None:
            new.start()
        if running or overdue:
            self._ticking = loop
            loop.call_later(TICK_SECONDS, self._tick, loop)

    def _watch(self, worker: Worker, work: Errand | Batch, now: float) -> None:
        limit = work.limit
        ran = now - worker.begun
        if worker.lost:
            return
        if limit is None:
            if worker.unawaited(work, now) >= self._unawaited:
                self._lose(worker, work)
        elif ran >= limit and not work.is_late:
            work.is_late = True
            work.overrun()
        elif ran >= limit + RETURN_SECONDS:
            self._lose(worker, work)

    def _lose(self, worker: Worker, work: Errand | Batch) -> None:
        """Counts a thread as lost, and starts another one while there are not too many."""
        with self._lock:
            if worker.work is not work:
                return
            lane, new = work.lane, None
            worker.lost = True
            self._lost += 1
            lane.lose(work.spec, 1)
            stranded = self._lanes.stranded(lane)
            if len(self._threads) < 2 * self._lanes.threads:
                new = self._one_more()
        log.warning("%s: %s; %s lost", lane.title, lane.loss, counted(self._lost, "thread"))
        hand_over([(refused, None, lane.stuck(refused.spec)) for refused in stranded])
        if new is not None:
            new.start()

    def _refused(self, work: Errand) -> ServerBusy:
        late = self._late()  # without the names of the models, which the client is perhaps not permitted to see
        cure = f"{late}; try again, or restart the server" if late else "try again"
        text = f"{work.lane.title} did not get a thread in time: {cure}"
        return ServerBusy(text, retry_after=self._lanes.wait(work.lane, work.spec))

    def _relieved(self, now: float) -> Worker | None:
        """Makes a thread for the others, if one model has held all threads for a while. Under the lock."""
        lanes = self._lanes
        if self._idle or lanes.threads == 1 or len(self._threads) - self._lost > lanes.threads or lanes.hog() is None:
            return None
        waits = (next(iter(lane.waiting)).put for lane in lanes if lane.waiting and lane.in_ring)
        return self._one_more() if now - min(waits, default=now) > RELIEF_SECONDS else None

    def _one_more(self) -> Worker:
        """Makes a thread, which begins with waiting work or is idle. Under the lock."""
        worker = Worker(self, f"dragoman-{len(self._threads)}")
        self._threads.append(worker)
        work = self._lanes.take(time.monotonic())
        if work is None:
            self._idle.append(worker)
        else:
            worker.wake(work)
        return worker

    # -- in a thread of the pool --------------------------------------------------------------------------------------

    def next_for(
        self, worker: Worker, lane: Lane, spec: ModelSpec | None, seconds: float | None
    ) -> Errand | Batch | None:
        """Returns waiting work, as worker.Pool says."""
        with self._lock:
            worker.work = None
            if worker.lost:
                worker.lost = False
                self._lost -= 1
                lane.lose(spec, -1)
                log.warning("%s: an inference that ran beyond its time limit has ended", lane.title)
            now = math.inf if self._closed else time.monotonic()
            self._lanes.release(lane, spec, seconds, now)
            surplus = len(self._threads) - self._lost > self._lanes.threads and self._lanes.hog() is None
            work = None if surplus else self._lanes.take(now)
            if work is not None:
                worker.begin(work)
            elif surplus or self._closed:
                self._threads.remove(worker)
                worker.wake(None)
            else:
                self._idle.append(worker)
            self._serve(now)
            return work
