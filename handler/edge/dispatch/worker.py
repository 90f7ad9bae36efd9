"""One thread of the pool."""

import threading
import time
from typing import Protocol

from core.operations import ModelSpec
from handler.backends.runs import CURRENT
from handler.edge.dispatch.batches import Batch
from handler.edge.dispatch.lane import Errand, Lane


class Pool(Protocol):
    def next_for(
        self, worker: "Worker", lane: Lane, spec: ModelSpec | None, seconds: float | None, /
    ) -> Errand | Batch | None:
        """Returns waiting work, None if the worker is idle from now on or has to end.

        `lane`, `spec`: those of the work that it has done. `seconds`: its time, None if it did not end by itself.
        """
        ...


class Worker(threading.Thread):
    """A thread that sleeps on a lock. `wake` releases the lock with work, or with None to end the thread.

    `begun`: when its work began, on time.monotonic(). `left`: when a look first saw that no client waits for it, None
    before. `lost`: the work goes on beyond its time limit.
    """

    def __init__(self, pool: Pool, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.work: Errand | Batch | None = None
        self.begun = 0.0
        self.left: float | None = None
        self.lost = False
        self._woken = threading.Lock()
        self._woken.acquire()

    def begin(self, work: Errand | Batch) -> None:
        self.begun = time.monotonic()
        self.left = None
        self.work = work

    def unawaited(self, work: Errand | Batch, now: float) -> float:
        """Returns the seconds since a look first saw that no client waits for its work."""
        if self.left is None and work.is_left:
            self.left = now
        return 0.0 if self.left is None else now - self.left

    def wake(self, work: Errand | Batch | None) -> None:
        if work is not None:
            self.begin(work)
        self._woken.release()

    def run(self) -> None:
        while True:
            self._woken.acquire()
            work = self.work
            if work is None:
                return
            while work is not None:
                lane, spec, seconds = work.lane, work.spec, do(work, self.begun)
                work = None  # an idle thread must not keep a request's tensors alive
                work = self._pool.next_for(self, lane, spec, seconds)


def do(work: Errand | Batch, begun: float) -> float | None:
    """Does the work. Returns its seconds if it has ended by itself, or was late."""
    CURRENT.run = work.run
    is_done = work.do()
    CURRENT.run = None
    return time.monotonic() - begun if is_done or work.is_late else None
