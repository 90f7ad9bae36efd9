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


def test_a_full_queue_is_said_at_once() -> None:
    """With when to come back; what waits is done, in order of its coming."""

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
    """And the thread goes on."""
    workers = Workers(1, 1)

    def fail() -> None:
        raise KeyError("k")

    async def run() -> Any:
        with pytest.raises(KeyError):
            await workers.run(fail)
        return await workers.run(lambda: 5)

    assert asyncio.run(run()) == 5
    workers.close()


def test_what_nobody_awaits_any_more_is_not_begun_and_not_missed() -> None:
    """Cancelled while waiting, cancelled while running, and a loop that is gone."""
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
    """Idle ones at once, busy ones with their work; closing again changes nothing."""
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
    """A request's tensors go with its answer."""

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
