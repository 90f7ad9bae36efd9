"""Runs the steps of one request in parallel, as far as they do not depend on each other.

The request's own thread works on whatever step is ready, and helpers take others beside it. It waits only for steps
that a helper is at work on, and a helper never waits: however many requests run pipelines at the same time, none waits
for a thread.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from handler.backends.pipeline.steps import PipelineStep, Tensors, Took
from handler.backends.runs import CURRENT, Run

WORTHWHILE_NS: Final = 1_000_000
"""Usual time of a step that is worth a helper: starting a thread takes up to 0.1 ms."""


@cache
def slots(threads: int) -> threading.BoundedSemaphore:
    """Returns what bounds the helpers of this process."""
    return threading.BoundedSemaphore(threads)


def is_worthwhile(steps: Sequence[PipelineStep]) -> bool:
    """Decides whether two of the steps take so long that they may gain from a second thread."""
    return sum(step.ns >= WORTHWHILE_NS for step in steps) > 1


def run(
    steps: Sequence[PipelineStep], tensors: Tensors, parameters: Mapping[str, Any], free: threading.BoundedSemaphore
) -> list[Took]:
    """Adds the tensors of all steps. `free`: bounds the helpers. Raises the error of the first step that fails."""
    return _Request(steps, tensors, parameters, free).run()


class _Wake:
    """Options of a wait for helpers: setting `terminate` ends it."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "terminate":
            with self._changed:
                self._changed.notify_all()
        else:
            super().__setattr__(name, value)


class _Request:
    """`_changed` guards all that follows it."""

    def __init__(
        self,
        steps: Sequence[PipelineStep],
        tensors: Tensors,
        parameters: Mapping[str, Any],
        free: threading.BoundedSemaphore,
    ) -> None:
        self._tensors = tensors
        self._parameters = parameters
        self._free = free
        self._changed = threading.Condition()
        self._waiting = [step for step in steps if not step.takes <= tensors.keys()]
        self._ready = deque(step for step in steps if step.takes <= tensors.keys())
        self._busy = 0
        self._has_failed = False
        self._error: BaseException | None = None
        self._runs: list[Run] = []
        self._took: list[Took] = []

    def run(self) -> list[Took]:
        try:
            with self._changed:
                self._call_helpers()
            self._work(waits=True)
        except BaseException:
            self._end()
            raise
        error = self._end() if self._has_failed else None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        return self._took

    def _work(self, *, waits: bool) -> None:
        while (step := self._next(waits=waits)) is not None:
            try:
                took = step.run(self._tensors, self._parameters)
            except BaseException as error:  # noqa: BLE001 - raised in the request's own thread
                self._finish(error=error)
            else:
                self._finish(took)

    def _next(self, *, waits: bool) -> PipelineStep | None:
        """Takes a step that is ready. Waits until there is one, unless it is a helper that asks."""
        with self._changed:
            while not self._has_failed:
                if self._ready:
                    self._busy += 1
                    return self._ready.popleft()
                if not waits or not self._busy:
                    return None
                self._wait()
        return None

    def _wait(self) -> None:
        """Waits for a helper, or raises why this thread's run was ended."""
        current = CURRENT.run
        if current is None:
            self._changed.wait()
            return
        try:
            current.begin(_Wake(self._changed))
            self._changed.wait()
        finally:
            current.finish()
        current.check()

    def _finish(self, took: Took | None = None, error: BaseException | None = None) -> None:
        with self._changed:
            self._busy -= 1
            if error is not None and not self._has_failed:
                self._has_failed, self._error = True, error
            if took is not None:
                self._took.append(took)
                ready = [step for step in self._waiting if step.takes <= self._tensors.keys()]
                self._waiting = [step for step in self._waiting if step not in ready]
                self._ready.extend(ready)
                self._call_helpers()
            self._changed.notify_all()

    def _call_helpers(self) -> None:
        """Starts a helper for each step but one that is ready and takes long, while there may be more of them."""
        for _ in range(sum(step.ns >= WORTHWHILE_NS for step in self._ready) - 1):
            if not self._free.acquire(blocking=False):
                return
            own = Run()
            try:
                threading.Thread(target=self._help, args=(own,), name="dragoman-step", daemon=True).start()
            except RuntimeError:  # the process has as many threads as it may have; the request's own does the steps
                self._free.release()
                return
            self._runs.append(own)

    def _help(self, own: Run) -> None:
        CURRENT.run = own
        try:
            self._work(waits=False)
        finally:
            self._free.release()

    def _end(self) -> BaseException | None:
        """Ends what helpers do for a request that has failed. Waits for them if the request was ended.

        That request has its answer. Helpers whose code cannot be ended keep its thread, which then counts as lost.

        Returns the error of the first step that failed, and keeps it no longer: its traceback holds this request.
        """
        with self._changed:
            self._has_failed = True
            error, self._error = self._error, None
            runs = list(self._runs)
        for each in runs:
            each.end(InterruptedError)
        own = CURRENT.run
        if own is not None and own.ended:
            with self._changed:
                self._changed.wait_for(lambda: not self._busy)
        return error
