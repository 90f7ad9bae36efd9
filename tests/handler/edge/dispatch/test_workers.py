"""handler.edge.dispatch.workers: the bounded pool of threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import ServerBusy, TimedOut
from core.operations import Batching, ModelSpec
from handler.backends.runs import check
from handler.edge.dispatch.batches import Again, Batch
from handler.edge.dispatch.lane import BatchPart, Errand, Lane
from handler.edge.dispatch.workers import Workers
from handler.edge.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("queue", "told"), [(0, "1 request runs or waits already"), (2, "3 requests run or wait already")]
)
def test_a_full_queue_turns_work_away_at_once(queue: int, told: str) -> None:
    """The refusal has a retry time, and waiting work is done in the order of its arrival."""
    most = 1 + queue

    async def crowd() -> tuple[list[int], ServerBusy]:
        gate, order = threading.Event(), []

        def work(number: int) -> int:
            gate.wait(10)
            order.append(number)
            return number

        running = [asyncio.ensure_future(workers.run(lambda n=n: work(n))) for n in range(most)]  # type: ignore[misc] # bound now
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match=told) as busy:
            await workers.run(lambda: None)
        gate.set()
        assert await asyncio.gather(*running) == [*range(most)]
        return order, busy.value

    workers = Workers(1, queue)
    order, busy = asyncio.run(crowd())
    assert order == [*range(most)]
    assert busy.retry_after == 1
    workers.close()


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_no_more_requests_wait_than_the_queue_holds(cap: int) -> None:
    """Threads that a model cannot have do not make its queue longer, and other models still get them."""
    spec = ModelSpec("m", "1", "fake", None, None, max_concurrency=cap)
    workers, gate = Workers(4, 2), threading.Event()

    async def crowd() -> tuple[int, int]:
        running = [asyncio.ensure_future(workers.run(lambda: gate.wait(10), spec)) for _ in range(cap + 2)]
        await asyncio.sleep(0)
        waiting = sum(workers.pending().values())
        with pytest.raises(ServerBusy, match="raise DRAGOMAN_QUEUE"):
            await workers.run(lambda: None, spec)
        other = asyncio.ensure_future(workers.run(gate.is_set))
        await asyncio.sleep(0)
        if cap < 4:
            assert not await other
        gate.set()
        served = await asyncio.gather(*running, return_exceptions=True)
        assert cap < 4 or await other
        return waiting, sum(each is True for each in served)

    # The other model's request takes the place of the newest one only where it has to wait.
    assert asyncio.run(crowd()) == (2, cap + (2 if cap < 4 else 1))
    workers.close()


def test_work_that_ends_at_its_time_limit_does_not_end_the_looks() -> None:
    """A thread removes the requests of a batch after its work, perhaps while the event loop ends the batch."""

    class Leaving(tuple[Any, ...]):
        """Members that are removed after they were read once."""

        __slots__ = ()

        def __len__(self) -> int:
            batch.members = ()
            return super().__len__()

    loop = asyncio.new_event_loop()
    work = Errand(lambda: None, Lane("m", 1.0, 1.0), loop, float("inf"), None)
    batch = Batch(work.lane, (work,))
    batch.members = Leaving((work,))
    batch.overrun()
    with closing(loop), pytest.raises(TimedOut, match="within 1 s"):
        loop.run_until_complete(work.future)


def test_a_version_keeps_its_own_time_limit() -> None:
    """A request to another version while it runs does not change it."""
    first = ModelSpec("m", "1", "fake", None, None, timeout=30)
    second = ModelSpec("m", "2", "fake", None, None, timeout=0.1)
    workers, gate = Workers(3, 8), threading.Event()

    def loop() -> str:
        while not gate.wait(0.01):
            check()
        return "done"

    async def run() -> str:
        running = asyncio.ensure_future(workers.run(loop, first))
        with pytest.raises(TimedOut, match=r"version 2 did not answer within 0\.1 s"):
            await workers.run(loop, second)
        gate.set()
        return str(await running)

    assert asyncio.run(run()) == "done"
    workers.close()


def test_the_version_that_works_limits_the_time() -> None:
    """A request without a version may get a canary, which is known once its work has begun."""
    stable = ModelSpec("m", "1", "fake", None, None, timeout=30)
    canary = ModelSpec("m", "2", "fake", None, None, timeout=0.1)
    use: Any = SimpleNamespace(model=SimpleNamespace(spec=canary), version=b"2", record=lambda *_, **__: None)
    workers, timing = Workers(1, 8), Timing()

    def work() -> None:
        timing.using(use)
        while True:
            check()

    with pytest.raises(TimedOut, match=r"version 2 did not answer within 0\.1 s"):
        asyncio.run(workers.run(work, stable, owner=timing))
    workers.close()


def test_a_batch_ends_at_the_least_limit_of_its_requests() -> None:
    """Canaries may answer some of them. Alone, each has its own limit."""
    lane = Lane("m", None, 1.0)
    specs = [ModelSpec("m", "1", "fake", None, None, timeout=timeout) for timeout in (None, 30, 0.1)]
    loop = asyncio.new_event_loop()
    with closing(loop):
        works = [Errand(lambda: None, lane, loop, float("inf"), None) for _ in specs]
    for work, spec in zip(works, specs, strict=True):
        work.spec = spec
    assert [work.limit for work in works] == [None, 30, 0.1]
    assert Batch(lane, works).limit == 0.1
    assert Batch(lane, works[:1]).limit is None


def test_requests_wait_under_their_own_version() -> None:
    """The version of the latest request does not matter. A version without waiting requests has 0."""
    specs = [ModelSpec("m", version, "fake", None, None) for version in "12"]
    workers, gate = Workers(1, 8), threading.Event()

    async def run() -> list[dict[tuple[str, str], int]]:
        tasks = [asyncio.ensure_future(workers.run(lambda: gate.wait(10), spec)) for spec in (specs[0], *specs)]
        await asyncio.sleep(0)
        pending = [workers.pending()]
        gate.set()
        await asyncio.gather(*tasks)
        return [*pending, workers.pending()]

    assert asyncio.run(run()) == [{("m", "1"): 1, ("m", "2"): 1}, {("m", "2"): 0}]
    workers.close()


def test_work_of_another_version_gets_an_idle_thread() -> None:
    """It waits behind a request of a busy version, and gets its turn once the line is stale."""
    first = ModelSpec("m", "1", "fake", None, None, max_concurrency=1)
    second = ModelSpec("m", "2", "fake", None, None)
    workers, gate = Workers(4, 8), threading.Event()

    async def run() -> None:
        waiting = [asyncio.ensure_future(workers.run(lambda: gate.wait(30), first)) for _ in "ab"]
        await asyncio.sleep(0)
        assert await workers.run(lambda: "done", second) == "done"
        assert not any(each.done() for each in waiting)
        gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(run())
    workers.close()


def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """Time limits hold for the next work."""
    workers, broken = Workers(1, 8, timeout=0.1), iter((True,))
    watch = workers._watch

    def watched(*running: Any) -> None:
        if next(broken, False):
            raise MemoryError
        watch(*running)

    workers._watch = watched  # type: ignore[method-assign] # for the first look

    async def run() -> None:
        gate = threading.Event()
        first = asyncio.ensure_future(workers.run(lambda: gate.wait(30)))
        while "MemoryError" not in caplog.text:  # noqa: ASYNC110 - asyncio logs it
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(workers.run(lambda: None))
        with pytest.raises(TimedOut):
            await first
        gate.set()
        second.cancel()

    asyncio.run(run())
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


def test_what_waits_for_others_is_done_when_the_pool_is_closed() -> None:
    """Nobody else comes."""
    spec = ModelSpec("m", "1", "p", None, None, batching=Batching(8, 1.0))

    def steps() -> Any:
        yield None
        return 7

    async def leave() -> list[Any]:
        workers._lanes.of(spec).batches.last = 9
        waiting = [asyncio.ensure_future(workers.run(BatchPart(steps, spec, 1), spec)) for _ in range(3)]
        await asyncio.sleep(0)
        workers.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    workers = Workers(1, 9)
    assert [type(each) for each in asyncio.run(leave())] == [Again] * 3


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


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an event that is sure to come."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_a_model_that_was_quick_does_not_keep_others_out() -> None:
    """It holds all threads; another model gets one more, which ends when it is no longer needed."""
    workers, gate = Workers(2, 8), threading.Event()
    quick, other = ModelSpec("quick", "1", "p", None, None), ModelSpec("other", "1", "p", None, None)

    async def run() -> int:
        await workers.run(int, quick)
        await until(lambda: not workers._lanes.of(quick).held)  # its thread returns after its answer
        held = [asyncio.ensure_future(workers.run(lambda: gate.wait(30), quick)) for _ in range(3)]
        await asyncio.sleep(0)
        assert workers._lanes.of(quick).held == 2
        answer = await workers.run(lambda: 5, other)
        assert len(workers._threads) == 3
        gate.set()
        await asyncio.gather(*held)
        await workers.run(int, other)
        return int(answer)

    assert asyncio.run(run()) == 5
    workers.close()


def test_lost_threads_are_replaced_within_bounds() -> None:
    """Two models lose a thread each. One is replaced, a third model's refusal has the reason, and all come back."""
    workers, gate = Workers(1, 8, timeout=0.05, patience=0.3), threading.Event()
    specs = [ModelSpec(name, "1", "p", None, None) for name in "ab"]

    async def run() -> None:
        for number, spec in enumerate(specs, 1):
            with pytest.raises(TimedOut, match=f"model '{spec.name}' version 1 did not answer within 0.05 s"):
                await workers.run(lambda: gate.wait(30), spec)
            waits = asyncio.ensure_future(workers.run(int, spec))
            with pytest.raises(ServerBusy, match="refuses requests: an inference exceeded the time limit"):
                await waits
            assert workers.trouble(spec) != ""
            assert (workers.trouble() == "") == (number == 1)
        assert "exceeded the time limit and still occupy all 2 threads (model 'a' 1, model 'b' 1)" in workers.trouble()
        lost = "inferences exceeded the time limit and still occupy all 2 threads; try again, or restart the server"
        with pytest.raises(ServerBusy, match=f"^model 'c' did not get a thread in time: {lost}$"):
            await workers.run(int, ModelSpec("c", "1", "p", None, None))
        gate.set()
        await until(lambda: not workers.trouble() and not any(workers.trouble(spec) for spec in specs))
        assert await workers.run(lambda: 5, specs[0]) == 5
        await until(lambda: len(workers._threads) == 1)

    asyncio.run(run())
    workers.close()


