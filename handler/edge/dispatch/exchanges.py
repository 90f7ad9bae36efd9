"""A stream of requests that run in parallel, each with any number of answers.

A stream has few requests under way, reads the next one when one of them has ended, and holds back an answer until the
client has taken the one before: a client that sends without reading costs no memory.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Final, Generic, TypeVar

from core.records import NamedTuple

M = TypeVar("M")
T = TypeVar("T")
END: Final = None


class Plan(NamedTuple, Generic[M, T]):
    """How the messages of a stream are worked on.

    `answers`: yields the answers to one message. `id_of`: returns the text by which the client recognises them.
    `most`: messages under way. `fits`: decides whether a message fits beside the memory that others hold. `holds`:
    counts the memory of a message that waits to fit.
    """

    answers: Callable[[M], AsyncGenerator[T]]
    id_of: Callable[[M], str]
    most: int
    fits: Callable[[M], bool] = lambda _: True
    holds: Callable[[M], AbstractContextManager[None]] = lambda _: nullcontext()


async def answered(messages: AsyncIterator[M], plan: Plan[M, T]) -> AsyncGenerator[T]:
    """Yields the answers to all messages as they are ready, those to one message in their order.

    Messages of one id, or of none, are answered in their order: their client cannot tell the answers apart. An error of
    an answer ends the stream at once, and one of `messages` after the answers to what was read. If the caller leaves,
    all work ends.
    """
    exchange = _Exchange(plan)
    exchange.begin(messages)
    try:
        while (handed := await exchange.made.get()) is not END:
            item, taken = handed
            del handed
            yield item
            del item
            if not taken.done():
                taken.set_result(None)
        exchange.check()
    finally:
        await exchange.leave()


class _Exchange(Generic[M, T]):
    """The tasks of one stream: one that reads, and one for each message under way."""

    def __init__(self, plan: Plan[M, T]) -> None:
        self.made: asyncio.Queue[tuple[T, asyncio.Future[None]] | None] = asyncio.Queue()
        self._plan = plan
        self._reading: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._latest: dict[str, asyncio.Event] = {}
        # Not asyncio.wait: from Python 3.14 on, a task cancelled there keeps what it waits for in a reference cycle.
        self._freed = asyncio.Event()
        self._failed: asyncio.Task[None] | None = None

    def begin(self, messages: AsyncIterator[M]) -> None:
        self._reading = asyncio.create_task(self._read(messages))
        self._reading.add_done_callback(self._ended)

    async def _read(self, messages: AsyncIterator[M]) -> None:
        """Begins the work on each message when there is room for it."""
        async for message in messages:
            while self._working and not self._plan.fits(message):
                with self._plan.holds(message):
                    await self._one_ended()
            self._begin(message)
            del message  # a task that failed keeps its frames, and so would this one
            while len(self._working) >= self._plan.most:
                await self._one_ended()

    async def _one_ended(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def _begin(self, message: M) -> None:
        own = self._plan.id_of(message)
        ended = asyncio.Event()
        task = asyncio.create_task(self._answer(message, self._latest.get(own)))
        self._working.add(task)
        self._latest[own] = ended
        task.add_done_callback(partial(self._worked, own, ended))

    async def _answer(self, message: M, before: asyncio.Event | None) -> None:
        """Hands over each answer to the message. `before`: set when the one of the same id before it has ended."""
        async with aclosing(self._plan.answers(message)) as answers:
            async for item in answers:
                if before is not None:
                    await before.wait()
                    before = None
                taken = asyncio.get_running_loop().create_future()
                self.made.put_nowait((item, taken))
                del item
                await taken
        if before is not None:  # it had no answer; the next one is still behind the one before
            await before.wait()

    def _worked(self, own: str, ended: asyncio.Event, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        ended.set()
        self._freed.set()
        if self._latest.get(own) is ended:
            del self._latest[own]
        if _has_failed(task):
            self._failed = task
            self.made.put_nowait(END)
        self._end_if_done()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if _has_failed(task):
            self._failed = self._failed or task
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._reading is None and not self._working:
            self.made.put_nowait(END)

    def check(self) -> None:
        """Raises the error that ended the stream."""
        failed, self._failed = self._failed, None
        if failed is not None:
            try:
                failed.result()
            finally:
                del failed  # it holds the error, whose traceback holds this frame

    async def leave(self) -> None:
        """Ends the work under way."""
        tasks = [*self._working] if self._reading is None else [self._reading, *self._working]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None
