"""Work on requests in the caller's thread, as on Lambda, where an instance has one request at a time."""

import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from core.deadline import NEVER, Deadline
from core.errors import TimedOut
from core.operations import ModelSpec
from core.wire import Waits
from handler.edge.dispatch.limits import Watchdog, late
from handler.edge.jobs import Job
from handler.edge.timing import Timing
from handler.settings import Settings

T = TypeVar("T")


class Inline:
    """Takes the place of dispatch.Threads. `buffers`: the most bytes of an answer, which its caller gets as a whole."""

    loaders = None
    buffers = 8 * 2**20  # more than a function can answer

    def __init__(self, settings: Settings) -> None:
        self._timeout = settings.timeout
        self._watchdog = Watchdog()
        # Otherwise the deadline is that of a wait for a model.
        self._knows_end = settings.patience is None

    async def answer(self, job: Job[T], waits: Waits) -> T:
        return self.at_once(job, waits)

    later = answer

    def at_once(self, job: Job[T], waits: Waits) -> T:
        """Returns the job's answer. Raises ServingError, TimedOut at the time limit or before the function's own."""
        if waits not in (Waits.MODEL, Waits.LONG):
            return job.run()
        return self._guarded(job.timing, job.run)

    def _guarded(self, timing: Timing, work: Callable[[], T]) -> T:
        limit = _Limit(timing, self._timeout, timing.deadline if self._knows_end else NEVER)
        return self._watchdog.guard(work, limit.due, limit.late)

    async def work(self, work: Callable[[], T], *, is_quick: bool) -> T:  # noqa: ARG002 - as Threads
        return work()

    async def aside(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def promptly(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    def begin(self, work: Callable[[], None]) -> None:
        work()

    def each(self, items: Iterable[T], timing: Timing) -> AsyncGenerator[T]:
        from handler.edge.dispatch import streams  # noqa: PLC0415 - few requests of a function

        return streams.each(items, None, owner=timing, here=partial(self._guarded, timing))

    def trouble(self, _spec: ModelSpec | None) -> str:
        """Returns "": no other work runs beside the request."""
        return ""

    def pending(self) -> Mapping[tuple[str, str], int]:
        """One request at a time: none waits."""
        return {}

    def close(self) -> None:
        """Ends the watchdog's thread."""
        self._watchdog.close()


class _Limit:
    """Decides when one inference has to end: an earlier load's time does not count. `end`: of the function's time."""

    __slots__ = ("_begun", "_default", "_end", "_timing")

    def __init__(self, timing: Timing, default: float | None, end: Deadline) -> None:
        self._timing = timing
        self._default = default
        self._end = end
        self._begun: float | None = None

    @property
    def _seconds(self) -> float | None:
        own: float | None = self._timing.use.model.spec.timeout
        return self._default if own is None else own

    def due(self) -> float:
        if self._timing.use is None:
            return math.inf
        now = self._begun = self._begun or time.monotonic()
        seconds = self._seconds
        return self._end.at if seconds is None else min(self._end.at, now + seconds)

    def late(self) -> TimedOut:
        spec, seconds = self._timing.use.model.spec, self._seconds
        if seconds is not None and time.monotonic() >= (self._begun or 0.0) + seconds:
            return late(spec, spec.version, self._default)
        return TimedOut(
            f"model {spec.name!r} version {spec.version} did not answer before the function's or the request's deadline"
        )
