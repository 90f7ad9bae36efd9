"""Clients that leave before they have their answer: the work for them is dropped, or ended."""

import asyncio
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from handler.edge.exchange import Receive

LATE_SECONDS: Final = 0.01
"""Work that takes no longer is done before a watch would have begun, and costs a timer only (1 us)."""


class Leaving:
    """Cancels what a task does in a `with` block once its client has left; the block then ends without an exception.

    The watch begins with `begin`, and lasts until `close`: there may be several blocks. A server may report to a second
    watch that the client has left, because the first one was cancelled. The body of the request has to be gathered
    before. `left`: the client has left.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watch", "left")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Task[None] | None = None
        self.left = False

    def __enter__(self) -> Self:
        return self

    def begin(self, seconds: float = LATE_SECONDS) -> None:
        """Watches the client from so many seconds on. Further calls in the same block change nothing."""
        if self._task is not None:
            return
        self._task = asyncio.current_task()
        if self._watch is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)
        elif self.left:  # since the last block
            self._cancel()

    def _begin(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        message = await self._receive()
        # A server has nothing else to report after the body. One that does may never report this.
        self.left = message["type"] == "http.disconnect"
        if self.left:
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        if not self.left or task is None:
            return False
        # As asyncio.timeout does: a cancellation from elsewhere goes on.
        return task.uncancel() == 0 and kind is asyncio.CancelledError

    def close(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            self._watch.cancel()


async def landed(future: Future[Any], seconds: float | None = None) -> asyncio.Future[Any]:
    """Waits for a future that others wait for, too, for at most so many seconds, and returns it.

    A client that leaves cancels the wait and not the future. A failure that nobody waits for any more counts as seen:
    asyncio would log its traceback.
    """
    landing = asyncio.wrap_future(future)
    landing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait((landing,), timeout=seconds)
    return landing
