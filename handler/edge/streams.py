"""Answers in many pieces, of models that take their time over each, where the event loop must not wait for them."""

import logging
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from handler.edge.workers import Workers

log = logging.getLogger(__name__)
T = TypeVar("T")
END: Final = object()
GRACE_SECONDS: Final = 5
"""For what is being answered when the server is told to end: a stream may have no end of its own."""


async def each(items: Iterable[T], workers: "Workers | None") -> AsyncGenerator[T]:
    """The items, each made in one of the threads when the one before has been taken; in this one without threads.

    A tuple has nothing left to be made. Who leaves early, or is cancelled, lets the iterator be closed.
    """
    if isinstance(items, tuple):
        for item in items:
            yield item
        return
    steps: _Steps[T] = _Steps(iter(items))
    try:
        while True:
            item = steps.next() if workers is None else await workers.run(steps.next, admitted=True)
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
    """An iterator whose steps are taken in changing threads, and that may be left while one is being taken."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items: Iterator[T] | None = items
        self._left = False
        self._stepping = threading.Lock()

    def next(self) -> Any:
        """An item, or END."""
        with self._stepping:
            if self._items is None:
                return END
            item = next(self._items, END)
            if item is END:
                self._items = None
        if self._left:  # who left while this step was being taken did not wait for it
            self.close()
        return item

    def leave(self) -> bool:
        """Whether nobody else will close it, so that the caller has to. Never waits."""
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