def test_a_version_is_in_trouble_by_its_own_threads() -> None:
    """Another version's requests, which are answered, do not hide that, and are not in trouble themselves."""
    workers, gate = Workers(4, 8, timeout=0.05), threading.Event()
    stuck, other, more = (ModelSpec("m", version, "p", None, None, max_concurrency=1) for version in "123")

    async def run() -> None:
        with pytest.raises(TimedOut):
            await workers.run(lambda: gate.wait(30), stuck)
        await until(lambda: bool(workers.trouble(stuck)))
        assert await workers.run(lambda: 5, other) == 5
        assert [bool(workers.trouble(spec)) for spec in (stuck, other, more)] == [True, False, False]
        with pytest.raises(ServerBusy, match="refuses requests"):
            await workers.run(lambda: 5, stuck)
        gate.set()
        await until(lambda: not workers.trouble(stuck))

    asyncio.run(run())
    workers.close()


@pytest.mark.parametrize("batched", [False, True])
def test_a_thread_is_lost_to_work_without_a_limit_that_nobody_waits_for(*, batched: bool) -> None:
    """As on Lambda: an event's end is the only limit there, and its hanging code would hold the thread for good."""
    workers, gate = Workers(1, 8, unawaited=0.1), threading.Event()
    stuck, other = (ModelSpec(name, "1", "p", None, None) for name in "ab")

    def steps() -> Any:
        gate.wait(30)
        yield None

    async def run() -> None:
        work: Any = BatchPart(steps, stuck, 1) if batched else lambda: gate.wait(30)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(workers.run(work, stuck), 0.05)
        assert await workers.run(lambda: 5, other, admitted=True) == 5
        assert workers.trouble(stuck) == "an inference exceeded the time limit and still occupies a thread of the model"
        gate.set()
        await until(lambda: not workers.trouble(stuck))
        assert await workers.run(lambda: 5, stuck) == 5

    asyncio.run(run())
    workers.close()


def test_cancelled_work_is_ended_or_never_begun() -> None:
    """Running work notices it at its next check; waiting work leaves its lane."""
    workers, begun = Workers(1, 8), []

    def runs() -> None:
        begun.append(1)
        while True:
            check()

    async def run() -> None:
        first, second = (asyncio.ensure_future(workers.run(work)) for work in (runs, lambda: begun.append(2)))
        await until(lambda: begun != [])
        second.cancel()
        first.cancel()
        await workers.run(int)

    asyncio.run(run())
    assert begun == [1]
    workers.close()
