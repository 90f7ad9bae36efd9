"""Answers in many pieces, each of which takes a model some time. The event loop does not wait for them."""

import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from core.operations import ModelSpec
    from handler.edge.dispatch.workers import Workers
    from handler.edge.timing import Timing

log = logging.getLogger(__name__)
T = TypeVar("T")
END: Final = object()


async def each(
    items: Iterable[T],
    workers: "Workers | None",
    spec: "ModelSpec | None" = None,
    owner: "Timing | None" = None,
    here: Callable[[Callable[[], Any]], Any] = lambda step: step(),
) -> AsyncGenerator[T]:
    """Yields the items. A worker thread makes each one when the previous one was taken; without workers, this thread.

    `spec`: the model that makes them. Its time limit holds for each item. `owner`: counts a failure at that limit,
    and the time of each step. `here`: does a step in this thread, within a time limit.

    A tuple's items exist already. The iterator is closed if the caller leaves early or is cancelled.
    """
    if isinstance(items, tuple):
        for item in items:
            yield item
        return
    steps: _Steps[T] = _Steps(iter(items), owner)
    try:
        while True:
            if workers is None:
                item = here(steps.next)
            else:
                item = await workers.run(steps.next, spec, admitted=True, owner=owner)
            if item is END:
                return
            yield item
    finally:
        if steps.leave():
            if workers is None:
                steps.close()
            else:
                workers.spare(steps.close)


class _Steps(Generic[T]):
    """An iterator whose steps run in changing threads. The caller may leave it during a step."""

    def __init__(self, items: Iterator[T], owner: "Timing | None") -> None:
        self._items: Iterator[T] | None = items
        self._owner = owner
        self._left = False
        self._stepping = threading.Lock()

    def next(self) -> Any:
        """Returns an item, or END."""
        with self._stepping:
            if self._items is None:
                return END
            begun = time.perf_counter_ns()
            item = next(self._items, END)
            if self._owner is not None:
                self._owner.stepped(time.perf_counter_ns() - begun)
            if item is END:
                self._items = None
        if self._left:  # the caller left during this step, and did not wait for its end
            self.close()
        return item

    def leave(self) -> bool:
        """Marks the iterator as left. Returns whether the caller has to close it. Never waits."""
        self._left = True
        if self._items is None or not self._stepping.acquire(blocking=False):
            return False
        self._stepping.release()
        return True

    def close(self) -> None:
        with self._stepping:
            items, self._items = self._items, None
        try:
            getattr(items, "close", lambda: None)()  # not every iterator has anything to end
        except Exception:
            log.exception("a stream that its client has left did not end well")
