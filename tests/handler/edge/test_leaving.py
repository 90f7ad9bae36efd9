"""handler.edge.leaving: the end of work whose client has left."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest

from handler.edge.leaving import Leaving


def test_work_is_cancelled_when_its_client_leaves() -> None:
    """The block ends without an exception, and the task goes on."""

    async def main() -> tuple[bool, str]:
        gone, cancelled = asyncio.Event(), []

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        with closing(Leaving(receive)) as leaving, leaving:
            leaving.begin(0)
            leaving.begin(0)
            try:
                asyncio.get_running_loop().call_later(0.01, gone.set)
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
        await asyncio.sleep(0)
        return leaving.left, str(cancelled)

    assert asyncio.run(main()) == (True, "[1]")


@pytest.mark.parametrize("seconds", [0, 30])
def test_a_client_that_stays_changes_nothing(seconds: float) -> None:
    """The rule holds whether the watch has begun or not, and whatever else a server reports."""

    async def main() -> tuple[bool, int]:
        async def receive() -> Any:
            return {"type": "http.request"}

        with closing(Leaving(receive)) as leaving, leaving:
            leaving.begin(seconds)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        return leaving.left, len(asyncio.all_tasks())

    assert asyncio.run(main()) == (False, 1)


def test_a_cancellation_from_elsewhere_goes_on() -> None:
    """The server cancels its work at its end, for example."""

    async def work() -> None:
        with closing(Leaving(asyncio.Event().wait)) as leaving, leaving:  # type: ignore[arg-type] # never returns
            leaving.begin(0)
            await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


@pytest.mark.parametrize("when", ["in the first block", "between", "in the second block", "never"])
def test_one_watch_serves_two_blocks(when: str) -> None:
    """A server whose `receive` was cancelled may say that the client has left, as gunicorn's own worker does."""

    async def main() -> tuple[list[str], int]:
        gone, reached, asked = asyncio.Event(), list[str](), 0

        async def receive() -> Any:
            nonlocal asked
            asked += 1
            await gone.wait()
            return {"type": "http.disconnect"}

        def moment(name: str) -> None:
            if name == when:
                gone.set()

        with closing(Leaving(receive)) as leaving:
            for block in ("in the first block", "in the second block"):
                with leaving:
                    leaving.begin(0)
                    await asyncio.sleep(0.001)
                    moment(block)
                    await asyncio.sleep(0.001)
                    reached.append(block)
                if leaving.left:
                    break
                moment("between")
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        return reached, asked

    reached = {"in the first block": 0, "between": 1, "in the second block": 1, "never": 2}[when]
    assert asyncio.run(main()) == (["in the first block", "in the second block"][:reached], 1)
