"""Which waits of calls end for others: those of streams between two messages, and what a call's first message shares.

A stream that waits costs its client nothing, and a server counts it as it counts a call that is worked on.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

from core.errors import ServerBusy

T = TypeVar("T")
FRESH_SECONDS: Final = 1.0
"""A call may wait so long for its client, however many do."""
FEWEST: Final = 128


class TaskWaits:
    """What tasks wait for, each with the time from which it counts. Any of the waits can be ended."""

    def __init__(self) -> None:
        self.since: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()

    async def result(self, work: Awaitable[T], since: float, refusal: str) -> T:
        """Returns the result of a wait of the current task. Raises ServerBusy with the refusal if it was ended."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self.since[task] = since
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._ended and not task.uncancel():  # else the client has left, too
                raise ServerBusy(refusal, retry_after=1) from None
            raise
        finally:
            self.since.pop(task, None)
            self._ended.discard(task)

    def end(self, task: asyncio.Task[Any]) -> None:
        del self.since[task]
        self._ended.add(task)
        task.cancel()


class Idling:
    """The streams that wait for a message, or for news to tell. `most`: how many of them may for over a moment.

    Those beyond that which have waited longest end. Otherwise they could take all places of the server for ever.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waits = TaskWaits()
        self._is_watched = False
        self._refusal = f"more than {most} streams are idle, and this one was for longest: open it again"

    async def wait(self, work: Awaitable[T], since: float) -> T:
        """Returns the result of a wait. `since`: when the stream was used last. Raises ServerBusy."""
        if len(self._waits.since) >= self._most and not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().call_later(FRESH_SECONDS, self._make_room)
        return await self._waits.result(work, since, self._refusal)

    def _make_room(self) -> None:
        self._is_watched = False
        surplus = len(self._waits.since) - self._most
        for task in sorted(self._waits.since, key=self._waits.since.__getitem__)[: max(0, surplus)]:
            self._waits.end(task)


def most_idle(connections: int) -> int:
    """Returns how many streams may be idle: half of the server's requests, of which HTTP/2 has 256 at least."""
    return max(FEWEST, connections // 2)
