"""handler.edge.workers: the bounded pool of threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

from core.errors import ServerBusy
from handler.edge.workers import Workers


def test_a_full_queue_turns_work_away_at_once() -> None:
    """The refusal says when to come back, and waiting work is done in the order of its coming."""

    async def crowd() -> tuple[list[int], ServerBusy]:
        gate, order = threading.Event(), []

        def work(number: int) -> int:
            gate.wait(10)
            order.append(number)
            return number

        running = [asyncio.ensure_future(workers.run(lambda n=n: work(n))) for n in range(3)]  # type: ignore[misc] # bound now
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="3 requests wait already") as busy:
            await workers.run(lambda: None)
        gate.set()
        assert await asyncio.gather(*running) == [0, 1, 2]
        return order, busy.value

    workers = Workers(1, 2)
    order, busy = asyncio.run(crowd())
    assert order == [0, 1, 2]
    assert busy.retry_after == 1
    workers.close()


def test_whatever_work_raises_is_raised_where_it_is_awaited() -> None:
    """The thread does the next work."""
    workers = Workers(1, 1)

    def fail() -> None:
        raise KeyError("k")

    async def run() -> Any:
        with pytest.raises(KeyError):
            await workers.run(fail)
        return await workers.run(lambda: 5)

    assert asyncio.run(run()) == 5
    workers.close()


def test_work_that_is_not_awaited_any_more_does_not_stop_a_thread() -> None:
    """Work may be cancelled while it waits or runs, and its loop may have ended."""
    workers, gate, begun = Workers(1, 2), threading.Event(), []

    async def run() -> int:
        first = asyncio.ensure_future(workers.run(lambda: gate.wait(10)))
        second = asyncio.ensure_future(workers.run(lambda: begun.append(1)))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        return await workers.run(lambda: 7)

    assert asyncio.run(run()) == 7
    assert begun == []
    late = threading.Event()

    async def leave() -> None:
        asyncio.ensure_future(workers.run(lambda: late.wait(10)))  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    late.set()
    assert asyncio.run(workers.run(lambda: 8)) == 8  # type: ignore[arg-type] # a coroutine
    workers.close()


def test_threads_end_when_the_pool_is_closed() -> None:
    """Idle threads end at once, busy ones with their work, and closing again changes nothing."""
    workers, gate = Workers(2, 1), threading.Event()
    threads = list(workers._idle)

    async def leave() -> None:
        asyncio.ensure_future(workers.run(lambda: gate.wait(10)))  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    workers.close()
    gate.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    workers.close()


def test_an_idle_thread_keeps_nothing_alive() -> None:
    """What work used is freed although its thread lives on."""

    class Large:
        pass

    workers = Workers(1, 1)
    made = Large()
    seen = weakref.ref(made)

    async def run(held: list[Large]) -> None:
        await workers.run(lambda: held.pop() and None)

    asyncio.run(run([made]))
    del made
    gc.collect()
    assert seen() is None
    workers.close()
