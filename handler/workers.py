"""The bounded thread pool in which an ASGI server runs models.

concurrent.futures has no bound on what waits, and its round trip from an event loop takes 56 us where this one takes
20 us (uvloop): the difference is more than all the rest of a small inference.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from core.errors import ServerBusy

Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Workers:
    def __init__(self, threads: int, queue: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._room = threads + queue
        self._held = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"dragoman-{index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, called in one of the threads. Raises ServerBusy where too many wait."""
        if self._held >= self._room:
            raise ServerBusy(f"{self._held} requests wait already: try again, or raise DRAGOMAN_QUEUE", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._held += 1  # only the event loop's thread counts
        try:
            self._jobs.put((loop, future, work))
            return await future
        finally:
            self._held -= 1

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, work = job
            del job
            if future.cancelled():
                continue
            try:
                outcome, error = work(), None
            except BaseException as raised:  # noqa: BLE001 - handed to whoever awaits it
                outcome, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, outcome, error)
            del loop, future, work, outcome, error  # an idle thread must not keep a request's tensors alive


def _settle(future: "asyncio.Future[Any]", outcome: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(outcome)
    else:
        future.set_exception(error)
