"""The bounded thread pool in which an ASGI server runs models.

concurrent.futures does not bound its queue, and wakes its threads in turn, each with cold caches. Its round trip from
an event loop takes 56 us; this one takes 20 us. This pool wakes the thread that fell idle last.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from core.errors import ServerBusy

Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Workers:
    """The pool. Only the event loop's thread calls `run`. `close` ends the threads once the waiting jobs are done."""

    def __init__(self, threads: int, queue: int) -> None:
        self._room = threads + queue
        self._held = 0
        self._closed = False
        # Guards the two below: a job waits only while no thread is idle.
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._idle = [_Worker(self, f"dragoman-{index}") for index in range(threads)]
        for worker in self._idle:
            worker.start()

    async def run(self, work: Callable[[], Any], *, admitted: bool = False) -> Any:
        """Returns the result of `work`, which one of the threads calls. Raises ServerBusy if too many jobs wait.

        `admitted`: the job continues an admitted request, and is never refused.
        """
        if self._held >= self._room and not admitted:
            raise ServerBusy(f"{self._held} requests wait already: try again, or raise DRAGOMAN_QUEUE", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._held += 1
        try:
            self._put((loop, future, work))
            return await future
        finally:
            self._held -= 1
            del future  # see _do

    def spare(self, work: Callable[[], None]) -> None:
        """Calls `work`, which raises nothing, in one of the threads, without waiting for it."""
        loop = asyncio.get_running_loop()
        self._put((loop, loop.create_future(), work))

    def _put(self, job: Job) -> None:
        with self._lock:
            if not self._idle:
                self._waiting.append(job)
                return
            worker = self._idle.pop()
        worker.wake(job)

    def next_for(self, worker: "_Worker") -> Job | None:
        """Returns a waiting job, None if the worker is idle from now on or has to end."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if not self._closed:
                self._idle.append(worker)
            else:
                worker.wake(None)
            return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.wake(None)


class _Worker(threading.Thread):
    """A thread that sleeps on a lock. `wake` releases the lock with a job."""

    def __init__(self, pool: Workers, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self._job: Job | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def wake(self, job: Job | None) -> None:
        self._job = job
        self._woken.release()

    def run(self) -> None:
        while True:
            self._woken.acquire()
            job, self._job = self._job, None
            if job is None:
                return
            while job is not None:
                _do(*job)
                job = None  # an idle thread must not keep a request's tensors alive
                job = self._pool.next_for(self)


def _do(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    try:
        outcome, error = work(), None
    except BaseException as raised:  # noqa: BLE001 - raised where the job is awaited
        outcome, error = None, raised
    with suppress(RuntimeError):  # the loop is closed: no caller waits any more
        loop.call_soon_threadsafe(_settle, future, outcome, error)
    # An error's traceback holds this frame. The frame would hold the error: a cycle, with the request's body in it.
    del future, outcome, error


def _settle(future: "asyncio.Future[Any]", outcome: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(outcome)
    else:
        future.set_exception(error)
