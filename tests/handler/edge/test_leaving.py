"""handler.edge.leaving: the end of work whose client has left."""

from __future__ import annotations

import asyncio
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

        with Leaving(receive) as leaving:
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

        with Leaving(receive) as leaving:
            leaving.begin(seconds)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        return leaving.left, len(asyncio.all_tasks())

    assert asyncio.run(main()) == (False, 1)


def test_a_cancellation_from_elsewhere_goes_on() -> None:
    """The server cancels its work at its end, for example."""

    async def work() -> None:
        with Leaving(asyncio.Event().wait) as leaving:  # type: ignore[arg-type] # never returns
            leaving.begin(0)
            await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
