"""In which thread a request is worked on, and how it waits for its model.

An ASGI server has threads: for inference, for what may ask the store, and for loads. Lambda has one request at a time,
which is worked on in the caller's thread.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from core.deadline import NEVER, Deadline, answerable
from core.wire import Waits
from handler.edge import streams
from handler.edge.jobs import Job, Timing
from handler.edge.workers import Workers
from handler.lifecycle.single_flight import Load, Pending
from handler.settings import Settings

T = TypeVar("T")
LOADERS: Final = 4
"""Models loaded at the same time; each load waits mostly for the network."""
ASIDE: Final = 4
"""Threads for everything but inference, which may ask the store: health is answered however busy the models are."""


class Inline:
    """Runs everything in the caller's thread."""

    loaders = None

    async def answer(self, job: Job[T], _waits: Waits, _deadline: Deadline = NEVER) -> T:
        """Returns the job's answer. Raises ServingError."""
        return job.run()

    async def work(self, work: Callable[[], T], *, is_quick: bool) -> T:  # noqa: ARG002 - as Threads
        return work()

    async def aside(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    def begin(self, work: Callable[[], None]) -> None:
        work()

    def each(self, items: Iterable[T]) -> AsyncGenerator[T]:
        return streams.each(items, None)

    def close(self) -> None:
        """There is nothing to end."""


class Threads:
    """Runs a request in the thread that suits what it may wait for."""

    def __init__(self, settings: Settings) -> None:
        self._patience = settings.patience
        self._workers = Workers(settings.threads, settings.queue)
        self._aside = ThreadPoolExecutor(ASIDE, "dragoman-aside")
        self.loaders = ThreadPoolExecutor(LOADERS, "dragoman-load")

    async def answer(self, job: Job[T], waits: Waits, deadline: Deadline = NEVER) -> T:
        """Returns the job's answer. `deadline`: the client's. Raises ServingError, StillLoading at the deadline."""
        until: Deadline | None = None
        while True:
            try:
                if waits is Waits.NOTHING or (waits is Waits.MODEL and job.is_quick()):
                    return job.run()
                return await self._run(job, waits)
            except Pending as pending:
                until = until or self._until(deadline)
                result = await _landed(pending.load, job.timing, until)
                if pending.final:
                    return job.phrase(result)

    async def _run(self, job: Job[T], waits: Waits) -> T:
        if waits in (Waits.MODEL, Waits.LONG):
            answer: T = await self._workers.run(job.run)
            return answer
        return await self.aside(job.run)

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

    def begin(self, work: Callable[[], None]) -> None:
        """Starts work that no request waits for."""
        self._aside.submit(work)

    def each(self, items: Iterable[T]) -> AsyncGenerator[T]:
        """Returns the items of a stream, as its model makes them and its client takes them. The caller closes it."""
        return streams.each(items, self._workers)

    def close(self) -> None:
        """Ends the threads; no request can be answered afterwards."""
        self._workers.close()
        for executor in (self.loaders, self._aside):
            executor.shutdown(wait=False, cancel_futures=True)


Dispatcher = Inline | Threads


async def _landed(load: Load, timing: Timing, until: Deadline) -> Any:
    """Awaits the load. No thread is held, and cancelling the wait does not cancel the load.

    Raises StillLoading at the deadline.
    """
    begun = time.perf_counter_ns()
    scope = asyncio.timeout(None if until.is_never else max(0.0, until.left))
    try:
        async with scope:
            return await asyncio.shield(asyncio.wrap_future(load.future))
    except TimeoutError:
        if not scope.expired():
            raise
        raise load.unfinished() from None
    finally:
        timing.waited(time.perf_counter_ns() - begun, load)
