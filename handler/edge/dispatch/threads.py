"""Chooses the thread of an ASGI server that works on a request, and waits for the request's model.

There are threads for inference, for requests that may ask the store, and for loads. Lambda does without
(inline.Inline).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, Final, TypeVar

from core.deadline import NEVER, Deadline, answerable, within
from core.operations import ModelSpec
from core.wire import Waits
from handler.edge.dispatch import streams
from handler.edge.dispatch.batches import Again
from handler.edge.dispatch.lane import BatchPart
from handler.edge.dispatch.limits import Hurried, Watchdog
from handler.edge.dispatch.workers import Workers
from handler.edge.jobs import Job
from handler.edge.leaving import landed
from handler.edge.timing import Misplaced, Timing
from handler.lifecycle.single_flight import Pending, outcome
from handler.settings import Settings

T = TypeVar("T")
MODEL, NOTHING = Waits.MODEL, Waits.NOTHING
LOADERS: Final = 64
"""Loads that have a thread. Most of them may wait for memory (see lifecycle.loading.AT_ONCE), or never end."""
ASIDE: Final = 4
"""Threads for everything but inference, which may ask the store: health is answered however busy the models are."""
PROMPT: Final = 2
"""Threads for work that never asks the store. A store that hangs does not delay metrics."""
PROBERS: Final = 2
"""Threads for probes, which wait for the store no longer than PROBE_SECONDS."""
PROBE_SECONDS: Final = 2.0


class Threads:
    """Runs a request in a thread that suits its possible waits."""

    buffers = 0

    def __init__(self, settings: Settings) -> None:
        self._patience = settings.patience
        self._workers = Workers(settings.threads, settings.queue, settings.timeout, settings.queue_time)
        self._watchdog = Watchdog()
        self._aside = ThreadPoolExecutor(ASIDE, "dragoman-aside")
        self._prompt = ThreadPoolExecutor(PROMPT, "dragoman-prompt")
        self._probers = ThreadPoolExecutor(PROBERS, "dragoman-probe")
        self.loaders = ThreadPoolExecutor(LOADERS, "dragoman-load")

    def at_once(self, job: Job[T], waits: Waits) -> T | None:
        """Returns the job's answer if it is sure to be short, in the event loop. Raises ServingError.

        None: it takes a thread, or its model is not there any more; `later` begins anew.
        """
        if job.is_quick() if waits is MODEL else waits is NOTHING and not job.is_long():
            try:
                return self._watchdog.hurry(job.run)
            except Hurried:
                job.timing.use.hesitate()
            except Pending:
                pass
        return None

    async def answer(self, job: Job[T], waits: Waits) -> T:
        """Returns the job's answer. Raises as `later` does."""
        answer = self.at_once(job, waits)
        return await self.later(job, waits) if answer is None else answer

    async def later(self, job: Job[T], waits: Waits) -> T:
        """Returns the job's answer, made in a thread. Cancelling this ends the work.

        Raises ServingError, and StillLoading at the deadline of the job's timing.
        """
        deadline, until = job.timing.deadline, NEVER
        alone = False
        while True:
            try:
                return await self._in_a_thread(job, waits, deadline, alone=alone)
            except Again:
                alone = True
            except Misplaced:
                continue  # its model is known, and in memory
            except Pending as pending:
                until = until if until is not NEVER else self._until(deadline)
                result = await _landed(pending, job.timing, until)
                if pending.final:
                    return job.phrase(result)

    async def _in_a_thread(self, job: Job[T], waits: Waits, deadline: Deadline, *, alone: bool) -> T:
        if waits is Waits.STORE:
            # A store that hangs may hold every thread aside.
            return await (self.promptly if job.is_at_hand() else self.aside)(job.run)
        if waits is Waits.NOTHING:
            return await self.promptly(job.run)
        if waits is Waits.PROBE:
            job.timing.deadline = min(deadline, within(PROBE_SECONDS), key=attrgetter("at"))
            return await asyncio.get_running_loop().run_in_executor(self._probers, job.run)
        spec = job.spec()
        job.timing.is_misplaced = spec is None and job.timing.use is None
        work: Callable[[], T] | BatchPart = job.run_apart
        if spec is not None and spec.batching is not None and waits is Waits.MODEL:
            work = BatchPart(job.steps, spec, job.codec.size, gathers=not alone)
        answer: T = await self._workers.run(work, spec, admitted=alone, until=deadline.at, owner=job.timing)
        return answer

    def _until(self, deadline: Deadline) -> Deadline:
        """Returns when a request stops waiting for its model: DRAGOMAN_PATIENCE from now, or its client's deadline."""
        limits = [] if self._patience is None else [self._patience]
        if not deadline.is_never:
            limits.append(answerable(deadline.left))
        return Deadline(time.monotonic() + min(limits)) if limits else NEVER

    async def work(self, work: Callable[[], T], *, is_quick: bool) -> T:
        """Returns the work's result, in a thread for inference unless it is quick. Raises ServerBusy."""
        if is_quick:
            return work()
        result: T = await self._workers.run(work)
        return result

    async def aside(self, work: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of work that may ask the store."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, work, *arguments)

    async def promptly(self, work: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of work that never asks the store."""
        return await asyncio.get_running_loop().run_in_executor(self._prompt, work, *arguments)

    def begin(self, work: Callable[[], None]) -> None:
        """Starts work that no request waits for."""
        self._aside.submit(work)

    def each(self, items: Iterable[T], timing: Timing) -> AsyncGenerator[T]:
        """Returns the items of a stream, as its model makes them and its client takes them. The caller closes it.

        `timing`: of the request, which knows the model.
        """
        spec = None if timing.use is None else timing.use.model.spec
        return streams.each(items, self._workers, spec, timing)

    def trouble(self, spec: ModelSpec | None) -> str:
        """Returns why no request is answered, "" if requests are; with a spec, requests to that version."""
        return self._workers.trouble(spec)

    def pending(self) -> Mapping[tuple[str, str], int]:
        """Returns how many requests wait for a thread, by model and version."""
        return self._workers.pending()

    def close(self) -> None:
        """Ends the threads; no request can be answered afterwards."""
        self._workers.close()
        self._watchdog.close()
        for executor in (self.loaders, self._aside, self._prompt, self._probers):
            executor.shutdown(wait=False, cancel_futures=True)


async def _landed(pending: Pending, timing: Timing, until: Deadline) -> Any:
    """Awaits the load. No thread is held, and cancelling the wait does not cancel the load.

    Raises StillLoading at the deadline.
    """
    load = pending.load
    try:
        landing = await landed(load.future, None if until.is_never else max(0.0, until.left))
        if not landing.done():
            raise load.unfinished()
        return outcome(landing)
    finally:
        timing.waited(time.perf_counter_ns() - pending.since, load)
