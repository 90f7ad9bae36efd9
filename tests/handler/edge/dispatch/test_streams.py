"""handler.edge.dispatch.streams: answers in pieces, taken in changing threads, left at any moment."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from core.errors import ServerBusy
from handler.edge.dispatch.streams import each
from handler.edge.dispatch.workers import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Two threads, without a queue."""
    pool = Workers(2, 0)
    yield pool
    pool.close()


class Source:
    """Iterates over numbers. `closed`: set when the iteration has ended."""

    def __init__(self, count: int = 10**9) -> None:
        self.count = count
        self.threads: set[str] = set()
        self.closed = threading.Event()
        self.hold: threading.Event | None = None
        self.held = threading.Event()

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                self.threads.add(threading.current_thread().name)
                if self.hold is not None:
                    self.held.set()
                    self.hold.wait(30)
                yield number
        finally:
            self.closed.set()


async def taken(items: Any, workers: Workers | None, most: int = 10**9) -> list[Any]:
    found: list[Any] = []
    async with aclosing(each(items, workers)) as numbers:
        async for number in numbers:
            found.append(number)
            if len(found) == most:
                break
    return found


def test_every_item_comes_in_order_and_from_the_threads(workers: Workers) -> None:
    """A thousand items come in order, and none is made in the caller's thread."""
    source = Source(1000)
    assert asyncio.run(taken(source, workers)) == list(range(1000))
    assert threading.current_thread().name not in source.threads


def test_without_threads_items_are_made_on_the_spot() -> None:
    """Items are made in the caller's thread, which closes the source when the caller leaves."""
    source = Source()
    assert asyncio.run(taken(source, None, 3)) == [0, 1, 2]
    assert source.threads == {threading.current_thread().name}
    assert source.closed.is_set()
    assert asyncio.run(taken(Source(2), None)) == [0, 1]


def test_a_tuple_needs_no_thread() -> None:
    """A tuple's items come from a closed pool."""
    pool = Workers(1, 0)
    pool.close()
    assert asyncio.run(taken((1, 2), pool)) == [1, 2]


def test_a_stream_goes_on_however_many_wait(workers: Workers) -> None:
    """A full pool refuses new work, and continues a stream."""
    hold = threading.Event()

    async def main() -> list[int]:
        busy = [asyncio.ensure_future(workers.run(lambda: hold.wait(30))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy):
            await workers.run(int)
        numbers = asyncio.ensure_future(taken(Source(3), workers))
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(*busy)
        return await numbers

    assert asyncio.run(main()) == [0, 1, 2]


def test_leaving_between_two_items_closes_the_source(workers: Workers) -> None:
    """One of the threads closes it."""
    source = Source()
    assert asyncio.run(taken(source, workers, 3)) == [0, 1, 2]
    assert source.closed.wait(30)


def test_leaving_while_an_item_is_made_closes_the_source_after_it(workers: Workers) -> None:
    """The caller does not wait for that."""
    source = Source()
    source.hold = threading.Event()

    async def main() -> None:
        numbers = asyncio.ensure_future(taken(source, workers))
        await asyncio.get_running_loop().run_in_executor(None, source.held.wait, 30)
        numbers.cancel()
        with pytest.raises(asyncio.CancelledError):
            await numbers

    asyncio.run(main())
    assert not source.closed.is_set()
    source.hold.set()
    assert source.closed.wait(30)


def test_what_an_item_raises_is_raised_where_it_is_awaited(workers: Workers) -> None:
    """The items before it have arrived."""

    def failing() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    async def main() -> None:
        numbers = each(failing(), workers)
        assert await anext(numbers) == 1
        with pytest.raises(ZeroDivisionError):
            await anext(numbers)

    asyncio.run(main())


def test_a_source_that_does_not_end_well_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An error in closing the source appears only in the log."""

    def stubborn() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise ZeroDivisionError

    assert asyncio.run(taken(stubborn(), None, 1)) == [1]
    assert "did not end well" in caplog.text


def test_an_iterator_without_an_end_of_its_own_is_simply_left() -> None:
    """The items need not come from a generator."""
    assert asyncio.run(taken(iter(range(10)), None, 2)) == [0, 1]
