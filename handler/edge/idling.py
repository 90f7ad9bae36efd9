"""Limits how many streams are idle, and ends those beyond the limit.

An idle stream costs its client nothing, but it takes a place among the calls that a server permits.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

from core.errors import ServerBusy

T = TypeVar("T")
FRESH_SECONDS: Final = 1.0
"""A wait for the client that is shorter never ends, however many calls wait."""
FEWEST: Final = 128
MESSAGE_SECONDS: Final = 120.0
"""The longest time for one message of a call. Over gRPC its progress is not known: 64 MB need that long at 4 Mbit/s."""
LATE: Final = "the call's message did not arrive in time: try again"


class TaskWaits:
    """Tasks that wait for their client. `since`: when each began to wait. Any of the waits can be ended."""

    def __init__(self) -> None:
        self.since: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()

    async def result(self, work: Awaitable[T], since: float, refusal: str) -> T:
        """Awaits `work`, and returns its result. Raises ServerBusy with the refusal if `end` was called."""
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
    """The streams that wait for a message or a change. `most`: the limit of those that wait for over a second.

    Beyond it, those that have waited longest end. Otherwise they could take every place of the server for ever.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waits = TaskWaits()
        self._watched: asyncio.AbstractEventLoop | None = None  # one that has ended runs no timer any more
        self._refusal = f"more than {most} streams are idle, and this one was for longest: open it again"

    async def wait(self, work: Awaitable[T], since: float) -> T:
        """Awaits `work`, and returns its result. Raises ServerBusy. `since`: when the stream was used last."""
        if len(self._waits.since) >= self._most and self._watched is not (loop := asyncio.get_running_loop()):
            self._watched = loop
            loop.call_later(FRESH_SECONDS, self._make_room)
        return await self._waits.result(work, since, self._refusal)

    def _make_room(self) -> None:
        self._watched = None
        surplus = len(self._waits.since) - self._most
        for task in sorted(self._waits.since, key=self._waits.since.__getitem__)[: max(0, surplus)]:
            self._waits.end(task)


def most_idle(connections: int) -> int:
    """Returns the limit of idle streams: half of the requests that the server permits (HTTP/2: at least 256)."""
    return max(FEWEST, connections // 2)
